/* Preloaded: refuses the CPU clocks of threads, as a filter of system calls does. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    /* Clocks of single threads have negative ids. */
    if (clock < 0) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}
