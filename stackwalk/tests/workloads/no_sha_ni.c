/* Agent that hides the CPU's SHA instructions from the VM, so that it generates `sha256_AVX2` on every machine.
 *
 * The VM has no flag for one CPU feature. Agents are loaded before it looks at the CPU, so a hardware breakpoint on the word
 * of features clears the bit after each write. Row and bit are in the VM's tables: up to JDK 24 a mask, later a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct row { const char *type, *field, *kind; int32_t is_static; uint64_t offset; void *address; };
struct constant { const char *name; uint64_t value; };

static volatile uint64_t *features;
static uint64_t mask;
static int event;

static void on_write(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
    *features &= ~mask;
    ioctl(event, PERF_EVENT_IOC_ENABLE, 0);
}

static int fail(const char *reason) {
    fprintf(stderr, "no_sha_ni: %s\n", reason);
    return 1;
}

int Agent_OnLoad(void *vm, char *options, void *reserved) {
    (void)vm, (void)options, (void)reserved;
    struct row **rows = dlsym(RTLD_DEFAULT, "gHotSpotVMStructs");
    struct constant **constants = dlsym(RTLD_DEFAULT, "gHotSpotVMLongConstants");
    if (!rows || !constants) return fail("no tables");
    for (struct row *row = *rows; row->type; row++) {
        /* The row of 25 has another type than the one of Abstract_VM_Version, which it does not use. */
        int is_bitmap = !strcmp(row->type, "VM_Version") && !strcmp(row->field, "_features");
        if (is_bitmap || (!features && !strcmp(row->field, "_features"))) features = row->address;
    }
    for (struct constant *row = *constants; row->name; row++) {
        if (!strcmp(row->name, "VM_Version::CPU_SHA")) mask = row->value < 64 ? 1ull << row->value : row->value;
    }
    if (!features || !mask) return fail("no row of features");
    struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGTRAP, &action, NULL);
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_BREAKPOINT, .size = sizeof attributes, .sample_period = 1, .bp_type = HW_BREAKPOINT_W,
        .bp_addr = (uintptr_t)features, .bp_len = HW_BREAKPOINT_LEN_8, .sigtrap = 1, .remove_on_exec = 1,
        .exclude_kernel = 1, .exclude_hv = 1};
    event = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
    return event < 0 ? fail("no hardware breakpoint") : 0;
}
