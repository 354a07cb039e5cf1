//! The JNI calls of the agent, checked.
//!
//! Problem: a look-up that fails returns null and leaves an exception pending, which must not stay in a callback.
//! Approach: one method for each kind of look-up and call; each clears the exception and returns `None`. Checked
//! JNI (`-Xcheck:jni`) demands a check for exceptions after each call of a method, and more than 16 local references
//! announced.
//! Source: JNI specification.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use jni::sys::{
    JNI_FALSE, JNIEnv, JNINativeInterface_, JNINativeInterface__1_1, JNINativeMethod, JavaVM, jclass,
    jfieldID, jint, jmethodID, jobject, jvalue,
};
use sampler_thread::characters::{from_modified_utf8, to_modified_utf8};

use super::ThreadRef;

/// The JNI environment of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Jni {
    env: *mut JNIEnv,
}

/// Most local references that the VM lets a frame have by default (`MaxJNILocalCapacity` in `runtime/globals.hpp`,
/// JDK 11 to 25); announcing them takes no memory.
pub const MOST_REFERENCES: usize = 65_536;

/// A function that finds a field or a method of a class by name and signature.
type LookUp<T> = unsafe extern "system" fn(*mut JNIEnv, jclass, *const c_char, *const c_char) -> *mut T;

/// Id of a field of `java.lang.Thread`, a class that is never unloaded.
type ThreadField = OnceLock<usize>;

impl Jni {
    /// Wraps the pointer a callback received.
    ///
    /// # Safety
    /// `env` is the JNI environment of the calling thread.
    pub unsafe fn new(env: *mut JNIEnv) -> Self {
        Self { env }
    }

    /// Address of the environment, which lies inside the thread's `JavaThread`.
    pub fn address(&self) -> u64 {
        self.env as u64
    }

    /// Runs `body`, which makes at most so many local references, and deletes those that it leaves.
    pub fn in_frame<T>(&self, references: usize, body: impl FnOnce() -> T) -> T {
        let references = jint::try_from(references).unwrap_or(jint::MAX);
        // SAFETY: the functions of JNI 1.2 are in every table.
        let functions = unsafe { &self.table().v1_2 };
        // SAFETY: always allowed.
        let has_frame = unsafe { (functions.PushLocalFrame)(self.env, references) } == 0;
        let result = body();
        if has_frame {
            // SAFETY: the frame was pushed above; no reference is passed on.
            unsafe { (functions.PopLocalFrame)(self.env, std::ptr::null_mut()) };
        }
        result
    }

    /// Returns `java.lang.Thread.eetop` of a thread: the address of its `JavaThread`; `None` if it is not alive.
    pub fn java_thread(&self, thread: ThreadRef) -> Option<u64> {
        static FIELD: ThreadField = ThreadField::new();
        let field = self.thread_field(thread, &FIELD, c"eetop", c"J")?;
        // SAFETY: `thread` is a java.lang.Thread and the field one of its long fields.
        let value = unsafe { (self.functions().GetLongField)(self.env, thread.0, field) };
        Some(value.cast_unsigned()).filter(|&address| address != 0)
    }

    /// Returns the name of a thread, by its field `java.lang.Thread.name` (JDK 11 to 28).
    ///
    /// GetThreadInfo visits all threads of the VM for it from JDK 21 on (`JvmtiVTMSTransitionDisabler` in
    /// `share/prims/jvmtiThreadState.cpp`).
    pub fn thread_name(&self, thread: ThreadRef) -> Option<String> {
        static FIELD: ThreadField = ThreadField::new();
        let field = self.thread_field(thread, &FIELD, c"name", c"Ljava/lang/String;")?;
        // SAFETY: `thread` is a java.lang.Thread and the field one of its fields of a reference type.
        let name = unsafe { (self.functions().GetObjectField)(self.env, thread.0, field) };
        if name.is_null() {
            return None;
        }
        let text = self.text_of(name);
        self.release(name);
        text
    }

    /// Finds a field of `java.lang.Thread`, which is looked up once.
    fn thread_field(
        &self,
        thread: ThreadRef,
        known: &ThreadField,
        name: &CStr,
        signature: &CStr,
    ) -> Option<jfieldID> {
        if let Some(&field) = known.get() {
            return Some(field as jfieldID);
        }
        let class = self.thread_class(thread)?;
        let field = self.look_up(self.functions().GetFieldID, class, name, signature);
        self.release(class);
        let field = field?;
        Some(*known.get_or_init(|| field as usize) as jfieldID)
    }

