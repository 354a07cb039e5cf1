/* A client of the iterator stack-walk API: walks of the calling thread from JNI, from a thread that the VM does not know,
 * with wrong registers, and in the handler of a timer beside AsyncGetCallTrace. Used by StackApi.java, and as an agent
 * (-agentpath:libstackapi.so, after libtickwalk.so) whose only purpose is to request the jmethodIDs of all classes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <jvmti.h>
#include <profile2.h>
#include <tickwalk_calltrace.h>

/* A frame of its own, with a name for dladdr. */
#define KEPT __attribute__((noinline, noclone, visibility("default")))

enum { TEXT = 1 << 16, DEPTH = 1024 };

/* ---- Frames as text: "TYPE NAME LEVEL BCI" ---- */

typedef struct {
  char *text;
  size_t length;
  int frames;
  int code;
} Output;

static void add(Output *output, const char *format, const char *a, const char *b, int c, int d) {
  int written = snprintf(output->text + output->length, TEXT - output->length, format, a, b, c, d);
  if (written > 0 && output->length + (size_t)written < TEXT) output->length += (size_t)written;
}

static void add_frame(Output *output, const ASGST_Frame *frame) {
  static const char *const types[] = {"reset", "java", "inlined", "native", "other"};
  const char *type = types[frame->type <= 4 ? frame->type : 0];
  if (frame->type == ASGST_FRAME_NON_JAVA) {
    Dl_info info;
    const char *name = dladdr(frame->pc, &info) && info.dli_sname ? info.dli_sname : "?";
    add(output, "%s %s %d %d\n", type, name, frame->comp_level, frame->bci);
    return;
  }
  char method[200], class[200], name[401];
  ASGST_MethodInfo method_info = {0};
  method_info.method_name = method;
  method_info.method_name_length = sizeof method;
  ASGST_GetMethodInfo(frame->method, &method_info);
  ASGST_ClassInfo class_info = {0};
  class_info.class_name = class;
  class_info.class_name_length = sizeof class;
  ASGST_GetClassInfo(method_info.klass, &class_info);
  snprintf(name, sizeof name, "%s.%s", class, method);
  add(output, "%s %s %d %d\n", type, name, frame->comp_level, frame->bci);
}

static void all_frames(ASGST_Iterator *iterator, void *argument) {
  Output *output = argument;
  ASGST_Frame frame;
  while ((output->code = ASGST_NextFrame(iterator, &frame)) == 1) {
    output->frames++;
    add_frame(output, &frame);
  }
}

/* Walks from here; with a context that getcontext has filled, or without one. */
KEPT int walk_here(Output *output, int options, int with_context) {
  ucontext_t context;
  if (with_context) getcontext(&context);
  int kind = ASGST_RunWithIterator(with_context ? &context : NULL, options, all_frames, output);
  add(output, "kind %s%s%d %d\n", "", "", kind, output->code);
  return kind;
}

static jstring as_string(JNIEnv *env, Output *output) {
  jstring result = (*env)->NewStringUTF(env, output->text);
  free(output->text);
  return result;
}

JNIEXPORT jstring JNICALL Java_StackApi_walk(JNIEnv *env, jclass class, jint options, jboolean with_context) {
  (void)class;
  Output output = {calloc(1, TEXT), 0, 0, 0};
  walk_here(&output, options, with_context);
  return as_string(env, &output);
}

KEPT jobject call_java(JNIEnv *env, jclass class, jint options, jboolean with_context) {
  jmethodID inner = (*env)->GetStaticMethodID(env, class, "inner", "(IZ)Ljava/lang/String;");
  jobject result = (*env)->CallStaticObjectMethod(env, class, inner, options, with_context);
  __asm__ volatile("" ::: "memory");
  return result;
}

JNIEXPORT jstring JNICALL Java_StackApi_chain(JNIEnv *env, jclass class, jint options, jboolean with_context) {
  return call_java(env, class, options, with_context);
}

/* ---- A thread that the VM does not know ---- */

typedef struct {
  Output output;
  int options;
  int with_context;
} Job;

KEPT int thread_inner(Job *job) {
  int kind = walk_here(&job->output, job->options, job->with_context);
  __asm__ volatile("" ::: "memory");
  return kind;
}

KEPT void *thread_outer(void *argument) {
  thread_inner(argument);
  __asm__ volatile("" ::: "memory");
  return NULL;
}

JNIEXPORT jstring JNICALL Java_StackApi_thread(JNIEnv *env, jclass class, jint options, jboolean with_context) {
  (void)class;
  Job job = {{calloc(1, TEXT), 0, 0, 0}, options, with_context};
  pthread_t thread;
  pthread_create(&thread, NULL, thread_outer, &job);
  pthread_join(thread, NULL);
  add(&job.output, "thread_state %s%s%d %d\n", "", "", ASGST_ThreadState(), 0);
  return as_string(env, &job.output);
}

/* ---- Rules of the iterator ---- */

