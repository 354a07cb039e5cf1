/* A JVMTI agent that is called at every bytecode: all threads run interpreted, by code that reports each step. */
#include <jvmti.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_long steps;

static void JNICALL step(jvmtiEnv *jvmti, JNIEnv *jni, jthread thread, jmethodID method, jlocation location) {
  atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
}

static void JNICALL started(jvmtiEnv *jvmti, JNIEnv *jni, jthread thread) {
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_SINGLE_STEP, NULL);
}

static void JNICALL ended(jvmtiEnv *jvmti, JNIEnv *jni) { fprintf(stderr, "%ld single steps\n", steps); }

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
  jvmtiEnv *jvmti;
  jvmtiCapabilities capabilities = {.can_generate_single_step_events = 1};
  jvmtiEventCallbacks callbacks = {.SingleStep = step, .VMInit = started, .VMDeath = ended};
  if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK) return JNI_ERR;
  if ((*jvmti)->AddCapabilities(jvmti, &capabilities) != JVMTI_ERROR_NONE) return JNI_ERR;
  (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, NULL);
  (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_DEATH, NULL);
  return JNI_OK;
}
