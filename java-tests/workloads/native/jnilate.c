/* The native method of JniHeavy in the library that is loaded later. */
#include "jni_functions.h"

KEPT static long late_spin(long rounds) {
    unsigned long x = (unsigned long)rounds;
    for (long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
    }
    return (long)x;
}

JNIEXPORT jlong Java_JniHeavy_late(JNIEnv *env, void *class, jlong rounds) {
    (void)env;
    (void)class;
    return late_spin(rounds) + 1;
}