static void check_iterator(ASGST_Iterator *iterator, void *argument) {
  Output *output = argument;
  ASGST_Frame first[DEPTH], frame;
  int count = 0, again = 0, same = 1;
  add(output, "state_before %s%s%d %d\n", "", "", ASGST_State(iterator), 0);
  errno = 77;
  while (count < DEPTH && ASGST_NextFrame(iterator, &first[count]) == 1) count++;
  add(output, "errno %s%s%d %d\n", "", "", errno, 0);
  int code = ASGST_NextFrame(iterator, &frame);
  add(output, "after_end %s%s%d %d\n", "", "", code, ASGST_State(iterator));
  int is_reset = frame.type == 0 && !frame.method && !frame.pc && !frame.sp && !frame.fp && frame.bci == -1 &&
                 frame.comp_level == -1;
  add(output, "reset %s%s%d %d\n", "", "", is_reset, 0);
  ASGST_RewindIterator(iterator);
  while (ASGST_NextFrame(iterator, &frame) == 1 && again < count) {
    const ASGST_Frame *known = &first[again++];
    same &= known->pc == frame.pc && known->sp == frame.sp && known->fp == frame.fp && known->type == frame.type &&
            known->method == frame.method && known->bci == frame.bci && known->comp_level == frame.comp_level;
  }
  add(output, "rewound %s%s%d %d\n", "", "", same && again == count, count);
}

static void check_end_on_first(ASGST_Iterator *iterator, void *argument) {
  Output *output = argument;
  ASGST_Frame frame;
  int natives = 0, code;
  while ((code = ASGST_NextFrame(iterator, &frame)) == 1) natives++;
  int has_place = frame.pc && frame.sp && frame.fp && !frame.method && frame.type == ASGST_FRAME_JAVA;
  add(output, "end_on_first %s%s%d %d\n", "", "", code, natives);
  add(output, "place %s%s%d %d\n", "", "", has_place, ASGST_NextFrame(iterator, &frame));
}

typedef struct {
  Output *output;
  int frames;
} FromFrame;

static void count_frames(ASGST_Iterator *iterator, void *argument) {
  FromFrame *result = argument;
  ASGST_Frame frame;
  while (ASGST_NextFrame(iterator, &frame) == 1) result->frames++;
}

/* Starts again at each frame: the rest of the walk must be the same. */
static void check_from_frames(ASGST_Iterator *iterator, void *argument) {
  Output *output = argument;
  ASGST_Frame frames[DEPTH];
  int count = 0, wrong = 0;
  while (count < DEPTH && ASGST_NextFrame(iterator, &frames[count]) == 1) count++;
  for (int index = 0; index < count; index++) {
    FromFrame result = {output, 0};
    int kind = ASGST_RunWithIteratorFromFrame(frames[index].sp, frames[index].fp, frames[index].pc, 0, count_frames, &result);
    /* Inlined methods share a place: the walk begins with the innermost. */
    int first = index;
    while (first > 0 && frames[first - 1].sp == frames[index].sp) first--;
    if (kind != 1 || result.frames != count - first) wrong++;
  }
  add(output, "from_frames %s%s%d %d\n", "", "", wrong, count);
}

JNIEXPORT jstring JNICALL Java_StackApi_rules(JNIEnv *env, jclass class) {
  (void)class;
  Output output = {calloc(1, TEXT), 0, 0, 0};
  ASGST_RunWithIterator(NULL, 0, check_iterator, &output);
  ASGST_RunWithIterator(NULL, ASGST_END_ON_FIRST_JAVA_FRAME, check_end_on_first, &output);
  ASGST_RunWithIterator(NULL, 0, check_from_frames, &output);
  ASGST_Frame frame;
  ASGST_QueueElement element = {0};
  add(&output, "null %s%s%d %d\n", "", "", ASGST_NextFrame(NULL, &frame), ASGST_State(NULL));
  add(&output, "capabilities %s%s%d %d\n", "", "", ASGST_Capabilities(), ASGST_Enqueue(NULL, NULL, NULL));
  int has_element = ASGST_GetEnqueuableElement(NULL, &element);
  int is_whole = element.pc && element.sp && element.fp && !element.arg;
  add(&output, "element %s%s%d %d\n", "", "", has_element, is_whole);
  add(&output, "thread_state %s%s%d %d\n", "", "", ASGST_ThreadState(), 0);
  return as_string(env, &output);
}

/* ---- Methods and classes ---- */

JNIEXPORT jstring JNICALL Java_StackApi_describe(JNIEnv *env, jclass class, jobject method_object) {
  (void)class;
  Output output = {calloc(1, TEXT), 0, 0, 0};
  jmethodID id = (*env)->FromReflectedMethod(env, method_object);
  ASGST_Method method = ASGST_JMethodIDToMethod(id);
  add(&output, "found %s%s%d %d\n", "", "", method != NULL, ASGST_MethodToJMethodID(method) == id);
  char name[100], signature[100], small[5], class_name[100];
  ASGST_MethodInfo info = {0};
  info.method_name = name;
  info.method_name_length = sizeof name;
  info.signature = signature;
  info.signature_length = sizeof signature;
  info.generic_signature_length = 12345;
  ASGST_GetMethodInfo(method, &info);
  add(&output, "name %s %s %d %d\n", name, signature, info.method_name_length, info.signature_length);
  add(&output, "modifiers %s%s%d %d\n", "", "", info.modifiers, info.generic_signature_length);
  add(&output, "idnum %s%s%d %d\n", "", "", info.idnum == ASGST_GetMethodIdNum(method),
      info.class_idnum != 0 && info.class_idnum == ASGST_GetClassIdNum(info.klass));
  ASGST_ClassInfo class_info = {0};
  class_info.class_name = class_name;
  class_info.class_name_length = sizeof class_name;
  ASGST_GetClassInfo(ASGST_GetClass(method), &class_info);
  add(&output, "class %s %s%d %d\n", class_name, "", class_info.class_name_length, class_info.generic_class_name_length);
  info.method_name = small;
  info.method_name_length = sizeof small;
  ASGST_GetMethodInfo(method, &info);
  add(&output, "cut %s %s%d %d\n", small, "", info.method_name_length, 0);
  ASGST_MethodLineNumberEntry entries[100];
  int count = ASGST_GetMethodLineNumberTable(method, entries, 100);
  int line = count > 0 ? entries[0].line_number : -1;
  add(&output, "lines %s%s%d %d\n", "", "", count, line);
  add(&output, "line %s%s%d %d\n", "", "", ASGST_GetMethodLineNumber(method, 0), ASGST_GetMethodLineNumber(method, 0) == line);
  return as_string(env, &output);
}

