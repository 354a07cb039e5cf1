/*
 * The iterator stack-walk API (ASGST, second generation) on stock HotSpot JVMs, served by libtickwalk.so.
 *
 * Load the library before the client:
 *   java -agentpath:/path/libtickwalk.so=mode=api -agentpath:/path/libclient.so ...
 * The functions are then found by the dynamic linker and by dlsym(RTLD_DEFAULT, ...). They answer once the VM is
 * initialised (VMInit); before that they return ASGST_NO_THREAD and empty information.
 *
 * Names, layouts and return codes are those of the proposal, see design/stack-walk-api.md for what is served.
 * "Signal safe" functions may be called in a signal handler: they allocate nothing, take no lock, keep errno and make
 * no load that could fault.
 * C11 and C++11.
 */
#ifndef JVM_PROFILE2_H
#define JVM_PROFILE2_H

#include <jni.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
/* Clients of the proposal use std::array without including it. */
#include <array>
#else
#include <stdbool.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Address of a method in the VM. Valid as long as its class is loaded; see ASGST_GetMethodInfo. */
typedef struct _ASGST_Method *ASGST_Method;
/* Address of a class in the VM. Valid as long as it is loaded. */
typedef struct _ASGST_Class *ASGST_Class;
typedef struct ASGST_Iterator ASGST_Iterator;
typedef struct ASGST_Queue ASGST_Queue;
typedef struct ASGST_FrameMark ASGST_FrameMark;

/* Bits of ASGST_Capabilities(). */
enum ASGST_Capabilities {
  ASGST_REGISTER_QUEUE = 1,
  ASGST_MARK_FRAME = 2
};

enum ASGST_FrameTypeId {
  ASGST_FRAME_JAVA = 1,         /* interpreted or compiled */
  ASGST_FRAME_JAVA_INLINED = 2, /* inlined into the next frame */
  ASGST_FRAME_JAVA_NATIVE = 3,  /* native method */
  ASGST_FRAME_NON_JAVA = 4      /* C, C++, stubs of the VM */
};

enum ASGST_Options {
  ASGST_INCLUDE_NON_JAVA_FRAMES = 1,
  /* The first frame with bytecodes is the last: ASGST_NextFrame returns 0 with its type, pc, sp and fp. */
  ASGST_END_ON_FIRST_JAVA_FRAME = 2
};

/* Kinds of a trace, returned by ASGST_RunWithIterator. */
enum ASGST_TRACE_KIND {
  ASGST_JAVA_TRACE = 1,
  ASGST_NON_JAVA_TRACE = 2
};

enum ASGST_Error {
  ASGST_NO_FRAME = 0,             /* end of the stack */
  ASGST_NO_THREAD = -1,           /* the API is not ready, or the thread is not known to the VM */
  ASGST_THREAD_EXIT = -2,         /* the thread is ending */
  ASGST_UNSAFE_STATE = -3,        /* never returned: walks are possible in every state */
  ASGST_NO_TOP_JAVA_FRAME = -4,   /* a thread of the VM that runs no Java code, such as a compiler's */
  ASGST_ENQUEUE_NO_QUEUE = -5,
  ASGST_ENQUEUE_FULL_QUEUE = -6,
  ASGST_ENQUEUE_OTHER_ERROR = -7
};

/* Codes below -16 are specific to this implementation. */
enum TICKWALK_Error {
  /* More walks ran at the same time than memory was prepared for; a later call succeeds. */
  TICKWALK_BUSY = -17,
  /* The stack pointer is on no stack whose bounds are known. */
  TICKWALK_UNKNOWN_STACK = -18,
  /* This code and those below it: the stack continues and could not be followed; ASGST_RunWithIterator returns them if no
     frame was found at all. The cause is TICKWALK_CUT - code, by the list in design/stack-walk-api.md. */
  TICKWALK_CUT = -32
};

