/*
 * Forces codes of the shape of AsyncGetCallTrace, and kinds of AsyncGetStackTrace, by signals while Java code runs: each
 * signal walks once as it came and once with one of the wrong contexts. An agent, and the library of StackCodes.java.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include <jvmti.h>
#include <profile.h>
#include <tickwalk_calltrace.h>

enum { DEPTH = 256, CODES = 16, KINDS = 8 };

/* Of the iterator generation, whose header declares types of the same names. */
int ASGST_RunWithIterator(void *context, int32_t options, void (*fun)(void *, void *), void *argument);

typedef enum { NOWHERE, INTERPRETER, DEOPTIMISATION, TOO_MANY, WAYS } Way;
static const char *const NAMES[WAYS] = {"nowhere", "interpreter", "deoptimisation", "too many"};

/* Walks by way and code, by how much it is below 0; those with frames come in the place of code 1, 0. */
static atomic_long codes[WAYS][CODES];
static atomic_long with_frames[WAYS];
static atomic_long kinds[KINDS];
static atomic_long signals;
static void *interpreter, *deoptimisation;

static int ticks(void *context) {
  TICKWALK_CallFrame frames[DEPTH];
  TICKWALK_CallTrace trace = {(JNIEnv *)16, 12345, frames};
  TickwalkAsyncGetCallTrace(&trace, DEPTH, context);
  return trace.num_frames;
}

/* Walks inside of walks, until one is refused. */
static void nest(void *iterator, void *innermost) {
  (void)iterator;
  if (ASGST_RunWithIterator(NULL, 0, nest, innermost) <= 0) *(int *)innermost = ticks(NULL);
}

static void set(ucontext_t *context, void *pc, int has_frame) {
#ifdef __x86_64__
  context->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
  if (!has_frame) context->uc_mcontext.gregs[REG_RBP] = 0;
#else
  context->uc_mcontext.pc = (uintptr_t)pc;
  if (!has_frame) context->uc_mcontext.regs[29] = 0;
#endif
}

static void on_tick(int signal, siginfo_t *info, void *interrupted) {
  (void)signal;
  (void)info;
  ASGST_CallFrame frames[DEPTH];
  ASGST_CallTrace trace = {12345, 99, frames, NULL};
  AsyncGetStackTrace(&trace, DEPTH, interrupted, 0);
  if (trace.num_frames <= 0) return;
  if (trace.kind < KINDS) atomic_fetch_add(&kinds[trace.kind], 1);
  Way way = (Way)(atomic_fetch_add(&signals, 1) % WAYS);
  ucontext_t context = *(ucontext_t *)interrupted;
  int code = 1;
  switch (way) {
    case NOWHERE: set(&context, (void *)16, 0); break;
    case INTERPRETER: set(&context, interpreter, 0); break;
    case DEOPTIMISATION: set(&context, deoptimisation, 1); break;
    default: break;
  }
  if (way == TOO_MANY) nest(NULL, &code);
  else code = ticks(&context);
  if (code > 0) atomic_fetch_add(&with_frames[way], 1);
  else if (code > -CODES) atomic_fetch_add(&codes[way][-code], 1);
}

/* ---- A thread that the VM does not know, while a collector stops the program ---- */

static atomic_long collected;
static atomic_int is_over;

static void *walk_beside_collections(void *argument) {
  (void)argument;
  while (!is_over) {
    ASGST_CallFrame frames[DEPTH];
    ASGST_CallTrace trace = {12345, 99, frames, NULL};
    ucontext_t context;
    getcontext(&context);
    AsyncGetStackTrace(&trace, DEPTH, &context, ASGST_INCLUDE_C_FRAMES | ASGST_INCLUDE_NON_JAVA_THREADS);
    if (trace.num_frames > 0 && trace.kind == ASGST_GC_TRACE) atomic_fetch_add(&collected, 1);
  }
  return NULL;
}

static pthread_t beside;

JNIEXPORT void JNICALL Java_StackCodes_begin(JNIEnv *env, jclass class) {
  (void)env, (void)class;
  pthread_create(&beside, NULL, walk_beside_collections, NULL);
}

JNIEXPORT jlong JNICALL Java_StackCodes_collected(JNIEnv *env, jclass class) {
  (void)env, (void)class;
  return collected;
}

JNIEXPORT jlong JNICALL Java_StackCodes_walks(JNIEnv *env, jclass class) {
  (void)env, (void)class;
  return signals;
}

JNIEXPORT jlong JNICALL Java_StackCodes_deoptimised(JNIEnv *env, jclass class) {
  (void)env, (void)class;
  return kinds[ASGST_DEOPT_TRACE];
}

JNIEXPORT void JNICALL Java_StackCodes_end(JNIEnv *env, jclass class) {
  (void)env, (void)class;
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  is_over = 1;
  pthread_join(beside, NULL);
  for (int way = 0; way < WAYS; way++) {
    printf("== %s\n", NAMES[way]);
    for (int code = 0; code < CODES; code++) {
      if (codes[way][code]) printf("%d\n", -code);
    }
  }
  fflush(stdout);
}

/* ---- The VM's code ---- */

static void JNICALL on_code(jvmtiEnv *jvmti, const char *name, const void *address, jint length) {
  (void)jvmti;
  if (!strcmp(name, "Interpreter")) interpreter = (char *)address + length / 2;
  if (!strcmp(name, "DeoptimizationBlob")) deoptimisation = (char *)address + 1;
}

JNIEXPORT void JNICALL Java_StackCodes_start(JNIEnv *env, jclass class) {
  (void)class;
  JavaVM *vm;
  jvmtiEnv *jvmti;
  (*env)->GetJavaVM(env, &vm);
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2)) return;
  jvmtiEventCallbacks callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.DynamicCodeGenerated = on_code;
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_DYNAMIC_CODE_GENERATED, NULL);
  (*jvmti)->GenerateEvents(jvmti, JVMTI_EVENT_DYNAMIC_CODE_GENERATED);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &every, NULL);
}
