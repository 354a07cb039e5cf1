/* A program that closes the descriptors from 3 on, as daemons do, and opens a file of its own under their numbers. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "jni_functions.h"

typedef void (*GetByteArrayRegion_type)(JNIEnv *, void *, int, int, char *);
enum { GetByteArrayRegion_index = 200, FIRST = 3, LIMIT = 20000, MAX_PATH = 4096 };

static void read_path(JNIEnv *env, void *bytes, int length, char *path) {
    FUNCTION(env, GetByteArrayRegion)(env, bytes, 0, length, path);
    path[length] = 0;
}

/* Without its file of classes a JVM crashes sooner or later. */
static int is_of_the_jdk(int descriptor) {
    char link[64], target[MAX_PATH];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, target, sizeof(target) - 1);
    target[length < 0 ? 0 : length] = 0;
    return strstr(target, "/lib/modules") != NULL;
}

/* Returns how often the file could be opened; every descriptor appends to it. */
JNIEXPORT int Java_ClosesDescriptors_closeAndOpen(JNIEnv *env, void *class, void *bytes, int length, int count) {
    (void)class;
    char path[MAX_PATH];
    read_path(env, bytes, length, path);
    unsigned first = FIRST;
    for (unsigned descriptor = FIRST; descriptor < LIMIT; descriptor++) {
        if (is_of_the_jdk(descriptor)) {
            syscall(SYS_close_range, first, descriptor - 1, 0);
            first = descriptor + 1;
        }
    }
    syscall(SYS_close_range, first, ~0U, 0);
    int opened = 0;
    for (int i = 0; i < count; i++) {
        opened += open(path, O_RDWR | O_CREAT | O_APPEND, 0644) >= 0;
    }
    return opened;
}

/* Returns how many descriptors lead to the file and append to it. */
JNIEXPORT int Java_ClosesDescriptors_intact(JNIEnv *env, void *class, void *bytes, int length) {
    (void)class;
    char path[MAX_PATH];
    struct stat wanted, found;
    read_path(env, bytes, length, path);
    if (stat(path, &wanted) != 0) {
        return 0;
    }
    int intact = 0;
    for (int descriptor = FIRST; descriptor < LIMIT; descriptor++) {
        int is_same = fstat(descriptor, &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino;
        intact += is_same && (fcntl(descriptor, F_GETFL) & O_APPEND) != 0;
    }
    return intact;
}