    /// Returns `java.lang.Thread`, the class below `Object` of which a thread's class is a subclass, as a local
    /// reference.
    ///
    /// FindClass would ask the program's class loader, by Java code that may not be compiled yet.
    fn thread_class(&self, thread: ThreadRef) -> Option<jclass> {
        // SAFETY: `thread` is a live reference.
        let mut class = self.found(unsafe { (self.functions().GetObjectClass)(self.env, thread.0) })?;
        // SAFETY: a class.
        let above = |class| unsafe { (self.functions().GetSuperclass)(self.env, class) };
        let mut parent = above(class);
        while !parent.is_null() {
            let next = above(parent);
            if next.is_null() {
                self.release(parent);
                return Some(class);
            }
            self.release(class);
            (class, parent) = (parent, next);
        }
        self.release(class);
        None
    }

    /// Copies the text of a `java.lang.String`.
    pub(crate) fn text_of(&self, string: jobject) -> Option<String> {
        // SAFETY: a live reference to a string; whether it is a copy is not asked for.
        let bytes = unsafe { (self.functions().GetStringUTFChars)(self.env, string, std::ptr::null_mut()) };
        self.clear_unless(!bytes.is_null())?;
        // SAFETY: the VM returned a NUL-terminated text.
        let text = from_modified_utf8(unsafe { CStr::from_ptr(bytes) }.to_bytes()).into_owned();
        // SAFETY: the bytes are those of this string, and not used again.
        unsafe { (self.functions().ReleaseStringUTFChars)(self.env, string, bytes) };
        Some(text)
    }

    /// Returns a class by name, as a local reference.
    pub(crate) fn class(&self, name: &CStr) -> Option<jclass> {
        // SAFETY: the name is NUL-terminated.
        self.found(unsafe { (self.functions().FindClass)(self.env, name.as_ptr()) })
    }

    /// Returns a class of the boot loader by its name in Java, as a local reference, and does not initialise it.
    ///
    /// FindClass initialises the class, and searches it by the program's class loader, by Java code that may not be
    /// compiled yet.
    pub(crate) fn boot_class(&self, name: &CStr) -> Option<jclass> {
        let name = self.string(name)?;
        // SAFETY: a live reference.
        let class_of = |object| self.found(unsafe { (self.functions().GetObjectClass)(self.env, object) });
        let string = class_of(name)?;
        let class = class_of(string)?;
        let for_name = self.static_method(
            class,
            c"forName",
            c"(Ljava/lang/String;ZLjava/lang/ClassLoader;)Ljava/lang/Class;",
        )?;
        let arguments = [jvalue { l: name }, jvalue { z: JNI_FALSE }, jvalue { l: std::ptr::null_mut() }];
        // SAFETY: a static method of this class that takes a string, a boolean and a reference, and returns an object.
        let found = unsafe {
            (self.functions().CallStaticObjectMethodA)(self.env, class, for_name, arguments.as_ptr())
        };
        self.clear_if_thrown()?;
        [name, string, class].into_iter().for_each(|reference| self.release(reference));
        self.found(found)
    }

    pub(crate) fn method(&self, class: jclass, name: &CStr, signature: &CStr) -> Option<jmethodID> {
        self.look_up(self.functions().GetMethodID, class, name, signature)
    }

    pub(crate) fn static_method(&self, class: jclass, name: &CStr, signature: &CStr) -> Option<jmethodID> {
        self.look_up(self.functions().GetStaticMethodID, class, name, signature)
    }

    /// Calls an instance method that returns a long; `None` if it threw.
    ///
    /// # Safety
    /// `method` is a method of the object's class that takes `arguments`.
    pub(crate) unsafe fn call_long(
        &self,
        object: jobject,
        method: jmethodID,
        arguments: &[jvalue],
    ) -> Option<i64> {
        // SAFETY: `method` is one of the object's class, and takes these arguments.
        let value =
            unsafe { (self.functions().CallLongMethodA)(self.env, object, method, arguments.as_ptr()) };
        self.clear_if_thrown()?;
        Some(value)
    }

    /// Calls a static method without parameters, whose signature says that it returns an object; returns a local
    /// reference.
    pub(crate) fn call_getter(&self, class: jclass, name: &CStr, signature: &CStr) -> Option<jobject> {
        let method = self.static_method(class, name, signature)?;
        // SAFETY: a static method of this class that takes no arguments and returns an object.
        let object =
            unsafe { (self.functions().CallStaticObjectMethodA)(self.env, class, method, std::ptr::null()) };
        self.clear_if_thrown()?;
        self.found(object)
    }

    /// Reads a static int field.
    pub(crate) fn static_int(&self, class: jclass, name: &CStr) -> Option<i32> {
        let field = self.look_up(self.functions().GetStaticFieldID, class, name, c"I")?;
        // SAFETY: a static int field of this class.
        Some(unsafe { (self.functions().GetStaticIntField)(self.env, class, field) })
    }

    /// Reads a static long field.
    pub(crate) fn static_long(&self, class: jclass, name: &CStr) -> Option<i64> {
        let field = self.look_up(self.functions().GetStaticFieldID, class, name, c"J")?;
        // SAFETY: a static long field of this class.
        Some(unsafe { (self.functions().GetStaticLongField)(self.env, class, field) })
    }

