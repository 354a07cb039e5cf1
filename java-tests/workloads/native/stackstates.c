/* Walks of the stack-walk API in states of a thread in which it has few Java frames or none. Used by StackStates.java. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <jvmti.h>
#include <profile2.h>
#include <tickwalk_calltrace.h>

static JavaVM *vm;

static void count(ASGST_Iterator *iterator, void *argument) {
  ASGST_Frame frame;
  while (ASGST_NextFrame(iterator, &frame) == 1) ++*(int *)argument;
}

typedef struct {
  int kind, with_native, frames, ticks;
} Codes;

/* Of the calling thread: codes of a walk of Java frames, of one of all frames, and of the shape of AsyncGetCallTrace. */
static Codes codes_at(void *context) {
  Codes codes = {0, 0, 0, 0};
  int all = 0;
  TICKWALK_CallFrame frames[64];
  TICKWALK_CallTrace trace = {(JNIEnv *)16, 12345, frames};
  codes.kind = ASGST_RunWithIterator(context, 0, count, &codes.frames);
  codes.with_native = ASGST_RunWithIterator(context, ASGST_INCLUDE_NON_JAVA_FRAMES, count, &all);
  TickwalkAsyncGetCallTrace(&trace, 64, context);
  codes.ticks = trace.num_frames;
  return codes;
}

static void print(const char *name, Codes codes) {
  printf("== %s\nkind %d frames %d, with native frames %d, ticks %d\n", name, codes.kind, codes.frames, codes.with_native,
         codes.ticks);
  fflush(stdout);
}

/* ---- A native thread before, while and after the VM knows it ---- */

static void *native_thread(void *argument) {
  ucontext_t context;
  JNIEnv *env;
  (void)argument;
  getcontext(&context);
  print("unknown", codes_at(&context));
  (*vm)->AttachCurrentThread(vm, (void **)&env, NULL);
  print("attached", codes_at(&context));
  (*vm)->DetachCurrentThread(vm);
  print("detached", codes_at(&context));
  return NULL;
}

JNIEXPORT void JNICALL Java_StackStates_nativeThread(JNIEnv *env, jclass class) {
  pthread_t thread;
  (void)env;
  (void)class;
  pthread_create(&thread, NULL, native_thread, NULL);
  pthread_join(thread, NULL);
}

/* ---- Java threads that end, with a timer from the event of their end on ---- */

static timer_t timer;
static atomic_int has_timer, is_watching;
static atomic_long ending;
/* Of the last walk that found the thread ending. */
static Codes last_ending;
static Codes at_thread_end;

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  Codes codes = codes_at(context);
  if (codes.kind != ASGST_THREAD_EXIT) return;
  last_ending = codes;
  atomic_fetch_add(&ending, 1);
}

static void stop_timer(void) {
  if (atomic_exchange(&has_timer, 0)) timer_delete(timer);
}

static void JNICALL on_thread_end(jvmtiEnv *jvmti, JNIEnv *env, jthread thread) {
  (void)jvmti;
  (void)env;
  (void)thread;
  if (!atomic_load(&is_watching)) return;
  at_thread_end = codes_at(NULL);
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
  atomic_store(&has_timer, 1);
  struct itimerspec every = {{0, 50000}, {0, 20000}};
  timer_settime(timer, 0, &every, NULL);
}

JNIEXPORT void JNICALL Java_StackStates_watchEnds(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  jvmtiEnv *jvmti;
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2)) return;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  jvmtiEventCallbacks callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.ThreadEnd = on_thread_end;
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  atomic_store(&is_watching, 1);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_THREAD_END, NULL);
}

/* Called after a thread was joined: returns how many walks have found an ending thread. */
JNIEXPORT jlong JNICALL Java_StackStates_ending(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  stop_timer();
  return ending;
}

JNIEXPORT void JNICALL Java_StackStates_printEnds(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  atomic_store(&is_watching, 0);
  print("thread end", at_thread_end);
  print("ending", last_ending);
}

/* ---- A daemon in native code when the VM has ended ---- */

static sem_t inside, asked, answered;
static Codes after_vm;

JNIEXPORT void JNICALL Java_StackStates_stay(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_post(&inside);
  sem_wait(&asked);
  after_vm = codes_at(NULL);
  sem_post(&answered);
  for (;;) pause();
}

JNIEXPORT void JNICALL Java_StackStates_awaitInside(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_wait(&inside);
}

/* Runs in exit(3), after the VM has marked all threads in native code as ended. */
static void after_the_vm(void) {
  sem_post(&asked);
  sem_wait(&answered);
  print("after the VM", after_vm);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *the_vm, void *reserved) {
  (void)reserved;
  vm = the_vm;
  sem_init(&inside, 0, 0);
  sem_init(&asked, 0, 0);
  sem_init(&answered, 0, 0);
  atexit(after_the_vm);
  return JNI_VERSION_1_8;
}
