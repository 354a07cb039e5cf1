/* A client of the unload handlers of the iterator stack-walk API, used by StackUnloading.java. */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <jni.h>
#include <profile2.h>

static sem_t unloaded;
static ASGST_Method expected[64];
static ASGST_Class expected_class[64];
static int expected_count, found, wrong, argument;

static void on_unload(ASGST_Class class, ASGST_Method *methods, int count, bool redefined, void *own) {
  for (int i = 0; i < expected_count; i++) {
    if (expected_class[i] != class) continue;
    int has = 0;
    for (int m = 0; m < count; m++) has |= methods[m] == expected[i];
    ASGST_MethodInfo info = {0};
    char name[20];
    info.method_name = name;
    info.method_name_length = sizeof name;
    ASGST_GetMethodInfo(expected[i], &info);
    if (!has || count != 2 || redefined || own != &argument || info.method_name_length) wrong++;
    expected_class[i] = NULL;
    found++;
    sem_post(&unloaded);
  }
}

JNIEXPORT void JNICALL Java_StackUnloading_register(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_init(&unloaded, 0, 0);
  ASGST_RegisterClassUnloadHandler(on_unload, &argument);
}

/* Expects the class of a method to be unloaded. */
JNIEXPORT void JNICALL Java_StackUnloading_expect(JNIEnv *env, jclass class, jobject method) {
  (void)class;
  ASGST_Method address = ASGST_JMethodIDToMethod((*env)->FromReflectedMethod(env, method));
  expected[expected_count] = address;
  expected_class[expected_count++] = ASGST_GetClass(address);
}

JNIEXPORT void JNICALL Java_StackUnloading_await(JNIEnv *env, jclass class) {
  (void)env;
  (void)class;
  sem_wait(&unloaded);
}

JNIEXPORT jstring JNICALL Java_StackUnloading_result(JNIEnv *env, jclass class) {
  (void)class;
  int first = ASGST_DeregisterClassUnloadHandler(on_unload, &argument), second = ASGST_DeregisterClassUnloadHandler(on_unload, &argument);
  char line[100];
  snprintf(line, sizeof line, "expected %d found %d wrong %d deregistered %d %d", expected_count, found, wrong, first, second);
  return (*env)->NewStringUTF(env, line);
}
