/*
 * AsyncGetStackTrace (JEP 435, first generation) on stock HotSpot JVMs, served by libtickwalk.so with mode=api; how to
 * load it: iterator/profile2.h. Layouts and codes are those of the proposal of January 2023.
 * C11 and C++11.
 */
#ifndef JVM_PROFILE_JEP435_H
#define JVM_PROFILE_JEP435_H

#include <jni.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ASGST_Options {
  ASGST_INCLUDE_C_FRAMES = 1,        /* C, C++ and stub frames as well */
  ASGST_INCLUDE_NON_JAVA_THREADS = 2 /* threads that the VM does not know, and its GC threads, as well */
};

enum ASGST_TRACE_KIND {
  ASGST_JAVA_TRACE = 0,
  ASGST_CPP_TRACE = 1,    /* a thread that runs no Java */
  ASGST_GC_TRACE = 2,     /* a collector has stopped the program: a thread that runs no Java code at the moment */
  ASGST_DEOPT_TRACE = 3,  /* the VM is replacing the thread's newest compiled frame by interpreter frames */
  ASGST_UNKNOWN_TRACE = 4 /* no first frame was found */
};

enum ASGST_FrameTypeId {
  ASGST_FRAME_JAVA = 1,
  ASGST_FRAME_JAVA_INLINED = 2,
  ASGST_FRAME_NATIVE = 3,
  ASGST_FRAME_STUB = 4,
  ASGST_FRAME_CPP = 5
};

/* Codes in num_frames. */
enum ASGST_Error {
  ASGST_NO_JAVA_FRAME = 0,
  ASGST_NO_CLASS_LOAD = -1,         /* never returned: no class event is needed */
  ASGST_GC_ACTIVE = -2,             /* never returned */
  ASGST_UNKNOWN_NOT_JAVA = -3,
  ASGST_NOT_WALKABLE_NOT_JAVA = -4, /* the walk found no frame of a thread that runs no Java code */
  ASGST_UNKNOWN_JAVA = -5,
  ASGST_NOT_WALKABLE_JAVA = -6,     /* the walk found no frame of a thread that runs Java code */
  ASGST_UNKNOWN_STATE = -7,         /* too many walks at the same time, or an unknown stack */
  ASGST_THREAD_EXIT = -8,
  ASGST_DEOPT = -9,
  ASGST_THREAD_NOT_JAVA = -10       /* without ASGST_INCLUDE_NON_JAVA_THREADS */
};

typedef struct {
  uint8_t type;        /* ASGST_FRAME_JAVA, _JAVA_INLINED, _NATIVE */
  int8_t comp_level;   /* 0 interpreted, 1 to 4 tier of the compiler, -1 undefined */
  uint16_t bci;        /* 0 in native methods and where it is unknown */
  jmethodID method_id; /* null if the VM has made none for this method */
} ASGST_JavaFrame;

typedef struct {
  uint8_t type; /* ASGST_FRAME_STUB, _CPP */
  void *pc;
} ASGST_NonJavaFrame;

typedef union {
  uint8_t type;
  ASGST_JavaFrame java_frame;
  ASGST_NonJavaFrame non_java_frame;
} ASGST_CallFrame;

typedef struct {
  jint num_frames; /* frames, or a code <= 0 */
#ifndef ASGST_CALL_TRACE_WITHOUT_KIND
  uint8_t kind;    /* ASGST_TRACE_KIND */
#endif             /* without it, the padding is written */
  ASGST_CallFrame *frames;
  void *frame_info; /* not touched */
} ASGST_CallTrace;

/*
 * Stores up to `depth` frames of the calling thread in trace->frames, newest first. Signal safe.
 * ucontext: third argument of the signal handler that calls, or null to walk from the thread's last Java
 * frame, or from the caller of this function if there is none.
 * options: bits of ASGST_Options; 0 gives the frames of AsyncGetCallTrace.
 */
void AsyncGetStackTrace(ASGST_CallTrace *trace, jint depth, void *ucontext, uint32_t options);

#ifdef __cplusplus
}
#endif

#endif
