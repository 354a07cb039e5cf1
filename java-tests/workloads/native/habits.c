/* Native code with habits that a profiler must live with: it replaces signal handlers, blocks signals, uses timers of its
 * own, forks without exec, and leaves the VM while its thread goes on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "jni_functions.h"

typedef int (*GetJavaVM_type)(JNIEnv *, void **);
enum { GetJavaVM_index = 219, AttachCurrentThread_index = 4, DetachCurrentThread_index = 5 };

static volatile int foreign_signals;
static void *java_vm;

static void foreign(int signal) {
    (void)signal;
    foreign_signals++;
}

/* Burns CPU time of the calling thread. */
KEPT static void burn(long milliseconds) {
    struct timespec now, begin;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}

JNIEXPORT void Java_NativeHabits_replaceHandler(JNIEnv *env, void *class, int number) {
    (void)env, (void)class;
    signal(number, foreign);
}

/* Number of signals that reached the handler of this library. */
JNIEXPORT int Java_NativeHabits_foreignSignals(JNIEnv *env, void *class) {
    (void)env, (void)class;
    return foreign_signals;
}

JNIEXPORT void Java_NativeHabits_setBlocked(JNIEnv *env, void *class, int number, unsigned char blocked) {
    (void)env, (void)class;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* Returns how many of so many timers the kernel grants. */
JNIEXPORT int Java_NativeHabits_createTimers(JNIEnv *env, void *class, int count) {
    (void)env, (void)class;
    int created = 0;
    for (int i = 0; i < count; i++) {
        timer_t timer;
        created += timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0;
    }
    return created;
}

/* As createTimers, in a child process. */
JNIEXPORT int Java_NativeHabits_createTimersInChild(JNIEnv *env, void *class, int count) {
    pid_t child = fork();
    if (child == 0) {
        _exit(Java_NativeHabits_createTimers(env, class, count));
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Forks; the child burns CPU time and ends by exit. Returns its exit code. */
JNIEXPORT int Java_NativeHabits_forkAndBurn(JNIEnv *env, void *class, int milliseconds) {
    (void)env, (void)class;
    pid_t child = fork();
    if (child == 0) {
        burn(milliseconds);
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *attach_detach_burn(void *end) {
    typedef int (*Attach)(void *, void **, void *);
    typedef int (*Detach)(void *);
    void **functions = *(void ***)java_vm;
    void *env;
    while (!*(volatile int *)end) {
        ((Attach)functions[AttachCurrentThread_index])(java_vm, &env, NULL);
        burn(25);
        ((Detach)functions[DetachCurrentThread_index])(java_vm);
        burn(25);
    }
    return NULL;
}

/* Starts threads that attach to the VM, burn CPU time, detach and burn more, again and again. Returns an address for endThreads. */
JNIEXPORT jlong Java_NativeHabits_beginDetaching(JNIEnv *env, void *class, int count) {
    (void)class;
    FUNCTION(env, GetJavaVM)(env, &java_vm);
    int *end = calloc(1, sizeof(int));
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, attach_detach_burn, end);
        pthread_detach(thread);
    }
    return (jlong)end;
}

JNIEXPORT void Java_NativeHabits_endDetaching(JNIEnv *env, void *class, jlong end) {
    (void)env, (void)class;
    *(volatile int *)end = 1;
}
