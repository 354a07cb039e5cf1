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
static atomic_long total, dropped, walks[CODES], cuts[CODES];
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

static atomic_long *place_of(atomic_long *codes, int code) {
  return &codes[code > 0 ? 0 : -code < CODES - 1 ? -code : CODES - 1];
}

static void on_tick(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  Walk walk;
  walk.count = walk.end = 0;
  int kind = ASGST_RunWithIterator(context, 0, collect, &walk);
  atomic_fetch_add(&total, 1);
  if (kind <= 0) {
    atomic_fetch_add(place_of(walks, kind), 1);
    return;
  }
  if (walk.end < 0) atomic_fetch_add(place_of(cuts, walk.end), 1);
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
  long self, all, last; /* `last`: the trace counted last, so that recursion counts once */
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

static void name_of(Entry *entry) {
  char class_name[120] = "", method_name[120] = "";
  ASGST_MethodInfo method = {0};
  method.method_name = method_name;
  method.method_name_length = sizeof method_name;
  ASGST_GetMethodInfo(entry->method, &method);
  ASGST_ClassInfo class = {0};
  class.class_name = class_name;
  class.class_name_length = sizeof class_name;
  ASGST_GetClassInfo(method.klass, &class);
  if (method.method_name_length == 0) strcpy(entry->name, "[unloaded]");
  else snprintf(entry->name, sizeof entry->name, "%s.%s", class_name, method_name);
}

static void name_methods(unsigned count) {
  ASGST_Method *sorted = malloc((count + 1) * sizeof *sorted);
  memcpy(sorted, frames, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_address);
  entries = calloc(count + 1, sizeof *entries);
  for (unsigned i = 0; i < count; i++) {
    if (i == 0 || sorted[i] != sorted[i - 1]) {
      entries[entry_count].last = -1;
      entries[entry_count].method = sorted[i];
      name_of(&entries[entry_count++]);
    }
  }
  free(sorted);
}

/* Equal traces lie together; of the newest frame last, as collapsed stacks are written. */
static int by_frames(const void *a, const void *b) {
  const Trace *x = a, *y = b;
  unsigned least = x->count < y->count ? x->count : y->count;
  for (unsigned i = 1; i <= least; i++) {
    ASGST_Method p = frames[x->first + x->count - i], q = frames[y->first + y->count - i];
    if (p != q) return p < q ? -1 : 1;
  }
  return x->count < y->count ? -1 : x->count > y->count;
}

static void write_stacks(FILE *out, unsigned count) {
  qsort(traces, count, sizeof *traces, by_frames);
  for (unsigned i = 0, next; i < count; i = next) {
    for (next = i + 1; next < count && by_frames(&traces[i], &traces[next]) == 0;) next++;
    for (unsigned f = traces[i].count; f-- > 0;) {
      fprintf(out, "%s%s", entry_of(frames[traces[i].first + f])->name, f > 0 ? ";" : "");
    }
    fprintf(out, " %u\n", next - i);
  }
}

/* A box for each run of equal frames at `depth`, oldest frame first, and the boxes above it. */
static void write_boxes(FILE *out, unsigned begin, unsigned end, unsigned depth, unsigned total) {
  for (unsigned i = begin, next; i < end; i = next) {
    next = i + 1;
    if (traces[i].count <= depth) continue;
    ASGST_Method method = frames[traces[i].first + traces[i].count - 1 - depth];
    while (next < end && traces[next].count > depth && frames[traces[next].first + traces[next].count - 1 - depth] == method) next++;
    double left = 100.0 * i / total, width = 100.0 * (next - i) / total;
    const char *name = entry_of(method)->name;
    fprintf(out, "<p title=\"");
    for (const char *c = name; *c; c++) *c == '<' ? fputs("&lt;", out) : fputc(*c, out);
    fprintf(out, " %.2f %%\" style=\"left:%.4f%%;width:%.4f%%;top:%upx;background:hsl(%u,90%%,70%%)\">", width, left, width, depth * 16,
            20 + (unsigned)((size_t)method % 40));
    for (const char *c = name; *c; c++) *c == '<' ? fputs("&lt;", out) : fputc(*c, out);
    fputc('\n', out);
    write_boxes(out, i, next, depth + 1, total);
  }
}

static void write_flames(FILE *out, unsigned count) {
  qsort(traces, count, sizeof *traces, by_frames);
  fprintf(out, "<style>p{position:absolute;margin:0;height:15px;overflow:hidden;font:11px sans-serif}</style>\n");
  write_boxes(out, 0, count, 0, count);
}

static int by_self(const void *a, const void *b) {
  const Entry *x = a, *y = b;
  return x->self > y->self ? -1 : x->self < y->self;
}

static void print_codes(const char *text, atomic_long *codes) {
  for (int code = 0; code < CODES; code++) {
    if (codes[code]) printf("%s %d: %ld\n", text, -code, codes[code]);
  }
}

static void JNICALL on_vm_death(jvmtiEnv *jvmti, JNIEnv *env) {
  (void)jvmti;
  (void)env;
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &never, NULL);
  unsigned count = trace_count < MAX_TRACES ? trace_count : MAX_TRACES;
  /* Threads of compilers and the collector run no Java; every other code is a failure, and so is a trace that is cut. */
  long without = walks[-ASGST_NO_TOP_JAVA_FRAME] + walks[ASGST_NO_FRAME], failed = total - (long)trace_count - without;
  for (int code = 0; code < CODES; code++) failed += cuts[code];
  printf("Total walks: %ld\nWithout Java frames: %ld\nFailed walks: %ld (%.3f %%)\n", total, without, failed,
         total > without ? 100.0 * (double)failed / (double)(total - without) : 0);
  print_codes("Walks with code", walks);
  print_codes("Traces cut with code", cuts);
  if (dropped) printf("Traces without room: %ld\n", dropped);
  name_methods(frame_count < MAX_FRAMES ? frame_count : MAX_FRAMES);
  for (unsigned i = 0; i < count; i++) {
    for (unsigned f = 0; f < traces[i].count; f++) {
      Entry *entry = entry_of(frames[traces[i].first + f]);
      if (f == 0) entry->self++;
      if (entry->last != (long)i) entry->all++;
      entry->last = (long)i;
    }
  }
  FILE *out = path[0] ? fopen(path, "w") : NULL;
  if (path[0] && !out) fprintf(stderr, "profiler: cannot write %s: %s\n", path, strerror(errno));
  size_t length = strlen(path);
  int is_page = length > 5 && strcmp(path + length - 5, ".html") == 0;
  if (out) (is_page ? write_flames : write_stacks)(out, count);
  if (out) fclose(out);
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
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, NULL);
  struct itimerval every = {{interval / 1000000, interval % 1000000}, {interval / 1000000, interval % 1000000}};
  setitimer(ITIMER_PROF, &every, NULL);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
  (void)reserved;
  const char *text = options ? options : "", *found = strstr(text, "interval=");
  if (found) interval = strtol(found + strlen("interval="), NULL, 10);
  found = strstr(text, "file=");
  if (found) sscanf(found, "file=%1023[^,]", path);
  jvmtiEnv *jvmti;
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK) return JNI_ERR;
  jvmtiEventCallbacks callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.VMInit = on_vm_init;
  callbacks.VMDeath = on_vm_death;
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, NULL);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_DEATH, NULL);
  return JNI_OK;
}