/* A frame. 48 bytes. */
typedef struct {
  uint8_t type;        /* ASGST_FrameTypeId; 0 if there is no frame */
  int comp_level;      /* 0 interpreted, 1 to 4 tier of the compiler, -1 undefined */
  int bci;             /* -1 if there is none, as in native methods */
  ASGST_Method method; /* null in frames of type ASGST_FRAME_NON_JAVA */
  void *pc;            /* the interrupted instruction in the first frame, else a return address */
  void *sp;            /* of the physical frame, also for methods inlined into it */
  void *fp;            /* frame pointer register while the frame runs */
} ASGST_Frame;

/*
 * Names of a method. The caller sets the buffers and their sizes; a null buffer, or size 0, is skipped.
 * Texts are cut at the size and end with NUL. On return each *_length is the length of the whole text in bytes of
 * modified UTF-8, without NUL; 0 for skipped texts.
 */
typedef struct {
  ASGST_Class klass;
  char *method_name;
  jint method_name_length;
  char *signature;
  jint signature_length;
  char *generic_signature;        /* always empty */
  jint generic_signature_length;
  jint modifiers;                 /* access flags of the class file */
  jint idnum;                     /* number of the method in its class; redefinition keeps it */
  jlong class_idnum;              /* see ASGST_GetClassIdNum */
} ASGST_MethodInfo;

/* Names of a class, by the same rules. class_name is internal: java/lang/Thread. */
typedef struct {
  char *class_name;
  jint class_name_length;
  char *generic_class_name;       /* always empty */
  jint generic_class_name_length;
  jint modifiers;                 /* always 0 */
  jlong idnum;
} ASGST_ClassInfo;

typedef struct {
  jint start_bci;
  jint line_number;
} ASGST_MethodLineNumberEntry;

/* An element of a queue: the first frame with bytecodes, and the argument of ASGST_Enqueue. */
typedef struct {
  void *pc;
  void *fp;
  void *sp;
  void *arg;
} ASGST_QueueElement;

typedef struct {
  jint size;     /* elements that wait */
  jint capacity; /* elements that the queue holds */
  jint attempts; /* calls of ASGST_Enqueue after the last drain, refused ones included */
} ASGST_QueueSizeInfo;

typedef void (*ASGST_IteratorHandler)(ASGST_Iterator *iterator, void *argument);
typedef void (*ASGST_Handler)(ASGST_Iterator *iterator, void *queue_argument, void *enqueue_argument);
typedef void (*ASGST_OnQueueSafepointHandler)(ASGST_Queue *queue, ASGST_Iterator *iterator, void *argument);
typedef void (*ASGST_ClassUnloadHandler)(ASGST_Class klass, ASGST_Method *methods, int count, bool redefined,
                                         void *argument);
typedef void (*ASGST_FrameMarkHandler)(ASGST_FrameMark *mark, ASGST_Iterator *iterator, void *argument);

/* ---- Walking: signal safe ---- */

/* Bits of enum ASGST_Capabilities: ASGST_REGISTER_QUEUE; 0 before the API is ready and in VMs that are not supported.
   Frame marks are not served. */
int ASGST_Capabilities(void);

/*
 * Calls `fun` with an iterator over the calling thread's stack and returns the kind of the trace (1 or 2); or returns
 * 0 or a negative code without calling it.
 *
 * ucontext: third argument of the signal handler that calls, or null to walk from the thread's last Java frame, or from
 * the caller of this function if there is none.
 * options: bits of ASGST_Options. Threads that the VM does not know, and Java threads without a Java frame, have a
 * trace (of kind 2 for the former) only with ASGST_INCLUDE_NON_JAVA_FRAMES.
 * The iterator is valid until `fun` returns, on this thread only. `fun` must return: no longjmp, no exception.
 */
int ASGST_RunWithIterator(void *ucontext, int32_t options, ASGST_IteratorHandler fun, void *argument);

/* As ASGST_RunWithIterator, from the frame with these registers, which must be on the calling thread's stack. */
int ASGST_RunWithIteratorFromFrame(void *sp, void *fp, void *pc, int options, ASGST_IteratorHandler fun,
                                   void *argument);

/* Fills `frame` and returns 1; or returns 0 at the end of the stack, or a negative code if the stack cannot be followed
   any further. The frame is then reset: type 0, null pointers, bci and comp_level -1. */