/* The address of a method, to be described after its class was unloaded. */
JNIEXPORT jlong JNICALL Java_StackApi_address(JNIEnv *env, jclass class, jobject method) {
  (void)class;
  return (jlong)ASGST_JMethodIDToMethod((*env)->FromReflectedMethod(env, method));
}

JNIEXPORT jstring JNICALL Java_StackApi_name(JNIEnv *env, jclass class, jlong address) {
  (void)class;
  Output output = {calloc(1, TEXT), 0, 0, 0};
  char name[100] = "?";
  ASGST_MethodInfo info = {0};
  info.method_name = name;
  info.method_name_length = sizeof name;
  ASGST_GetMethodInfo((ASGST_Method)address, &info);
  add(&output, "[%s] %s%d %d", name, "", info.method_name_length, info.klass != NULL);
  return as_string(env, &output);
}

/* ---- Wrong registers ---- */

typedef struct {
  long walks;
  long frames;
  long with_frames;
} Fuzz;

static void fuzz_frames(ASGST_Iterator *iterator, void *argument) {
  Fuzz *fuzz = argument;
  ASGST_Frame frame;
  while (ASGST_NextFrame(iterator, &frame) == 1) fuzz->frames++;
}

static void fuzz_walk(Fuzz *fuzz, ucontext_t *context, int options) {
  fuzz->walks++;
  int kind = ASGST_RunWithIterator(context, options, fuzz_frames, fuzz);
  if (kind > 0) fuzz->with_frames++;
  if (kind == 0 && (options & ASGST_INCLUDE_NON_JAVA_FRAMES)) abort();
}

