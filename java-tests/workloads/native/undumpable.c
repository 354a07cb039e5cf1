/* An agent that makes its process one that cannot be dumped, whose files below /proc belong to the superuser. */

#include <sys/prctl.h>

int Agent_OnLoad(void *vm, char *options, void *reserved) {
    (void)vm;
    (void)options;
    (void)reserved;
    return prctl(PR_SET_DUMPABLE, 0);
}
