/* The little of JNI that the workloads use, so that they need no JDK headers: an environment is a pointer to a table of
 * functions whose positions the JNI specification fixes (chapter 4). */
typedef long jlong;
typedef void **JNIEnv_table;
typedef JNIEnv_table JNIEnv;

#define JNIEXPORT __attribute__((visibility("default")))
/* A function that has a frame of its own whatever the optimiser thinks. */
#define KEPT __attribute__((noinline, noclone))

typedef void *(*GetStaticMethodID_type)(JNIEnv *, void *, const char *, const char *);
typedef jlong (*CallStaticLongMethod_type)(JNIEnv *, void *, void *, ...);
enum { GetStaticMethodID_index = 113, CallStaticLongMethod_index = 132 };

#define FUNCTION(env, name) ((name##_type)(*(env))[name##_index])
