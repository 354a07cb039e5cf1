/* The part of JNI that the workloads use, so that they need no JDK headers. An environment is a pointer to a table of
 * functions; the JNI specification (chapter 4) defines their indices. */
typedef long jlong;
typedef void **JNIEnv_table;
typedef JNIEnv_table JNIEnv;

#define JNIEXPORT __attribute__((visibility("default")))
/* Prevents inlining, so that the function has a frame of its own. */
#define KEPT __attribute__((noinline, noclone))

typedef void *(*GetStaticMethodID_type)(JNIEnv *, void *, const char *, const char *);
typedef jlong (*CallStaticLongMethod_type)(JNIEnv *, void *, void *, ...);
enum { GetStaticMethodID_index = 113, CallStaticLongMethod_index = 132 };

#define FUNCTION(env, name) ((name##_type)(*(env))[name##_index])
