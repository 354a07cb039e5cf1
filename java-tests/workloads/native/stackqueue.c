/* A client of the queues of the iterator stack-walk API, used by StackQueues.java. The function that handles elements can be
 * held, so that elements wait as long as a test looks at them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <jni.h>
#include <profile2.h>

enum { TEXT = 1 << 16 };

static char text[TEXT];
static size_t length;
static ASGST_Queue *queue;
static sem_t entered, held, ended;
static atomic_int holds, befores, ends, befores_with_iterator;

#define PRINT(...)                                                        \
  do {                                                                    \
    int n = snprintf(text + length, TEXT - length, __VA_ARGS__);          \
    if (n > 0 && length + (size_t)n < TEXT) length += (size_t)n;          \
  } while (0)

static void print_frames(ASGST_Iterator *iterator) {
  static const char *const types[] = {"reset", "java", "inlined", "native", "other"};
  ASGST_Frame frame;
  int code;
  while ((code = ASGST_NextFrame(iterator, &frame)) == 1) {
    char method[100] = "";
    ASGST_MethodInfo info = {0};
    info.method_name = method;
    info.method_name_length = sizeof method;
    ASGST_GetMethodInfo(frame.method, &info);
    PRINT("%s %s\n", types[frame.type <= 4 ? frame.type : 0], method);
  }
  PRINT("end %d\n", code);
}

static void handle(ASGST_Iterator *iterator, void *queue_argument, void *argument) {
  if (atomic_load(&holds)) {
    atomic_store(&holds, 0);
    sem_post(&entered);
    sem_wait(&held);
  }
  PRINT("element %ld %ld\n", (long)queue_argument, (long)argument);
  if ((long)argument == 1) {
    print_frames(iterator);
    ASGST_RewindIterator(iterator);
    print_frames(iterator);
  }
}

static void on_before(ASGST_Queue *of, ASGST_Iterator *iterator, void *argument) {
  if (of == queue && (long)argument == 8) befores++;
  if (iterator) befores_with_iterator++;
}

static void on_end(ASGST_Queue *of, ASGST_Iterator *iterator, void *argument) {
  (void)iterator;
  if (of == queue && (long)argument == 9) ends++;
  sem_post(&ended);
}

JNIEXPORT jint JNICALL Java_StackQueues_capabilities(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  return ASGST_Capabilities();
}

JNIEXPORT jboolean JNICALL Java_StackQueues_register(JNIEnv *env, jclass class, jint size) {
  (void)class;
  sem_init(&entered, 0, 0);
  sem_init(&held, 0, 0);
  sem_init(&ended, 0, 0);
  queue = ASGST_RegisterQueue(env, size, 0, handle, (void *)7);
  ASGST_SetOnQueueProcessingStart(queue, 0, true, on_before, (void *)8);
  ASGST_SetOnQueueProcessingEnd(queue, 0, false, on_end, (void *)9);
  return queue != NULL;
}

JNIEXPORT jint JNICALL Java_StackQueues_enqueue(JNIEnv *env, jclass class, jlong argument, jboolean with_context) {
  (void)env;
  (void)class;
  ucontext_t context;
  if (with_context) getcontext(&context);
  return ASGST_Enqueue(queue, with_context ? &context : NULL, (void *)argument);
}

/* From now on the next element holds the drain, and everything that is enqueued behind it waits. */
JNIEXPORT void JNICALL Java_StackQueues_hold(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  atomic_store(&holds, 1);
}

JNIEXPORT void JNICALL Java_StackQueues_awaitHold(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_wait(&entered);
}

/* Ends the hold. */
JNIEXPORT void JNICALL Java_StackQueues_release(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_post(&held);
}

/* Waits until a drain has ended, and returns what was printed. */
JNIEXPORT jstring JNICALL Java_StackQueues_drained(JNIEnv *env, jclass class) {
  (void)class;
  sem_wait(&ended);
  jstring result = (*env)->NewStringUTF(env, text);
  length = 0;
  text[0] = 0;
  return result;
}

JNIEXPORT jstring JNICALL Java_StackQueues_size(JNIEnv *env, jclass class) {
  (void)class;
  ASGST_QueueSizeInfo info = ASGST_GetQueueSizeInfo(queue);
  char line[100];
  snprintf(line, sizeof line, "size %d of %d, attempts %d, old %d", info.size, info.capacity, info.attempts, ASGST_QueueSize(queue));
  return (*env)->NewStringUTF(env, line);
}

/* The argument of element n, -1 for none; `by` is added to it. */
JNIEXPORT jlong JNICALL Java_StackQueues_change(JNIEnv *env, jclass class, jint n, jlong by) {
  (void)env;
  (void)class;
  ASGST_QueueElement *element = ASGST_GetQueueElement(queue, n);
  if (!element) return -1;
  if (!element->pc || !element->sp || !element->fp) return -2;
  element->arg = (char *)element->arg + by;
  return (jlong)element->arg;
}

JNIEXPORT void JNICALL Java_StackQueues_resize(JNIEnv *env, jclass class, jint size) {
  (void)env;
  (void)class;
  ASGST_ResizeQueue(queue, size);
}

static void *in_other_thread(void *argument) {
  (void)argument;
  return ASGST_RegisterQueue(NULL, 10, 0, handle, NULL);
}

JNIEXPORT jstring JNICALL Java_StackQueues_refusals(JNIEnv *env, jclass class) {
  (void)class;
  pthread_t thread;
  void *unknown;
  pthread_create(&thread, NULL, in_other_thread, NULL);
  pthread_join(thread, &unknown);
  char line[200];
  snprintf(line, sizeof line, "no queue %d, unknown thread %d, bad environment %d, no handler %d, size %d, iterators %d",
           ASGST_Enqueue(NULL, NULL, NULL), unknown != NULL, ASGST_RegisterQueue((JNIEnv *)16, 4, 0, handle, NULL) != NULL,
           ASGST_RegisterQueue(env, 4, 0, NULL, NULL) != NULL, ASGST_RegisterQueue(env, 0, 0, handle, NULL) != NULL,
           befores_with_iterator);
  return (*env)->NewStringUTF(env, line);
}

JNIEXPORT jstring JNICALL Java_StackQueues_deregister(JNIEnv *env, jclass class) {
  (void)class;
  int first = ASGST_DeregisterQueue(env, queue), second = ASGST_DeregisterQueue(env, queue);
  char line[100];
  snprintf(line, sizeof line, "deregistered %d %d, hooks %d", first, second, befores > 0 && befores == ends);
  return (*env)->NewStringUTF(env, line);
}