static unsigned long next_random(unsigned long *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

KEPT void fuzz_from(Fuzz *fuzz, const ucontext_t *true_context, long count, unsigned long seed) {
  greg_t sp = true_context->uc_mcontext.gregs[REG_RSP], fp = true_context->uc_mcontext.gregs[REG_RBP];
  for (long i = 0; i < 100; i++) {
    for (long j = 0; j < 100; j++) {
      ucontext_t context = *true_context;
      context.uc_mcontext.gregs[REG_RSP] = sp + i * 8 - 200;
      context.uc_mcontext.gregs[REG_RBP] = fp + j * 8 - 200;
      fuzz_walk(fuzz, &context, (int)(j & 1));
    }
  }
  unsigned long state = seed * 2 + 1;
  for (long i = 0; i < count; i++) {
    ucontext_t context = *true_context;
    greg_t *registers = context.uc_mcontext.gregs;
    unsigned long choice = next_random(&state);
    registers[REG_RSP] = sp + (greg_t)(next_random(&state) % 2000000) - 1000000;
    registers[REG_RBP] = fp + (greg_t)(next_random(&state) % 2000000) - 1000000;
    if (choice & 1) registers[REG_RSP] = sp + (greg_t)(next_random(&state) % 4096) * 8;
    if (choice & 2) registers[REG_RIP] += (greg_t)(next_random(&state) % 100000);
    if (choice & 4) registers[REG_RIP] = (greg_t)next_random(&state);
    if ((choice & 56) == 56) registers[REG_RSP] = (greg_t)next_random(&state);
    if (choice & 64) registers[REG_R13] = sp + (greg_t)(next_random(&state) % 65536);
    if (choice & 128) registers[REG_RBX] = (greg_t)next_random(&state);
    fuzz_walk(fuzz, &context, (int)(choice >> 8 & 1));
  }
}

JNIEXPORT jstring JNICALL Java_StackApi_fuzz(JNIEnv *env, jclass class, jlong count, jlong seed) {
  (void)class;
  Output output = {calloc(1, TEXT), 0, 0, 0};
  Fuzz fuzz = {0, 0, 0};
  ucontext_t context;
  getcontext(&context);
  fuzz_from(&fuzz, &context, count, (unsigned long)seed);
  add(&output, "walks %s%s%d %d\n", "", "", (int)fuzz.walks, (int)fuzz.with_frames);
  return as_string(env, &output);
}

/* ---- A timer whose handler compares with AsyncGetCallTrace ---- */

enum { CODES = 64, PAINT = 24 << 10 };

typedef void (*GetCallTrace)(TICKWALK_CallTrace *, jint, void *);

static GetCallTrace theirs;
static atomic_long total, both, identical, same_below_top, longer, shorter, theirs_cut, different;
/* Bytes of stack of walks that begin in native code or stubs, and in a Java frame. */
static atomic_long deepest_stack, deepest_in_java;
static atomic_long their_codes[CODES], our_codes[CODES], walk_codes[CODES], end_codes[CODES];
static atomic_long fuzzing;

/* Cycles and frames of the samples for which both have a trace. */
enum { TIMES = 1 << 16, DEEP = 100 };
static atomic_long timed;
static struct {
  unsigned iterator, agct, trace, frames, cold;
} times[TIMES];
static int paints;
/* Of libtripwire.so, if it is preloaded. */
static void (*arm_tripwire)(int);
static long (*tripwire_calls)(void);

static void arm(int on) {
  if (arm_tripwire) arm_tripwire(on);
}

static void count_code(atomic_long *codes, int code) {
  atomic_fetch_add_explicit(&codes[code > 0 ? 0 : -code < CODES - 1 ? 1 - code : CODES - 1], 1, memory_order_relaxed);
}

static void bump(atomic_long *counter, long by) { atomic_fetch_add_explicit(counter, by, memory_order_relaxed); }

/* Fills the stack below a frame whose stack pointer is `sp` with a pattern. */
static inline __attribute__((always_inline)) void paint(unsigned long sp) {
  for (volatile char *at = (volatile char *)(sp - PAINT); at < (volatile char *)sp - 64; at++) *at = 0x5a;
}

/* Returns how many bytes below that stack pointer were overwritten. */
static inline __attribute__((always_inline)) long painted(unsigned long sp) {
  volatile char *at = (volatile char *)(sp - PAINT);
  while (at < (volatile char *)sp && *at == 0x5a) at++;
  return (long)(sp - (unsigned long)at);
}

/* Places of code that walks have met, as hashes of pc and method; a walk that meets a new one is cold. */
enum { PLACES = 1 << 20, PROBES = 8 };
static atomic_ulong places[PLACES];

/* Returns whether the place is new, and notes it. */
static int is_new_place(unsigned long pc, unsigned long method) {
  unsigned long key = ((pc ^ method << 17) * 0x9e3779b97f4a7c15ul) | 1;
  for (unsigned long probe = 0; probe < PROBES; probe++) {
    atomic_ulong *place = &places[((key >> 40) + probe) % PLACES];
    unsigned long known = atomic_load_explicit(place, memory_order_relaxed);
    if (known == key) return 0;
    if (known == 0 && atomic_compare_exchange_strong(place, &known, key)) return 1;
    if (known == key) return 0;
  }
  return 1;
}

/* Counts the frames at places that no walk has met before; not timed. */
static void count_new(ASGST_Iterator *iterator, void *argument) {
  ASGST_Frame frame;
  while (ASGST_NextFrame(iterator, &frame) == 1) {
    *(unsigned *)argument += (unsigned)is_new_place((unsigned long)frame.pc, (unsigned long)frame.method);
  }
}

typedef struct {
  int frames;
  int first_physical;
  int code;
  void *first_pc, *last_pc;
} Walked;

static void walk_all(ASGST_Iterator *iterator, void *argument) {
  Walked *walked = argument;
  ASGST_Frame frame;
  while ((walked->code = ASGST_NextFrame(iterator, &frame)) == 1) {
    if (walked->frames++ == 0) walked->first_pc = frame.pc;
    walked->last_pc = frame.pc;
    if (!walked->first_physical && frame.type != ASGST_FRAME_JAVA_INLINED) walked->first_physical = walked->frames;
  }
}

static int same(const TICKWALK_CallFrame *x, const TICKWALK_CallFrame *y) {
  return x->method_id == y->method_id && x->lineno == y->lineno;
}

/* Whether all of theirs below the newest physical frame are frames of ours in the same order, and ours has more behind. */
static int is_cut(const TICKWALK_CallTrace *ours, const TICKWALK_CallTrace *agct, int first_physical) {
  int longest = ours->num_frames - agct->num_frames;
  for (int shift = -16; shift < longest && shift <= 16; shift++) {
    int at = agct->num_frames - 1;
    while (at >= 0 && at + shift >= 0 && same(&ours->frames[at + shift], &agct->frames[at])) at--;
    if (at + shift < first_physical && at < agct->num_frames - 1) return 1;
  }
  return 0;
}

/* The first traces that differ below the interrupted frame, for the report. */
enum { KEPT_CASES = 256, KEPT_FRAMES = 64 };
typedef struct {
  int frames;
  TICKWALK_CallFrame newest[KEPT_FRAMES];
} KeptTrace;
static KeptTrace kept_cases[KEPT_CASES][2];
static atomic_long kept;

static void keep(KeptTrace *into, const TICKWALK_CallTrace *trace) {
  into->frames = trace->num_frames < KEPT_FRAMES ? trace->num_frames : KEPT_FRAMES;
  memcpy(into->newest, trace->frames, (size_t)into->frames * sizeof *into->newest);
}

static void keep_case(const TICKWALK_CallTrace *ours, const TICKWALK_CallTrace *agct) {
  long index = atomic_fetch_add(&kept, 1);
  if (index >= KEPT_CASES) return;
  keep(&kept_cases[index][0], ours);
  keep(&kept_cases[index][1], agct);
}

static void compare(const TICKWALK_CallTrace *ours, const TICKWALK_CallTrace *agct, int first_physical) {
  int a = ours->num_frames, b = agct->num_frames;
  bump(&both, 1);
  while (a > 0 && b > 0 && same(&ours->frames[a - 1], &agct->frames[b - 1])) {
    a--;
    b--;
  }
  if (a == 0 && b == 0) {
    bump(&identical, 1);
  } else if (a <= first_physical && b <= 16 && b > 0 && a > 0) {
    bump(&same_below_top, 1);
  } else {
    bump(b == 0 ? &longer : a == 0 ? &shorter : is_cut(ours, agct, first_physical) ? &theirs_cut : &different, 1);
    keep_case(ours, agct);
  }
}

/* Of the running thread, between its ThreadStart and its ThreadEnd. GetEnv must not be called in a handler: in a thread that has
 * not used the VM's thread-local data yet, the dynamic linker allocates it, and the handler may have interrupted malloc. */
static __thread JNIEnv *own_env __attribute__((tls_model("initial-exec")));

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  JNIEnv *env = own_env;
  int saved = errno;
  bump(&total, 1);
  TICKWALK_CallFrame our_buffer[DEPTH], their_buffer[DEPTH];
  TICKWALK_CallTrace ours = {env, 0, our_buffer}, agct = {env, 0, their_buffer};
  Walked walked = {0, 0, 0, NULL, NULL};
  unsigned long sp, walk_time = 0, their_time = 0;
  int kind = 0;
  __asm__ volatile("mov %%rsp, %0" : "=r"(sp));
  /* Painting replaces what the caches hold, so it is not done where cycles count. */
  if (paints) paint(sp);
  /* The second call finds the lines of the first in the caches, so each is second in half of the samples. */
  int ours_first = paints || (atomic_load_explicit(&total, memory_order_relaxed) & 1);
  for (int call = 0; call < 2; call++) {
    unsigned long before = __rdtsc();
    if (ours_first == (call == 0)) {
      arm(1);
      kind = ASGST_RunWithIterator(context, 0, walk_all, &walked);
      arm(0);
      walk_time = __rdtsc() - before;
      if (paints) {
        greg_t pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
        atomic_long *deepest = walked.first_pc == (void *)pc ? &deepest_in_java : &deepest_stack;
        long used = painted(sp), known = atomic_load(deepest);
        while (used > known && !atomic_compare_exchange_weak(deepest, &known, used)) {}
      }
    } else if (env) {
      theirs(&agct, DEPTH, context);
      their_time = __rdtsc() - before;
    }
  }
  unsigned long before = __rdtsc();
  /* Threads that the VM has for itself have no Java stack: 0 is the right answer. */
  if (env || kind != 0) count_code(walk_codes, kind);
  if (kind > 0) count_code(end_codes, walked.code);
  unsigned long trace_time = 0;
  if (env) {
    arm(1);
    TickwalkAsyncGetCallTrace(&ours, DEPTH, context);
    arm(0);
    trace_time = __rdtsc() - before;
    count_code(our_codes, ours.num_frames > 0 ? 1 : ours.num_frames);
    count_code(their_codes, agct.num_frames > 0 ? 1 : agct.num_frames);
  }
  if (ours.num_frames > 0 && agct.num_frames > 0) {
    compare(&ours, &agct, walked.first_physical);
    long index = atomic_fetch_add(&timed, 1);
    if (index < TIMES) {
      times[index].iterator = (unsigned)walk_time;
      times[index].agct = (unsigned)their_time;
      times[index].trace = (unsigned)trace_time;
      times[index].frames = (unsigned)walked.frames;
      unsigned cold = 0;
      ASGST_RunWithIterator(context, 0, count_new, &cold);
      times[index].cold = cold;
    }
  }
  if (atomic_load_explicit(&fuzzing, memory_order_relaxed)) {
    Fuzz fuzz = {0, 0, 0};
    unsigned long state = before | 1;
    arm(1);
    for (int i = 0; i < 20; i++) {
      ucontext_t wrong = *(ucontext_t *)context;
      wrong.uc_mcontext.gregs[REG_RSP] += (greg_t)(next_random(&state) % 2000000) - 1000000;
      wrong.uc_mcontext.gregs[REG_RBP] += (greg_t)(next_random(&state) % 2000000) - 1000000;
      ASGST_RunWithIterator(&wrong, i & 1, fuzz_frames, &fuzz);
    }
    arm(0);
  }
  errno = saved;
}

