/*
 * A CPU-time profiler in C over the iterator stack-walk API: a timer, a handler, and at the end of the JVM counts of walks
 * by code, a list of methods, and a flame graph. `rust_profiler.rs` is the same in Rust.
 *
 *   cc -O2 -shared -fPIC -I agent/include/iterator -I $JAVA_HOME/include -I $JAVA_HOME/include/linux \
 *      -o libprofiler.so agent/examples/profiler.c
 *   java -agentpath:libtickwalk.so=mode=api -agentpath:libprofiler.so=interval=1000,file=flames.html -jar app.jar
 *
 * Options: interval= in microseconds of CPU time (default 10000), file= (default: none): a flame graph if the name ends with
 * .html, else collapsed stacks for other tools.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <jvmti.h>
#include <profile2.h>

enum {
  MAX_DEPTH = 1024,       /* frames of one trace */
  MAX_TRACES = 1 << 18,
  MAX_FRAMES = 1 << 24,   /* frames of all traces; memory is used as they come */
  CODES = 64              /* codes 0 to -62, and one place for all others */
};

typedef struct {
  unsigned first, count;
} Trace;

static Trace traces[MAX_TRACES];
static ASGST_Method frames[MAX_FRAMES];
static atomic_uint trace_count, frame_count;
static atomic_long total, failed, without, dropped, codes[CODES];
static long interval = 10000;
static char path[1024];

/* ---- In the signal handler: nothing is allocated, no lock is taken ---- */

typedef struct {
  int count, end;
  ASGST_Method methods[MAX_DEPTH];
} Walk;

static void collect(ASGST_Iterator *iterator, void *argument) {
  Walk *walk = argument;
  ASGST_Frame frame;
  while ((walk->end = ASGST_NextFrame(iterator, &frame)) == 1 && walk->count < MAX_DEPTH) {
    walk->methods[walk->count++] = frame.method;
  }
}

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  Walk walk;
  walk.count = walk.end = 0;
  int kind = ASGST_RunWithIterator(context, 0, collect, &walk), code = kind > 0 ? walk.end : kind;
  atomic_fetch_add(&total, 1);
  if (kind <= 0 || code < 0) {
    /* Threads of the VM and threads that end have no Java frames; any other code is a failure, and so is a cut trace. */
    int is_without = code == ASGST_NO_TOP_JAVA_FRAME || code == ASGST_THREAD_EXIT || code == ASGST_NO_FRAME;
    atomic_fetch_add(is_without ? &without : &failed, 1);
    atomic_fetch_add(&codes[-code < CODES - 1 ? -code : CODES - 1], 1);
  }
  if (kind <= 0) return;
  unsigned trace = atomic_fetch_add(&trace_count, 1);
  unsigned first = atomic_fetch_add(&frame_count, (unsigned)walk.count);
  if (trace >= MAX_TRACES || first + (unsigned)walk.count > MAX_FRAMES) {
    atomic_fetch_add(&dropped, 1);
    return;
  }
  memcpy(&frames[first], walk.methods, sizeof(ASGST_Method) * (unsigned)walk.count);
  traces[trace] = (Trace){first, (unsigned)walk.count};
}

/* ---- At the end ---- */

typedef struct {
  ASGST_Method method;
  long self, all, last; /* `last`: the trace counted last, plus one, so that recursion counts once */
  char name[256];
} Entry;

static Entry *entries;
static size_t entry_count;

static int by_address(const void *a, const void *b) {
  ASGST_Method x = *(const ASGST_Method *)a, y = *(const ASGST_Method *)b;
  return x < y ? -1 : x > y;
}

static Entry *entry_of(ASGST_Method method) {
  return bsearch(&method, entries, entry_count, sizeof *entries, by_address);
}

static void add_entry(ASGST_Method method) {
  char class_name[120] = "", method_name[120] = "";
  ASGST_MethodInfo info = {.method_name = method_name, .method_name_length = sizeof method_name};
  ASGST_GetMethodInfo(method, &info);
  ASGST_ClassInfo class = {.class_name = class_name, .class_name_length = sizeof class_name};
  ASGST_GetClassInfo(info.klass, &class);
  Entry *entry = &entries[entry_count++];
  entry->method = method;
  snprintf(entry->name, sizeof entry->name, "%s.%s", class_name, info.method_name_length ? method_name : "[unloaded]");
}

static void name_methods(unsigned count) {
  ASGST_Method *sorted = malloc((count + 1) * sizeof *sorted);
  memcpy(sorted, frames, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_address);
  entries = calloc(count + 1, sizeof *entries);
  for (unsigned i = 0; i < count; i++) {
    if (i == 0 || sorted[i] != sorted[i - 1]) add_entry(sorted[i]);
  }
  free(sorted);
}

/* The frame of a trace at `depth`, 0 for the oldest. */
static ASGST_Method frame_at(const Trace *trace, unsigned depth) { return frames[trace->first + trace->count - 1 - depth]; }

