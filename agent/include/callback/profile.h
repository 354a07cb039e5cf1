/*
 * The callback stack-walk API (third generation) on stock HotSpot JVMs, served by libtickwalk.so with mode=api; how to
 * load it: iterator/profile2.h. Safepoint callbacks are not served (design/stack-walk-api.md).
 * C11 and C++11.
 */
#ifndef JVM_PROFILE_CALLBACK_H
#define JVM_PROFILE_CALLBACK_H

#include <jni.h>
#include <stdint.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum ASGST_FrameTypeId {
  ASGST_FRAME_JAVA = 1,
  ASGST_FRAME_JAVA_INLINED = 2,
  ASGST_FRAME_JAVA_NATIVE = 3
};

/* Both are refused with ASGST_unsupported_option. */
enum ASGST_Options {
  ASGST_RECONSTITUTE = 0x001,
  ASGST_WALK_LOOM_THREADS = 0x011
};

enum ASGST_Error {
  ASGST_no_Java_frame = 0,
  ASGST_no_class_load = -1,
  ASGST_GC_active = -2,
  ASGST_unknown_not_Java = -3,
  ASGST_not_walkable_not_Java = -4,
  ASGST_unknown_Java = -5,
  ASGST_not_walkable_Java = -6,
  ASGST_unknown_state = -7,
  ASGST_thread_exit = -8,
  ASGST_deopt = -9,
  ASGST_safepoint = -10,
  ASGST_unsupported_option = -11
};

typedef struct {
  void *pc;
  void *sp;
  void *fp;
} ASGST_Frame;

typedef struct {
  uint8_t type;
  int comp_level;   /* 0 interpreted, 1 to 4 tier of the compiler, -1 undefined */
  int bci;          /* -3 in native methods, -1 if it is unknown */
  jmethodID method; /* null if the VM has made none for this method */
  ASGST_Frame frame;
} ASGST_FrameInfo;

/* A callback returns 1 to go on. */
typedef int (*ASGST_WalkStackCallback)(ASGST_FrameInfo *frame, void *argument);
typedef int (*ASGST_NonJavaFrameCallback)(ASGST_Frame *frame, void *argument);

/*
 * Calls java_callback for each Java frame of the calling thread from `frame` on, newest first, and c_callback, unless it
 * is null, for the non-Java parent of a Java frame. A callback returns 1 to go on.
 * Returns 1 if the walk reached the end or a callback ended it, else a code of ASGST_Error. Signal safe.
 */
int ASGST_WalkStackFromFrame(ASGST_Frame frame, ASGST_WalkStackCallback java_callback,
                             ASGST_NonJavaFrameCallback c_callback, void *argument, int options);

/* 1 if the pc lies in generated code. Signal safe. */
int ASGST_IsJavaFrame(ASGST_Frame frame);

/* The interrupted frame, or with ucontext null the last Java frame; with focus_on_java the first Java frame. The pc is
   null if there is none. Signal safe. */
ASGST_Frame ASGST_GetFrame(void *ucontext, bool focus_on_java);

#ifdef __cplusplus
}
#endif

#endif
