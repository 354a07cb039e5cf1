/* Functions that Panama calls through the foreign function API, and that call it back. */
#include <pthread.h>

#include "jni_functions.h"

typedef long (*callback_t)(long);

KEPT static long call_back(callback_t callback, long level) {
    volatile char *bytes = __builtin_alloca((level & 63) + 64);
    bytes[0] = (char)level;
    return callback(level) + bytes[0];
}

JNIEXPORT long panama_call(callback_t callback, long level) {
    return call_back(callback, level) + 1;
}

JNIEXPORT long panama_spin(long rounds) {
    unsigned long x = (unsigned long)rounds;
    for (long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
    }
    return (long)x;
}

struct task {
    callback_t callback;
    long level;
    long result;
};

KEPT static void *run_task(void *argument) {
    struct task *task = argument;
    task->result = call_back(task->callback, task->level);
    return NULL;
}

JNIEXPORT long panama_on_thread(callback_t callback, long level) {
    struct task task = {callback, level, 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_task, &task) != 0) {
        return -1;
    }
    pthread_join(thread, NULL);
    return task.result;
}
