/*
 * Control of the profiler from the program that is profiled, by functions of libtickwalk.so.
 * The library may be loaded by -agentpath, by System.load, or by dlopen (as the foreign function API of Java does).
 * Call the functions on a thread that the JVM knows: a Java thread, or one that is attached.
 * They may take as long as a profile takes to start, to end or to be written; they are not for signal handlers.
 * C11 and C++11. An example in Java: agent/examples/Control.java.
 */
#ifndef TICKWALK_H
#define TICKWALK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TICKWALK_OK = 0,
  /* An argument or an option is wrong. */
  TICKWALK_ERROR_REQUEST = 1,
  /* A profile runs already, none runs, or the JVM cannot be profiled. */
  TICKWALK_ERROR_STATE = 2,
  /* A file cannot be written; errno says why. */
  TICKWALK_ERROR_FILE = 3,
  /* No JVM in this process, or a thread that it does not know. */
  TICKWALK_ERROR_THREAD = 4,
  /* An internal error has switched the agent off. */
  TICKWALK_ERROR_OFF = 5
};

/*
 * Each function writes one line of text to `text`, of at most `size` bytes with the NUL at its end: the message of an error,
 * else an empty one. `text` may be NULL if `size` is 0.
 */

/*
 * Starts a profile with the options of -agentpath, such as "interval=1ms,file=app.tickwalk".
 * Without file= and collector= the samples stay in the process, for tickwalk_dump.
 */
int tickwalk_start(const char *options, char *text, size_t size);

/* Ends the profile. */
int tickwalk_stop(char *text, size_t size);

/*
 * Writes what was sampled so far to a file, also after the end of the profile. The format follows from the name:
 * .tickwalk (recording), .html (page), .jfr, .pb.gz (pprof), .otlp, .collapsed; any other is a text with the hottest stacks
 * and methods.
 */
int tickwalk_dump(const char *path, char *text, size_t size);

/* Writes lines of name=value to `text`, the first ones version= and state=: idle, waiting, starting, running, ending, off. */
int tickwalk_status(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