int ASGST_NextFrame(ASGST_Iterator *iterator, ASGST_Frame *frame);

/* Moves the iterator back to the first frame. */
void ASGST_RewindIterator(ASGST_Iterator *iterator);

/* 1 if the iterator has a frame; else what ASGST_NextFrame returns. */
int ASGST_State(ASGST_Iterator *iterator);

/* JVMTI thread state of the calling thread: ALIVE (0x1), with IN_NATIVE (0x400000) in native code; -1 if the VM does not
   know the thread. */
int ASGST_ThreadState(void);

/* ---- Methods and classes: signal safe unless stated otherwise ---- */

/* Fills `info`; texts are empty, `klass` null and numbers 0 if the method's class was unloaded. */
void ASGST_GetMethodInfo(ASGST_Method method, ASGST_MethodInfo *info);

/* Number of the method in its class, 0 if it is not valid. */
jint ASGST_GetMethodIdNum(ASGST_Method method);

/* Writes at most `length` entries and returns how many the method has; 0 if it is not valid or has none. */
int ASGST_GetMethodLineNumberTable(ASGST_Method method, ASGST_MethodLineNumberEntry *entries, int length);

/* Line of a bytecode, -1 if it is unknown. */
jint ASGST_GetMethodLineNumber(ASGST_Method method, jint bci);

/* Fills `info`; texts are empty and numbers 0 if the class was unloaded. */
void ASGST_GetClassInfo(ASGST_Class klass, ASGST_ClassInfo *info);

/* A number that differs between loaded classes, 0 if the class is not valid. */
jlong ASGST_GetClassIdNum(ASGST_Class klass);

/* The class of a method, null if the method is not valid. */
ASGST_Class ASGST_GetClass(ASGST_Method method);

/* The method's jmethodID if the VM has made one, else null. */
jmethodID ASGST_MethodToJMethodID(ASGST_Method method);

/* The method of a jmethodID; null if it is none, and on JVMs whose jmethodIDs are no addresses. */
ASGST_Method ASGST_JMethodIDToMethod(jmethodID id);

/* Not served: null. */
ASGST_Class ASGST_JClassToClass(jclass klass);

/* Not served: null. */
jclass ASGST_ClassToJClass(ASGST_Class klass);

/*
 * ---- Unloading ----
 *
 * Where this differs from the proposal, which calls handlers before the VM frees a class:
 * - They are called after a collection has freed it, by the thread "tickwalk-queues" as functions of queues are, within some
 *   50 ms. klass and methods are the addresses that the class had: names cannot be read any more, and the VM may have given the
 *   addresses to another class.
 * - Each class with at least one method that JVMTI reports as loaded or prepared is reported once. Redefinition is not
 *   reported: `redefined` is always false.
 * - The first registration makes the jmethodIDs of all classes that are loaded, and from then on those of each new class.
 * - JDK 11 to 25; later jmethodIDs are no addresses, and handlers are never called.
 */

/* Registers a function. For threads that are attached to the VM, in native code; not signal safe. */
void ASGST_RegisterClassUnloadHandler(ASGST_ClassUnloadHandler fun, void *argument);
/* Returns true if it was registered with this argument. It is not called after this has returned. Not signal safe. */
bool ASGST_DeregisterClassUnloadHandler(ASGST_ClassUnloadHandler fun, void *argument);

