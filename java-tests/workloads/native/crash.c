/* Native code in which the process dies. */
#include <stdlib.h>
#include "jni_functions.h"

KEPT static long read_from(volatile long *address) {
    return *address + 1;
}

JNIEXPORT jlong Java_Crash_dereferenceNull(JNIEnv *env, void *class) {
    (void)env, (void)class;
    return read_from(NULL) + 1;
}

KEPT static void give_up(void) {
    abort();
}

JNIEXPORT void Java_Crash_abort(JNIEnv *env, void *class) {
    (void)env, (void)class;
    give_up();
}