/* Walks only, of one thread, faster than the kernel's tick. */
static int walks_only;
static timer_t fast_timer;

/* The highest rate, until so many walks have found Java frames; 0 for another mode. Each handler arms the timer when its walk has
 * ended. A signal that finds the thread where the last one did shows that the program has not run between them: the gap grows.
 * Otherwise it shrinks. With a fixed period below the length of a walk the next signal would wait whenever a handler returns, and
 * the program would stand still. */
static long storm;
enum { MIN_GAP = 1000, MAX_GAP = 1000000 }; /* nanoseconds */
static long gap = MIN_GAP;
static atomic_long java_walks, standing;
/* CPU time of the thread, in nanoseconds, before the first signal: until then methods are compiled. */
static long warmup;

/* So many times the VM is made to deoptimise a compiled method that was on the thread's stack: a thread sets a breakpoint in it,
 * on which all its compiled code depends, and clears it. Then the program is ended. */
static long deoptimize;
static atomic_long deoptimized;
static _Atomic(jmethodID) chosen; /* null while none waits */
static sem_t chosen_waits;
static JavaVM *own_vm;

typedef struct {
  Walked walked;
  int pick; /* the compiled frame that is wanted, or the oldest one */
  int compiled;
  ASGST_Method picked;
} Picked;

