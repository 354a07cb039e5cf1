/* A client of AsyncGetStackTrace; see StackApi.java. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <jni.h>
#include <profile.h>

#define KEPT __attribute__((noinline, noclone, visibility("default")))

enum { DEPTH = 1024 };

/* Prints "count N kind K" and a line for each frame: type, level, bci and, of C frames, the function. */
static void print_trace(char *text, const ASGST_CallTrace *trace) {
  text += sprintf(text, "count %d %d\n", trace->num_frames, trace->kind);
  for (int i = 0; i < trace->num_frames && i < 40; i++) {
    const ASGST_CallFrame *frame = &trace->frames[i];
    Dl_info info;
    int is_c = frame->type == ASGST_FRAME_CPP || frame->type == ASGST_FRAME_STUB;
    const char *name = is_c && dladdr(frame->non_java_frame.pc, &info) && info.dli_sname ? info.dli_sname : "?";
    if (is_c) text += sprintf(text, "frame %d %s\n", frame->type, name);
    else text += sprintf(text, "frame %d %d %d %d\n", frame->type, frame->java_frame.comp_level, frame->java_frame.bci,
                         frame->java_frame.method_id != NULL);
  }
}

KEPT void trace_here(char *text, unsigned options, int depth, int with_context) {
  ASGST_CallFrame frames[DEPTH];
  ASGST_CallTrace trace = {12345, 99, frames, NULL};
  ucontext_t context;
  getcontext(&context);
  AsyncGetStackTrace(&trace, depth, with_context ? &context : NULL, options);
  print_trace(text, &trace);
}

JNIEXPORT jstring JNICALL Java_StackApi_trace435(JNIEnv *env, jclass class, jint options, jint depth) {
  (void)class;
  char text[1 << 14];
  trace_here(text, (unsigned)options, depth, 0);
  return (*env)->NewStringUTF(env, text);
}

KEPT jobject call_java435(JNIEnv *env, jclass class, jint options, jint depth) {
  jmethodID inner = (*env)->GetStaticMethodID(env, class, "inner435", "(II)Ljava/lang/String;");
  jobject result = (*env)->CallStaticObjectMethod(env, class, inner, options, depth);
  __asm__ volatile("" ::: "memory");
  return result;
}

JNIEXPORT jstring JNICALL Java_StackApi_chain435(JNIEnv *env, jclass class, jint options, jint depth) {
  return call_java435(env, class, options, depth);
}

typedef struct {
  char text[1 << 14];
  int options;
} Job;

KEPT void thread_inner435(Job *job) {
  trace_here(job->text, (unsigned)job->options, DEPTH, 1);
  __asm__ volatile("" ::: "memory");
}

KEPT void *thread_outer435(void *job) {
  thread_inner435(job);
  __asm__ volatile("" ::: "memory");
  return NULL;
}

JNIEXPORT jstring JNICALL Java_StackApi_thread435(JNIEnv *env, jclass class, jint options) {
  (void)class;
  Job *job = calloc(1, sizeof *job);
  job->options = options;
  pthread_t thread;
  pthread_create(&thread, NULL, thread_outer435, job);
  pthread_join(thread, NULL);
  jstring result = (*env)->NewStringUTF(env, job->text);
  free(job);
  return result;
}
