/*
 * Forces codes of the shape of AsyncGetCallTrace, and kinds of AsyncGetStackTrace, by signals while Java code runs: each
 * signal walks once as it came and once with one of the wrong contexts. An agent, and the library of StackCodes.java.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
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

enum { DEPTH = 256, CODES = 16 };

/* Of the iterator generation, whose header declares types of the same names. */
int ASGST_RunWithIterator(void *context, int32_t options, void (*fun)(void *, void *), void *argument);

typedef enum { NOWHERE, INTERPRETER, DEOPTIMISATION, TOO_MANY, WAYS } Way;
static const char *const NAMES[WAYS] = {"nowhere", "interpreter", "deoptimisation", "too many"};

/* Walks by way and code, by how much it is below 0; those with frames come in the place of code 1, 0. */
static atomic_long codes[WAYS][CODES];
static atomic_long with_frames[WAYS];
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

/* ---- States that last for some instructions of the VM: set by hand for one walk ---- */

static uint64_t table_number(const char *symbol) { return *(uint64_t *)dlsym(RTLD_DEFAULT, symbol); }

/* Returns the offset of a field from the table of fields that libjvm exports; ends the process if it is not there. */
static uint64_t offset_of(const char *type, const char *field) {
  const char *row = *(const char **)dlsym(RTLD_DEFAULT, "gHotSpotVMStructs");
  uint64_t at_type = table_number("gHotSpotVMStructEntryTypeNameOffset");
  uint64_t at_field = table_number("gHotSpotVMStructEntryFieldNameOffset");
  uint64_t at_offset = table_number("gHotSpotVMStructEntryOffsetOffset");
  for (; *(char **)(row + at_type); row += table_number("gHotSpotVMStructEntryArrayStride")) {
    if (strcmp(*(char **)(row + at_type), type) || strcmp(*(char **)(row + at_field), field)) continue;
    return *(uint64_t *)(row + at_offset);
  }
  fprintf(stderr, "%s has no field %s\n", type, field);
  exit(1);
}

/* Returns the JavaThread of the calling thread. */
static char *java_thread(JNIEnv *env) {
  jclass class = (*env)->FindClass(env, "java/lang/Thread");
  jmethodID current = (*env)->GetStaticMethodID(env, class, "currentThread", "()Ljava/lang/Thread;");
  jobject thread = (*env)->CallStaticObjectMethod(env, class, current);
  return (char *)(*env)->GetLongField(env, thread, (*env)->GetFieldID(env, class, "eetop", "J"));
}

JNIEXPORT void JNICALL Java_StackCodes_states(JNIEnv *env, jclass class) {
  (void)class;
  char *thread = java_thread(env);
  char *anchor = thread + offset_of("JavaThread", "_anchor");
  void **sp = (void **)(anchor + offset_of("JavaFrameAnchor", "_last_Java_sp"));
  void **pc = (void **)(anchor + offset_of("JavaFrameAnchor", "_last_Java_pc"));
  void **replacing = (void **)(thread + offset_of("JavaThread", "_vframe_array_head"));

  /* The record of a frame that is being replaced; sp and pc are two of its first words. */
  uint64_t record[8] = {16, 16, 16, 16, 16, 16, 16, 16};
  ASGST_CallFrame frames[DEPTH];
  ASGST_CallTrace trace = {12345, 99, frames, NULL};
  void *kept = *replacing;
  *replacing = record;
  AsyncGetStackTrace(&trace, DEPTH, NULL, 0);
  *replacing = kept;
  printf("== replaced frame\nkind %d frames %d\n", trace.kind, trace.num_frames);

  /* An anchor whose frame is none. */
  uint64_t no_frame[4] = {16, 16, 16, 16};
  void *kept_sp = *sp, *kept_pc = *pc;
  *sp = &no_frame[1];
  *pc = (void *)16;
  int code = ticks(NULL);
  AsyncGetStackTrace(&trace, DEPTH, NULL, 0);
  *sp = kept_sp;
  *pc = kept_pc;
  printf("== no frame at the anchor\n%d\nkind %d frames %d\n", code, trace.kind, trace.num_frames);
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
