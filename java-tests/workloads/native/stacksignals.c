/* Walks of the stack-walk API inside nested handlers, on alternate stacks, in virtual threads, and beside JVMTI's GetStackTrace.
 * Used by StackSignals.java. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include <jvmti.h>
#include <profile2.h>

#define KEPT __attribute__((noinline, noclone, visibility("default")))

enum { TEXT = 1 << 16, DEPTH = 2048, ALTERNATE = 64 << 10 };

typedef struct {
  char text[TEXT];
  size_t length;
  int inner_signal; /* raised after the first frame, 0 for none */
  int frames, code;
} Output;

static Output outer, inner;
static int outer_options, inner_options;

static void add(Output *output, const char *line) {
  size_t length = strlen(line);
  if (output->length + length + 2 > TEXT) return;
  memcpy(output->text + output->length, line, length);
  output->length += length;
  output->text[output->length++] = '\n';
}

static void add_frame(Output *output, const ASGST_Frame *frame) {
  static const char *const types[] = {"reset", "java", "inlined", "native", "other"};
  char line[420], method[200] = "?", class[200] = "";
  Dl_info symbol;
  if (frame->type == ASGST_FRAME_NON_JAVA) {
    if (dladdr(frame->pc, &symbol) && symbol.dli_sname) snprintf(method, sizeof method, "%s", symbol.dli_sname);
    snprintf(line, sizeof line, "other %s", method);
  } else {
    ASGST_MethodInfo info = {0};
    info.method_name = method;
    info.method_name_length = sizeof method;
    ASGST_GetMethodInfo(frame->method, &info);
    ASGST_ClassInfo class_info = {0};
    class_info.class_name = class;
    class_info.class_name_length = sizeof class;
    ASGST_GetClassInfo(info.klass, &class_info);
    snprintf(line, sizeof line, "%s %s.%s", types[frame->type <= 4 ? frame->type : 0], class, method);
  }
  add(output, line);
}

static void all_frames(ASGST_Iterator *iterator, void *argument) {
  Output *output = argument;
  ASGST_Frame frame;
  while ((output->code = ASGST_NextFrame(iterator, &frame)) == 1) {
    add_frame(output, &frame);
    if (output->frames++ == 0 && output->inner_signal) raise(output->inner_signal);
  }
}

static void end(Output *output, int kind) {
  char line[60];
  snprintf(line, sizeof line, "kind %d %d", kind, output->code);
  add(output, line);
}

KEPT void on_outer(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  end(&outer, ASGST_RunWithIterator(context, outer_options, all_frames, &outer));
}

KEPT void on_inner(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  end(&inner, ASGST_RunWithIterator(context, inner_options, all_frames, &inner));
}

static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
  sigaction(number, &action, NULL);
}

static jstring both(JNIEnv *env) {
  static char text[2 * TEXT + 20];
  snprintf(text, sizeof text, "%sinner\n%s", outer.text, inner.text);
  return (*env)->NewStringUTF(env, text);
}

static void reset(int first_options, int second_options) {
  memset(&outer, 0, sizeof outer);
  memset(&inner, 0, sizeof inner);
  outer_options = first_options;
  inner_options = second_options;
}

/* A walk in a handler, and a walk in a handler that interrupts it. */
JNIEXPORT jstring JNICALL Java_StackSignals_nested(JNIEnv *env, jclass class, jint options) {
  (void)class;
  reset(options, options);
  outer.inner_signal = SIGRTMIN + 6;
  install(SIGRTMIN + 5, on_outer, 0);
  install(SIGRTMIN + 6, on_inner, 0);
  raise(SIGRTMIN + 5);
  return both(env);
}

static void use_alternate_stack(void) {
  stack_t stack = {malloc(ALTERNATE), 0, ALTERNATE};
  sigaltstack(&stack, NULL);
}

JNIEXPORT jstring JNICALL Java_StackSignals_alternate(JNIEnv *env, jclass class, jint options) {
  (void)class;
  reset(options, options);
  outer.inner_signal = SIGRTMIN + 6;
  use_alternate_stack();
  install(SIGRTMIN + 5, on_outer, SA_ONSTACK);
  install(SIGRTMIN + 6, on_inner, SA_ONSTACK);
  raise(SIGRTMIN + 5);
  return both(env);
}

JNIEXPORT jstring JNICALL Java_StackSignals_walk(JNIEnv *env, jclass class) {
  (void)class;
  reset(0, 0);
  end(&outer, ASGST_RunWithIterator(NULL, 0, all_frames, &outer));
  return (*env)->NewStringUTF(env, outer.text);
}

/* ---- A timer whose handler runs on the alternate stack of the main thread ---- */

static atomic_long samples, elsewhere, failed, cut;

static void count(ASGST_Iterator *iterator, void *argument) {
  ASGST_Frame frame;
  int code;
  (void)argument;
  while ((code = ASGST_NextFrame(iterator, &frame)) == 1) {}
  if (code < 0) cut++;
}

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  unsigned long sp = (unsigned long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
  unsigned long here = (unsigned long)&sp, distance = here > sp ? here - sp : sp - here;
  int kind = ASGST_RunWithIterator(context, 0, count, NULL);
  /* Threads of the VM have neither an alternate stack nor Java frames. */
  if (kind == ASGST_NO_TOP_JAVA_FRAME || kind == ASGST_NO_FRAME) return;
  samples++;
  if (distance > 1 << 20) elsewhere++;
  if (kind != ASGST_JAVA_TRACE) failed++;
}

JNIEXPORT void JNICALL Java_StackSignals_startTimer(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  install(SIGPROF, on_tick, SA_ONSTACK);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &every, NULL);
}

/* Samples with Java frames that were taken on the alternate stack so far. */
JNIEXPORT jlong JNICALL Java_StackSignals_samples(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  return elsewhere;
}

JNIEXPORT jstring JNICALL Java_StackSignals_stopTimer(JNIEnv *env, jclass class) {
  (void)class;
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  char line[100];
  snprintf(line, sizeof line, "failed %ld cut %ld", failed, cut);
  return (*env)->NewStringUTF(env, line);
}

/* ---- Beside JVMTI ---- */

static long compared, different;

typedef struct {
  jvmtiFrameInfo frames[DEPTH];
  jint count;
} Theirs;

static void compare(ASGST_Iterator *iterator, void *argument) {
  Theirs *theirs = argument;
  ASGST_Frame frame;
  int index = 0;
  while (ASGST_NextFrame(iterator, &frame) == 1) {
    compared++;
    if (index >= theirs->count || ASGST_MethodToJMethodID(frame.method) != theirs->frames[index].method ||
        frame.bci != theirs->frames[index].location)
      different++;
    index++;
  }
  if (index != theirs->count) different++;
}

JNIEXPORT void JNICALL Java_StackSignals_compare(JNIEnv *env, jclass class) {
  (void)class;
  static Theirs theirs;
  static jvmtiEnv *jvmti;
  JavaVM *vm;
  if (!jvmti && ((*env)->GetJavaVM(env, &vm) || (*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2))) return;
  (*jvmti)->GetStackTrace(jvmti, NULL, 0, DEPTH, theirs.frames, &theirs.count);
  ASGST_RunWithIterator(NULL, 0, compare, &theirs);
}

JNIEXPORT jstring JNICALL Java_StackSignals_compared(JNIEnv *env, jclass class) {
  (void)class;
  char line[100];
  snprintf(line, sizeof line, "compared %ld different %ld", compared, different);
  return (*env)->NewStringUTF(env, line);
}
