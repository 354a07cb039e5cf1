/* Native threads that rename themselves, each way, while they burn CPU time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#include "jni_functions.h"

/* Burns CPU time of the calling thread. */
KEPT static void burn(long milliseconds) {
    struct timespec now, begin;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}

static void *by_pthread(void *unused) {
    pthread_setname_np(pthread_self(), "first-pthread");
    burn(300);
    pthread_setname_np(pthread_self(), "second-pthread");
    burn(2500);
    return unused;
}

static void *by_prctl(void *unused) {
    prctl(PR_SET_NAME, "first-prctl");
    burn(300);
    prctl(PR_SET_NAME, "second-\xc3\xa9\x1b");
    burn(2500);
    return unused;
}

void Java_RenamedNatives_run(JNIEnv *env, void *type) {
    (void)env;
    (void)type;
    pthread_t threads[2];
    pthread_create(&threads[0], 0, by_pthread, 0);
    pthread_create(&threads[1], 0, by_prctl, 0);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
}