    /// Makes a `java.lang.String`, as a local reference.
    pub(crate) fn string(&self, text: &CStr) -> Option<jobject> {
        // SAFETY: the text is NUL-terminated.
        self.found(unsafe { (self.functions().NewStringUTF)(self.env, text.as_ptr()) })
    }

    /// Makes a `java.lang.String` of any text, as a local reference.
    pub(crate) fn string_of(&self, text: &str) -> Option<jobject> {
        let units: Vec<u16> = text.encode_utf16().collect();
        let length = jint::try_from(units.len()).ok()?;
        // SAFETY: that many units lie there.
        self.found(unsafe { (self.functions().NewString)(self.env, units.as_ptr(), length) })
    }

    /// Makes an array of bytes, as a local reference.
    pub(crate) fn byte_array(&self, bytes: &[u8]) -> Option<jobject> {
        let length = jint::try_from(bytes.len()).ok()?;
        // SAFETY: any length is allowed.
        let array = self.found(unsafe { (self.functions().NewByteArray)(self.env, length) })?;
        // SAFETY: the array has this length, and so have the bytes.
        unsafe { (self.functions().SetByteArrayRegion)(self.env, array, 0, length, bytes.as_ptr().cast()) };
        Some(array)
    }

    /// Throws an exception of this class when the native method returns.
    pub(crate) fn throw(&self, class: &CStr, message: &str) {
        // Without a class, the VM throws that it is missing.
        let Ok(message) = CString::new(to_modified_utf8(message)) else { return };
        // SAFETY: the name is NUL-terminated.
        let class = unsafe { (self.functions().FindClass)(self.env, class.as_ptr()) };
        if !class.is_null() {
            // SAFETY: a class of exceptions, and a NUL-terminated text.
            unsafe { (self.functions().ThrowNew)(self.env, class, message.as_ptr()) };
        }
    }

    /// Binds a native method of a class; returns `None` if the class has no such method.
    ///
    /// # Safety
    /// `function` takes and returns what the signature says.
    pub(crate) unsafe fn bind(
        &self,
        class: jclass,
        name: &CStr,
        signature: &CStr,
        function: *mut c_void,
    ) -> Option<()> {
        let (name, signature) = (name.as_ptr().cast_mut(), signature.as_ptr().cast_mut());
        let method = JNINativeMethod { name, signature, fnPtr: function };
        // SAFETY: one method, whose function has this signature.
        let code = unsafe { (self.functions().RegisterNatives)(self.env, class, &raw const method, 1) };
        self.clear_unless(code == 0)
    }

    pub(crate) fn vm(&self) -> Option<*mut JavaVM> {
        let mut vm = std::ptr::null_mut();
        // SAFETY: `vm` is writable.
        let code = unsafe { (self.functions().GetJavaVM)(self.env, &raw mut vm) };
        (code == 0 && !vm.is_null()).then_some(vm)
    }

    /// Makes a global reference, which lives until the VM ends.
    pub(crate) fn keep(&self, reference: jobject) -> Option<jobject> {
        // SAFETY: a live reference.
        self.found(unsafe { (self.functions().NewGlobalRef)(self.env, reference) })
    }

    /// Deletes a local reference, which must not be used again.
    pub(crate) fn release(&self, reference: jobject) {
        // SAFETY: a local reference of this thread, which is not used again.
        unsafe { (self.functions().DeleteLocalRef)(self.env, reference) };
    }

    fn look_up<T>(
        &self,
        function: LookUp<T>,
        class: jclass,
        name: &CStr,
        signature: &CStr,
    ) -> Option<*mut T> {
        // SAFETY: a function of this environment, a live reference and NUL-terminated names.
        self.found(unsafe { function(self.env, class, name.as_ptr(), signature.as_ptr()) })
    }

    fn found<T>(&self, pointer: *mut T) -> Option<*mut T> {
        self.clear_unless(!pointer.is_null())?;
        Some(pointer)
    }

    /// Clears the exception that a method has thrown; returns `None` then.
    fn clear_if_thrown(&self) -> Option<()> {
        // SAFETY: always allowed.
        let thrown = unsafe { (self.functions().ExceptionOccurred)(self.env) };
        self.clear_unless(thrown.is_null())
    }

    /// Clears the exception that a failed call leaves.
    fn clear_unless(&self, succeeded: bool) -> Option<()> {
        if !succeeded {
            // SAFETY: always allowed.
            unsafe { (self.functions().ExceptionClear)(self.env) };
        }
        succeeded.then_some(())
    }

    fn functions(&self) -> &JNINativeInterface__1_1 {
        // SAFETY: the table holds at least the functions of JNI 1.1.
        unsafe { &self.table().v1_1 }
    }

    fn table(&self) -> &JNINativeInterface_ {
        // SAFETY: the environment points at its function table.
        let table = unsafe { *self.env };
        // SAFETY: the table lives as long as the VM.
        unsafe { &*table }
    }
}
