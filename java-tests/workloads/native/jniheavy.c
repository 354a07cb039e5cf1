/* Native methods of JniHeavy: a chain of functions without frame pointers, and a call back into Java. */
#include "jni_functions.h"

KEPT static long innermost(long rounds) {
    unsigned long x = (unsigned long)rounds;
    for (long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
    }
    return (long)x;
}

KEPT static long with_locals(long rounds) {
    volatile long locals[40];
    locals[rounds & 31] = rounds;
    return innermost(rounds) + locals[rounds & 31];
}

KEPT static long with_alloca(long rounds) {
    volatile char *bytes = __builtin_alloca((rounds & 63) + 64);
    bytes[0] = (char)rounds;
    return with_locals(rounds) + bytes[0];
}

JNIEXPORT jlong Java_JniHeavy_spin(JNIEnv *env, void *class, jlong rounds) {
    (void)env;
    (void)class;
    return with_alloca(rounds) + 1;
}

KEPT static jlong call_java(JNIEnv *env, void *class, jlong rounds) {
    void *method = FUNCTION(env, GetStaticMethodID)(env, class, "work", "(J)J");
    return FUNCTION(env, CallStaticLongMethod)(env, class, method, rounds) + 1;
}

JNIEXPORT jlong Java_JniHeavy_callBack(JNIEnv *env, void *class, jlong rounds) {
    return call_java(env, class, rounds) + 1;
}
