/* Native method of FaultHandlers: handlers of SIGSEGV and SIGBUS that pass everything on to the VM's, as those of crash
 * reporters do. */
#define _GNU_SOURCE
#include <signal.h>

#include "jni_functions.h"

static struct sigaction segv;
static struct sigaction bus;

static void pass_on(int number, siginfo_t *info, void *context) {
    (number == SIGSEGV ? &segv : &bus)->sa_sigaction(number, info, context);
}

JNIEXPORT jlong Java_FaultHandlers_install(JNIEnv *env, void *class) {
    (void)env;
    (void)class;
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    return sigaction(SIGSEGV, &action, &segv) | sigaction(SIGBUS, &action, &bus);
}
