/* A client of the callback generation and of the call with the shape of AsyncGetCallTrace; see StackApi.java. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <jni.h>
#include <profile.h>
#include <tickwalk_calltrace.h>

#define KEPT __attribute__((noinline, noclone, visibility("default")))

enum { DEPTH = 64 };

typedef void (*GetCallTrace)(TICKWALK_CallTrace *, jint, void *);

typedef struct {
  JNIEnv *env;
  int count;
} Job;

static void *unknown_thread(void *argument) {
  Job *job = argument;
  TICKWALK_CallFrame frames[DEPTH];
  TICKWALK_CallTrace trace = {job->env, 12345, frames};
  ucontext_t context;
  getcontext(&context);
  TickwalkAsyncGetCallTrace(&trace, DEPTH, &context);
  job->count = trace.num_frames;
  return NULL;
}

/* 0: an ordinary call; 1: no environment; 2: a thread that the VM does not know; 3: found by dlsym, depth 1; 4: an
 * environment that is none, which HotSpot too compares with null only. */
JNIEXPORT jstring JNICALL Java_StackApi_ticks(JNIEnv *env, jclass class, jint scenario) {
  (void)class;
  TICKWALK_CallFrame frames[DEPTH];
  TICKWALK_CallTrace trace = {scenario == 1 ? NULL : scenario == 4 ? (JNIEnv *)16 : env, 12345, frames};
  char text[256];
  GetCallTrace found;
  Job job = {env, 0};
  pthread_t thread;
  ucontext_t context;
  getcontext(&context);
  switch (scenario) {
  case 2:
    pthread_create(&thread, NULL, unknown_thread, &job);
    pthread_join(thread, NULL);
    trace.num_frames = job.count;
    break;
  case 3:
    *(void **)&found = dlsym(RTLD_DEFAULT, "TickwalkAsyncGetCallTrace");
    found(&trace, 1, &context);
    break;
  default:
    TickwalkAsyncGetCallTrace(&trace, DEPTH, &context);
  }
  sprintf(text, "count %d %d", trace.num_frames, trace.num_frames > 0 ? frames[0].lineno : 0);
  return (*env)->NewStringUTF(env, text);
}

typedef struct {
  int java;
  int native;
  int stop_after;
  int first_type;
  int first_bci;
} Seen;

static int on_java(ASGST_FrameInfo *frame, void *argument) {
  Seen *seen = argument;
  if (seen->java++ == 0) {
    seen->first_type = frame->type;
    seen->first_bci = frame->bci;
  }
  return seen->java != seen->stop_after;
}

static int on_native(ASGST_Frame *frame, void *argument) {
  Seen *seen = argument;
  if (frame->pc) seen->native++;
  return 1;
}

JNIEXPORT jstring JNICALL Java_StackApi_callbacks(JNIEnv *env, jclass class) {
  (void)class;
  char text[512];
  ucontext_t context;
  getcontext(&context);
  ASGST_Frame last = ASGST_GetFrame(NULL, false), interrupted = ASGST_GetFrame(&context, false);
  ASGST_Frame focused = ASGST_GetFrame(&context, true);
  Seen all = {0, 0, 0, 0, 0}, two = {0, 0, 2, 0, 0};
  int walked = ASGST_WalkStackFromFrame(last, on_java, on_native, &all, 0);
  int stopped = ASGST_WalkStackFromFrame(last, on_java, NULL, &two, 0);
  int refused = ASGST_WalkStackFromFrame(last, on_java, NULL, &two, ASGST_RECONSTITUTE);
  Dl_info info;
  int is_here = dladdr(interrupted.pc, &info) && info.dli_sname && !strcmp(info.dli_sname, "Java_StackApi_callbacks");
  sprintf(text, "all %d %d %d\ntype %d %d\ntwo %d %d\nrefused %d\njava %d %d\nsame %d\nhere %d", walked, all.java,
          all.native > 0, all.first_type, all.first_bci, stopped, two.java, refused, ASGST_IsJavaFrame(last),
          ASGST_IsJavaFrame(interrupted), focused.sp == last.sp, is_here);
  return (*env)->NewStringUTF(env, text);
}