/* The first walks that did not reach the end of their stack, for the report. */
enum { KEPT_FAILURES = 32, KEPT_WORDS = 12 };
static struct {
  int code, options;
  void *pc, *last_pc; /* interrupted, and of the oldest frame that was found */
  unsigned long sp, fp, stack[KEPT_WORDS];
} failures[KEPT_FAILURES];
static atomic_long failed;

static void keep_failure(void *context, int code, int options, const Walked *walked) {
  long index = atomic_fetch_add(&failed, 1);
  if (index >= KEPT_FAILURES) return;
  const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  failures[index].code = code;
  failures[index].options = options;
  failures[index].pc = (void *)registers[REG_RIP];
  failures[index].last_pc = walked->last_pc;
  failures[index].sp = (unsigned long)registers[REG_RSP];
  failures[index].fp = (unsigned long)registers[REG_RBP];
  memcpy(failures[index].stack, (void *)registers[REG_RSP], sizeof failures[index].stack);
}

static void walk_and_pick(ASGST_Iterator *iterator, void *argument) {
  Picked *picked = argument;
  ASGST_Frame frame;
  while ((picked->walked.code = ASGST_NextFrame(iterator, &frame)) == 1) {
    picked->walked.last_pc = frame.pc;
    if (frame.comp_level > 0 && frame.type <= ASGST_FRAME_JAVA_INLINED && picked->compiled++ <= picked->pick) {
      picked->picked = frame.method;
    }
  }
}

static void arm_fast_timer(long nanos, long period) {
  struct itimerspec when = {{0, period}, {nanos / 1000000000, nanos % 1000000000}};
  timer_settime(fast_timer, 0, &when, NULL);
}

static void walk_in_storm(void *context, int moved) {
  struct timespec cpu;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  long missing = warmup - (cpu.tv_sec * 1000000000 + cpu.tv_nsec);
  if (missing > 0) {
    arm_fast_timer(missing, 0);
    return;
  }
  static unsigned long random = 1;
  Picked picked = {{0, 0, 0, NULL, NULL}, (int)(next_random(&random) % 16), 0, NULL};
  int options = total & 1 ? ASGST_INCLUDE_NON_JAVA_FRAMES : 0;
  int kind = ASGST_RunWithIterator(context, options, walk_and_pick, &picked);
  count_code(walk_codes, kind);
  if (kind > 0) count_code(end_codes, picked.walked.code);
  int code = kind > 0 ? picked.walked.code : kind;
  if (code < 0) keep_failure(context, code, options, &picked.walked);
  bump(&total, 1);
  if (kind == ASGST_JAVA_TRACE) bump(&java_walks, 1);
  if (!moved) bump(&standing, 1);
  if (deoptimize && !chosen && picked.picked && (chosen = ASGST_MethodToJMethodID(picked.picked))) sem_post(&chosen_waits);
  gap = moved ? gap - gap / 16 : gap * 2;
  gap = gap < MIN_GAP ? MIN_GAP : gap > MAX_GAP ? MAX_GAP : gap;
  if (java_walks < storm || deoptimized < deoptimize) arm_fast_timer(gap, 0);
}

static void on_fast_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  static __thread greg_t last_pc __attribute__((tls_model("initial-exec")));
  static __thread greg_t last_sp __attribute__((tls_model("initial-exec")));
  const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  int moved = registers[REG_RIP] != last_pc || registers[REG_RSP] != last_sp;
  last_pc = registers[REG_RIP];
  last_sp = registers[REG_RSP];
  int saved = errno;
  if (storm) {
    walk_in_storm(context, moved);
  } else if (moved) { /* A thread that has not run since the last signal is no further sample. */
    Walked walked = {0, 0, 0, NULL, NULL};
    bump(&total, 1);
    int kind = ASGST_RunWithIterator(context, 0, walk_all, &walked);
    count_code(walk_codes, kind);
    if (kind > 0) count_code(end_codes, walked.code);
    int code = kind > 0 ? walked.code : kind;
    /* Without Java frames: -4, and -2 of threads that end. */
    if (code < 0 && code != -4 && code != -2) keep_failure(context, code, 0, &walked);
  }
  errno = saved;
}

/* Deoptimises the methods that handlers have chosen, and ends the program. */
static void *deoptimize_chosen(void *argument) {
  jvmtiEnv *jvmti = argument;
  JNIEnv *env;
  if ((*own_vm)->AttachCurrentThreadAsDaemon(own_vm, (void **)&env, NULL) != JNI_OK) abort();
  while (deoptimized < deoptimize || java_walks < storm) {
    while (sem_wait(&chosen_waits) != 0) {}
    if ((*jvmti)->SetBreakpoint(jvmti, chosen, 0) == JVMTI_ERROR_NONE &&
        (*jvmti)->ClearBreakpoint(jvmti, chosen, 0) == JVMTI_ERROR_NONE) {
      bump(&deoptimized, 1);
    }
    chosen = NULL;
  }
  jclass system = (*env)->FindClass(env, "java/lang/System");
  (*env)->CallStaticVoidMethod(env, system, (*env)->GetStaticMethodID(env, system, "exit", "(I)V"), 0);
  return NULL;
}