/*
 * ---- Queues ----
 *
 * ASGST_Enqueue copies the thread's stack in the signal handler; a thread of the library calls the queue's functions later.
 * Where this differs from the proposal, in which the queue's own thread calls them at its next safepoint:
 * - The functions are called by one native thread, "tickwalk-queues", for all queues one after the other. It is not attached to
 *   the VM and has all signals blocked. They may allocate and lock, and must use neither JNI nor JVMTI.
 * - They are called within some 10 ms if the processors are free, 50 ms after a second without elements; before the VM ends (VMDeath, for
 *   clients that are loaded after the library) everything that waits is handled, for at most 2 s.
 * - The stack is that of the moment of ASGST_Enqueue, native frames included. The iterator begins at the enqueued frame; pc,
 *   sp and fp of all frames are set and are addresses of that moment. Stacks above 1 MiB end in a code below -32.
 * - If the VM may have unloaded classes or freed code after the capture, the iterator has no frames and its state is -46.
 *   Without the VM's counters (-XX:-UsePerfData) this is not noticed.
 * - An element that ASGST_GetQueueElement has returned stays in the queue, with all that are younger, until the next
 *   ASGST_Enqueue for the queue, or for 200 ms. It may be read and changed that long.
 * The first queue starts the thread and reserves 34 MiB of addresses for stacks, of which pages take memory when used.
 */

/* Registers a queue of `size` elements for the thread with this environment, null: the calling thread. Returns null if the
   VM does not list the thread, size is not positive, `fun` is null, or there is no memory. Not signal safe. The queue ends
   with its thread; what waits then is handled. */
ASGST_Queue *ASGST_RegisterQueue(JNIEnv *env, int size, int options, ASGST_Handler fun, void *argument);

/* Ends a queue; elements that wait are dropped. Returns true if it was registered. No function of the queue is called after
   this has returned. Not signal safe. */
bool ASGST_DeregisterQueue(JNIEnv *env, ASGST_Queue *queue);

/* `before` is called once before the elements of a drain, null removes it. Its iterator is always null: there is no frame
   of a safepoint. Not signal safe. */
void ASGST_SetOnQueueProcessingStart(ASGST_Queue *queue, int options, bool offer_iterator,
                                     ASGST_OnQueueSafepointHandler before, void *argument);

/* `end` is called once after the elements of a drain; as ASGST_SetOnQueueProcessingStart. */
void ASGST_SetOnQueueProcessingEnd(ASGST_Queue *queue, int options, bool offer_iterator,
                                   ASGST_OnQueueSafepointHandler end, void *argument);

/* Captures the calling thread's stack and returns 1. Returns ASGST_ENQUEUE_NO_QUEUE for null; ASGST_ENQUEUE_FULL_QUEUE; what
   ASGST_RunWithIterator would return if there is no frame with bytecodes; ASGST_ENQUEUE_OTHER_ERROR if the queue is closed
   or of another thread, if a call for the queue was interrupted by the signal, or if no memory for stacks is free.
   Signal safe. */
int ASGST_Enqueue(ASGST_Queue *queue, void *ucontext, void *argument);

/* Returns 1 and the frame that a queue would hold, `arg` null; or what ASGST_RunWithIterator would return. Signal safe. */
int ASGST_GetEnqueuableElement(void *ucontext, ASGST_QueueElement *element);

/* Element n, 0 the oldest, -1 the youngest; null if there is none, or the thread that drains has taken it. For the
   queue's thread, and for functions of the queue, to which the element that is handled is the oldest. Signal safe. */
ASGST_QueueElement *ASGST_GetQueueElement(ASGST_Queue *queue, int n);

/* Signal safe; for the queue's thread and for functions of the queue. */
ASGST_QueueSizeInfo ASGST_GetQueueSizeInfo(ASGST_Queue *queue);

/* The number of elements that wait. Signal safe. */
int ASGST_QueueSize(ASGST_Queue *queue);

/* Takes effect at the end of the next drain. Signal safe. */
void ASGST_ResizeQueue(ASGST_Queue *queue, int size);

/* ---- Frame marks: not served, see ASGST_Capabilities ---- */

/* Returns null. */
ASGST_FrameMark *ASGST_RegisterFrameMark(JNIEnv *env, ASGST_FrameMarkHandler fun, int options, void *argument);
/* Without effect. */
void ASGST_MoveFrameMark(ASGST_FrameMark *mark, void *new_sp);
/* Returns null. */
void *ASGST_GetFrameMarkStackPointer(ASGST_FrameMark *mark);
/* Without effect. */
void ASGST_RemoveFrameMark(ASGST_FrameMark *mark);

#ifdef __cplusplus
}
#endif

#endif
