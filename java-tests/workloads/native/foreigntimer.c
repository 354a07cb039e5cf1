/* Native methods of ForeignTimer: a CPU timer that sends SIGPROF, as other profilers have, and its handler. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "jni_functions.h"

static volatile long ticks;

/* Burns more CPU time than two ticks of a kernel with 250 Hz are apart. */
KEPT static long foreign_work(void) {
    unsigned long x = 1;
    struct timespec start, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do {
        for (int i = 0; i < 10000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul;
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000l + now.tv_nsec - start.tv_nsec < 9000000l);
    return (long)x;
}

/* Runs long at some ticks, so that it is interrupted as well. */
static void foreign_handler(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    (void)context;
    if (++ticks % 16 == 0) {
        foreign_work();
    }
}

/* Code that ends a handler, without an unwind table, as static libraries have. */
void foreign_restorer(void);
__asm__(".text\n"
        "foreign_restorer:\n"
        "    movl $15, %eax\n"
        "    syscall\n");

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

/* A timer on a CPU clock. Its signals go to the calling thread: the kernel would send those of a process's clock to the
 * thread that started the JVM, which only waits. */
static int start_timer(clockid_t clock, long nanos) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    struct itimerspec spec = {.it_interval.tv_nsec = nanos, .it_value.tv_nsec = nanos};
    timer_t timer;
    return timer_create(clock, &event, &timer) | timer_settime(timer, 0, &spec, 0);
}

/* A timer of the calling thread, with the C library's code at the end of the handler. */
static int start_thread_timer(long nanos) {
    struct sigaction action = {.sa_sigaction = foreign_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    return sigaction(SIGPROF, &action, 0) | start_timer(CLOCK_THREAD_CPUTIME_ID, nanos);
}

/* A timer of the process, with own code at the end of the handler. */
static int start_process_timer(long nanos) {
    struct kernel_action action = {
        .handler = foreign_handler,
        .flags = SA_SIGINFO | SA_RESTART | 0x04000000,
        .restorer = foreign_restorer,
    };
    return (int)syscall(SYS_rt_sigaction, SIGPROF, &action, 0, sizeof action.mask)
        | start_timer(CLOCK_PROCESS_CPUTIME_ID, nanos);
}

JNIEXPORT jlong Java_ForeignTimer_start(JNIEnv *env, void *class, jlong of_process, jlong nanos) {
    (void)env;
    (void)class;
    return of_process ? start_process_timer(nanos) : start_thread_timer(nanos);
}

JNIEXPORT jlong Java_ForeignTimer_ticks(JNIEnv *env, void *class) {
    (void)env;
    (void)class;
    return ticks;
}