static void start_fast_timer(long micros) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fast_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  /* Elapsed time has a timer of its own; those of CPU time wait for the tick. */
  if (timer_create(CLOCK_MONOTONIC, &event, &fast_timer) != 0) return;
  arm_fast_timer(micros * 1000, storm ? 0 : micros * 1000);
}

static void start_timer(long micros) {
  *(void **)&theirs = dlsym(RTLD_DEFAULT, "AsyncGetCallTrace");
  *(void **)&arm_tripwire = dlsym(RTLD_DEFAULT, "tripwire_arm");
  *(void **)&tripwire_calls = dlsym(RTLD_DEFAULT, "tripwire_calls");
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  struct itimerval interval = {{micros / 1000000, micros % 1000000}, {micros / 1000000, micros % 1000000}};
  setitimer(ITIMER_PROF, &interval, NULL);
}

static void print_codes(FILE *out, const char *name, atomic_long *codes) {
  fprintf(out, "%s ok=%ld", name, codes[0]);
  for (int code = 1; code < CODES; code++) {
    if (codes[code]) fprintf(out, " %d=%ld", 1 - code, codes[code]);
  }
  fprintf(out, "\n");
}

static int by_size(const void *a, const void *b) {
  unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
  return x < y ? -1 : x > y;
}

/* Which samples are printed: frames at least, and those with places that are new or without. */
enum Kind { ALL, WARM, COLD };

static int is_chosen(long i, unsigned frames, enum Kind kind) {
  return times[i].frames >= frames && (kind == ALL || (times[i].cold > 0) == (kind == COLD));
}

/* Median and mean of the chosen samples from `start` to `end`. */
static void print_times(FILE *out, const char *name, long start, long end, unsigned frames, enum Kind kind) {
  static unsigned sorted[TIMES];
  static const char *const columns[] = {"iterator", "agct", "calltrace", "frames", "cold"};
  long n = 0;
  for (long i = start; i < end; i++) n += is_chosen(i, frames, kind);
  if (n <= 0) return;
  fprintf(out, "%s samples=%ld", name, n);
  for (int column = 0; column < 5; column++) {
    double sum = 0;
    long filled = 0;
    for (long i = start; i < end; i++) {
      const unsigned *row = &times[i].iterator;
      if (is_chosen(i, frames, kind)) sum += sorted[filled++] = row[column];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    fprintf(out, " %s=%u %s_mean=%ld", columns[column], sorted[n / 2], columns[column], (long)(sum / (double)n));
  }
  fprintf(out, "\n");
}

/* The newest frames, each as "CLASS.METHOD:BCI", ended by a space. */
static void print_trace(FILE *out, jvmtiEnv *jvmti, JNIEnv *env, const char *whose, const KeptTrace *trace) {
  fprintf(out, "%s ", whose);
  for (int i = 0; i < trace->frames; i++) {
    const TICKWALK_CallFrame *frame = &trace->newest[i];
    char *name = NULL, *class_name = NULL;
    jclass class = NULL;
    if (frame->method_id) {
      (*jvmti)->GetMethodName(jvmti, frame->method_id, &name, NULL, NULL);
      (*jvmti)->GetMethodDeclaringClass(jvmti, frame->method_id, &class);
      if (class) (*jvmti)->GetClassSignature(jvmti, class, &class_name, NULL);
      if (class) (*env)->DeleteLocalRef(env, class);
    }
    fprintf(out, "%s%s:%d ", class_name ? class_name : "?", name ? name : "?", frame->lineno);
    if (name) (*jvmti)->Deallocate(jvmti, (unsigned char *)name);
    if (class_name) (*jvmti)->Deallocate(jvmti, (unsigned char *)class_name);
  }
  fprintf(out, "\n");
}

/* A native function and the distance from its start, or an address of other code with the 32 bytes before it and 16 behind. */
static void print_place(FILE *out, void *pc) {
  Dl_info info;
  int known = dladdr(pc, &info) && info.dli_sname;
  fprintf(out, "%s+%#lx", known ? info.dli_sname : "", (unsigned long)pc - (known ? (unsigned long)info.dli_saddr : 0));
  if (known || !pc) return;
  for (int at = -32; at < 16; at++) fprintf(out, "%s%02x", at == -32 ? " " : at ? "" : "|", ((unsigned char *)pc)[at]);
}

static void report(FILE *out, jvmtiEnv *jvmti, JNIEnv *env) {
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  if (walks_only) timer_delete(fast_timer);
  fprintf(out, "== timer\n");
  fprintf(out, "total samples=%ld\n", total);
  print_codes(out, "iterator", walk_codes);
  print_codes(out, "ends", end_codes);
  print_codes(out, "calltrace", our_codes);
  print_codes(out, "agct", their_codes);
  fprintf(out, "compared both=%ld identical=%ld same_below_top=%ld longer=%ld shorter=%ld theirs_cut=%ld different=%ld\n", both,
          identical, same_below_top, longer, shorter, theirs_cut, different);
  for (long i = 0; i < kept && i < KEPT_CASES; i++) {
    print_trace(out, jvmti, env, "ours", &kept_cases[i][0]);
    print_trace(out, jvmti, env, "theirs", &kept_cases[i][1]);
  }
  long n = timed < TIMES ? timed : TIMES;
  print_times(out, "cycles_first_half", 0, n / 2, 0, ALL);
  print_times(out, "cycles", n / 2, n, 0, ALL);
  print_times(out, "cycles_deep", n / 2, n, DEEP, ALL);
  /* Of the whole run: walks that met no new place, and those that did. */
  print_times(out, "warm", 0, n, 0, WARM);
  print_times(out, "warm_deep", 0, n, DEEP, WARM);
  print_times(out, "cold", 0, n, 0, COLD);
  print_times(out, "cold_deep", 0, n, DEEP, COLD);
  for (long i = 0; i < failed && i < KEPT_FAILURES; i++) {
    fprintf(out, "failed with %d, options %d, at ", failures[i].code, failures[i].options);
    print_place(out, failures[i].pc);
    fprintf(out, ", oldest frame ");
    print_place(out, failures[i].last_pc);
    fprintf(out, ", fp %#lx, sp %#lx:", failures[i].fp, failures[i].sp);
    for (int word = 0; word < KEPT_WORDS; word++) fprintf(out, " %#lx", failures[i].stack[word]);
    fprintf(out, "\n");
  }
  if (storm) fprintf(out, "storm walks=%ld standing=%ld deoptimized=%ld\n", java_walks, standing, deoptimized);
  fprintf(out, "stack bytes=%ld in_java=%ld\n", deepest_stack, deepest_in_java);
  if (tripwire_calls) fprintf(out, "allocator calls=%ld\n", tripwire_calls());
  fflush(out);
}

/* ---- As an agent: jmethodIDs, which AsyncGetCallTrace needs ---- */

static long agent_micros;

static void request_ids(jvmtiEnv *jvmti, jclass class) {
  jint count;
  jmethodID *ids;
  if ((*jvmti)->GetClassMethods(jvmti, class, &count, &ids) == JVMTI_ERROR_NONE) {
    (*jvmti)->Deallocate(jvmti, (unsigned char *)ids);
  }
}

static void JNICALL on_class_prepare(jvmtiEnv *jvmti, JNIEnv *env, jthread thread, jclass class) {
  (void)env;
  (void)thread;
  request_ids(jvmti, class);
}

static void JNICALL on_class_load(jvmtiEnv *jvmti, JNIEnv *env, jthread thread, jclass class) {
  (void)jvmti;
  (void)env;
  (void)thread;
  (void)class;
}

static void JNICALL on_thread_start(jvmtiEnv *jvmti, JNIEnv *env, jthread thread) {
  (void)jvmti;
  (void)thread;
  own_env = env;
}

static void JNICALL on_thread_end(jvmtiEnv *jvmti, JNIEnv *env, jthread thread) {
  (void)jvmti;
  (void)env;
  (void)thread;
  own_env = NULL;
}

static void JNICALL on_vm_init(jvmtiEnv *jvmti, JNIEnv *env, jthread thread) {
  (void)thread;
  own_env = env;
  jint count;
  jclass *classes;
  if ((*jvmti)->GetLoadedClasses(jvmti, &count, &classes) == JVMTI_ERROR_NONE) {
    for (jint i = 0; i < count; i++) request_ids(jvmti, classes[i]);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)classes);
  }
  pthread_t deoptimizer;
  if (deoptimize && (sem_init(&chosen_waits, 0, 0) || pthread_create(&deoptimizer, NULL, deoptimize_chosen, jvmti))) abort();
  if (agent_micros > 0) (walks_only ? start_fast_timer : start_timer)(agent_micros);
}

