/* The native method of LargeStack: a function with 1.1 MB on the stack. */
#include "jni_functions.h"

KEPT static long large_spin(long rounds) {
    unsigned long x = (unsigned long)rounds;
    for (long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
    }
    return (long)x;
}

KEPT static long large_frame(long rounds) {
    volatile char bytes[1100 << 10];
    for (long at = sizeof bytes - 1; at >= 0; at -= 4096) {
        bytes[at] = (char)rounds;
    }
    return large_spin(rounds) + bytes[rounds & 4095];
}

JNIEXPORT jlong Java_LargeStack_spin(JNIEnv *env, void *class, jlong rounds) {
    (void)env;
    (void)class;
    return large_frame(rounds) + 1;
}
