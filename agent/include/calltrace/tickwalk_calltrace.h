/*
 * A call of the shape of AsyncGetCallTrace, served by libtickwalk.so with mode=api; how to load it: iterator/profile2.h.
 * It needs no JVMTI event. A profiler looks it up by dlsym(RTLD_DEFAULT, "TickwalkAsyncGetCallTrace") and calls it in
 * place of AsyncGetCallTrace, with its own declarations of the same layout.
 * C11 and C++11.
 */
#ifndef TICKWALK_CALLTRACE_H
#define TICKWALK_CALLTRACE_H

#include <jni.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  jint lineno;         /* bytecode index; -1 unknown, -3 native method */
  jmethodID method_id; /* null if the VM has made none for this method: request jmethodIDs (JVMTI GetClassMethods in
                          ClassPrepare), or use iterator/profile2.h, which needs none */
} TICKWALK_CallFrame;

typedef struct {
  JNIEnv *env_id;  /* not null */
  jint num_frames; /* frames, or a code <= 0 */
  TICKWALK_CallFrame *frames;
} TICKWALK_CallTrace;

/* Codes in num_frames, with the numbers of HotSpot's forte.cpp. */
enum TICKWALK_TraceError {
  TICKWALK_ticks_no_Java_frame = 0,
  TICKWALK_ticks_not_walkable_not_Java = -4,
  TICKWALK_ticks_unknown_Java = -5,
  TICKWALK_ticks_not_walkable_Java = -6,
  TICKWALK_ticks_unknown_state = -7, /* too many walks at the same time */
  TICKWALK_ticks_thread_exit = -8,   /* env_id is null, the VM does not know the thread, or the thread is ending */
  TICKWALK_ticks_deopt = -9
};

/* Stores up to `depth` Java frames of the calling thread, newest first. Signal safe. ucontext: as for
   AsyncGetCallTrace, or null to walk from the thread's last Java frame. */
void TickwalkAsyncGetCallTrace(TICKWALK_CallTrace *trace, jint depth, void *ucontext);

#ifdef __cplusplus
}
#endif

#endif