static void JNICALL on_vm_death(jvmtiEnv *jvmti, JNIEnv *env) {
  if (agent_micros > 0) report(stderr, jvmti, env);
}

/* The number behind a name among the options; 0 without it. */
static long number_of(const char *options, const char *name) {
  const char *found = options ? strstr(options, name) : NULL;
  return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
  (void)reserved;
  own_vm = vm;
  if (options && strstr(options, "fuzz")) fuzzing = 1;
  if (options && strstr(options, "paint")) paints = 1;
  storm = number_of(options, "storm=");
  deoptimize = number_of(options, "deoptimize=");
  warmup = number_of(options, "warmup=") * 1000000;
  if (storm || (options && strstr(options, "walks"))) walks_only = 1;
  agent_micros = options ? strtol(options, NULL, 10) : 0;
  jvmtiEnv *jvmti;
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK) return JNI_ERR;
  jvmtiCapabilities capabilities = {.can_generate_breakpoint_events = deoptimize > 0};
  if ((*jvmti)->AddCapabilities(jvmti, &capabilities) != JVMTI_ERROR_NONE) return JNI_ERR;
  jvmtiEventCallbacks callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.ClassPrepare = on_class_prepare;
  callbacks.ClassLoad = on_class_load;
  callbacks.VMInit = on_vm_init;
  callbacks.VMDeath = on_vm_death;
  callbacks.ThreadStart = on_thread_start;
  callbacks.ThreadEnd = on_thread_end;
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  jvmtiEvent events[] = {JVMTI_EVENT_VM_INIT,    JVMTI_EVENT_VM_DEATH,     JVMTI_EVENT_CLASS_LOAD,
                         JVMTI_EVENT_CLASS_PREPARE, JVMTI_EVENT_THREAD_START, JVMTI_EVENT_THREAD_END};
  for (int i = 0; i < 6; i++) (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, events[i], NULL);
  return JNI_OK;
}