/* Equal traces lie together, and so do those with the same callers. */
static int by_frames(const void *a, const void *b) {
  const Trace *x = a, *y = b;
  for (unsigned depth = 0; depth < x->count && depth < y->count; depth++) {
    ASGST_Method p = frame_at(x, depth), q = frame_at(y, depth);
    if (p != q) return p < q ? -1 : 1;
  }
  return x->count < y->count ? -1 : x->count > y->count;
}

static void write_stacks(FILE *out, unsigned count) {
  for (unsigned i = 0, next; i < count; i = next) {
    for (next = i + 1; next < count && by_frames(&traces[i], &traces[next]) == 0;) next++;
    for (unsigned depth = 0; depth < traces[i].count; depth++) {
      fprintf(out, "%s%s", depth > 0 ? ";" : "", entry_of(frame_at(&traces[i], depth))->name);
    }
    fprintf(out, " %u\n", next - i);
  }
}

static void write_text(FILE *out, const char *text) {
  for (; *text; text++) *text == '<' ? fputs("&lt;", out) : fputc(*text, out);
}

/* A box for each run of equal frames at `depth`, oldest frame first, and the boxes above it. */
static void write_boxes(FILE *out, unsigned begin, unsigned end, unsigned depth, unsigned all) {
  for (unsigned i = begin, next; i < end; i = next) {
    next = i + 1;
    if (traces[i].count <= depth) continue;
    ASGST_Method method = frame_at(&traces[i], depth);
    while (next < end && traces[next].count > depth && frame_at(&traces[next], depth) == method) next++;
    double left = 100.0 * i / all, width = 100.0 * (next - i) / all;
    fprintf(out, "<p style=\"left:%.4f%%;width:%.4f%%;top:%upx;background:hsl(%u,90%%,70%%)\" title=\"%.2f %% ", left, width,
            depth * 16, 20 + (unsigned)((size_t)method % 40), width);
    write_text(out, entry_of(method)->name);
    fprintf(out, "\">");
    write_text(out, entry_of(method)->name);
    write_boxes(out, i, next, depth + 1, all);
  }
}

static void write_file(unsigned count) {
  size_t length = strlen(path);
  FILE *out = fopen(path, "w");
  if (!out) {
    fprintf(stderr, "profiler: cannot write %s: %s\n", path, strerror(errno));
    return;
  }
  qsort(traces, count, sizeof *traces, by_frames);
  if (length > 5 && strcmp(path + length - 5, ".html") == 0) {
    fprintf(out, "<style>p{position:absolute;margin:0;height:15px;overflow:hidden;font:11px sans-serif}</style>\n");
    write_boxes(out, 0, count, 0, count);
  } else {
    write_stacks(out, count);
  }
  fclose(out);
}

static int by_self(const void *a, const void *b) {
  const Entry *x = a, *y = b;
  return x->self > y->self ? -1 : x->self < y->self;
}

static void set_timer(long micros) {
  struct timeval time = {micros / 1000000, micros % 1000000};
  setitimer(ITIMER_PROF, &(struct itimerval){time, time}, NULL);
}

static void JNICALL on_vm_death(jvmtiEnv *jvmti, JNIEnv *env) {
  (void)jvmti;
  (void)env;
  set_timer(0);
  unsigned count = trace_count < MAX_TRACES ? trace_count : MAX_TRACES;
  printf("Total walks: %ld\nWithout Java frames: %ld\nFailed walks: %ld (%.3f %%)\n", total, without, failed,
         total > without ? 100.0 * (double)failed / (double)(total - without) : 0);
  for (int code = 0; code < CODES; code++) {
    if (codes[code]) printf("Walks with code %d: %ld\n", -code, codes[code]);
  }
  if (dropped) printf("Traces without room: %ld\n", dropped);
  name_methods(frame_count < MAX_FRAMES ? frame_count : MAX_FRAMES);
  for (unsigned i = 0; i < count; i++) {
    for (unsigned f = 0; f < traces[i].count; f++) {
      Entry *entry = entry_of(frames[traces[i].first + f]);
      entry->self += f == 0;
      entry->all += entry->last != (long)i + 1;
      entry->last = (long)i + 1;
    }
  }
  if (path[0]) write_file(count);
  qsort(entries, entry_count, sizeof *entries, by_self);
  printf("%8s %8s  method\n", "self", "total");
  for (size_t i = 0; i < entry_count && i < 20; i++) {
    printf("%7.2f%% %7.2f%%  %s\n", 100.0 * (double)entries[i].self / count, 100.0 * (double)entries[i].all / count, entries[i].name);
  }
  fflush(stdout);
}

static void JNICALL on_vm_init(jvmtiEnv *jvmti, JNIEnv *env, jthread thread) {
  (void)jvmti;
  (void)env;
  (void)thread;
  struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  set_timer(interval);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
  (void)reserved;
  const char *text = options ? options : "", *found = strstr(text, "interval=");
  if (found) interval = strtol(found + strlen("interval="), NULL, 10);
  found = strstr(text, "file=");
  if (found) sscanf(found, "file=%1023[^,]", path);
  jvmtiEnv *jvmti;
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK) return JNI_ERR;
  jvmtiEventCallbacks callbacks = {.VMInit = on_vm_init, .VMDeath = on_vm_death};
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, NULL);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_DEATH, NULL);
  return JNI_OK;
}
