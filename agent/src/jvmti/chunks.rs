//! Field offsets of the classes that keep a virtual thread's frames, asked of JNI.
//!
//! Problem: no table of the VM names them, and they differ between releases and flags.
//! Approach: `jdk.internal.misc.Unsafe` tells the byte offset of a field by its class and name, and reads the `Klass` of a
//! class out of its mirror, at the offset that the tables give.
//! An id that JNI gives for a field holds its offset as well, but how is each release's own business: read as on JDK 21
//! to 27, those of JDK 28 give wrong offsets, and so do those of checked JNI.
//! A VM without continuations must not initialise these classes: it is not asked.
//! Sources: `jdk/internal/misc/Unsafe.java`, `classfile/javaClasses.hpp`, JDK 21 to 28; `runtime/jfieldIDWorkaround.hpp`,
//! JDK 21 and 25.

use std::ffi::CStr;

use jni::sys::{jclass, jmethodID, jobject, jvalue};
use stackwalk::{ChunkBottom, ChunkClass, HotSpot, Memory, NameClass};

use super::Jni;

/// First feature release whose virtual threads are not a preview.
pub const FIRST_WITH_VIRTUAL_THREADS: u32 = 21;

/// The one instance of `jdk.internal.misc.Unsafe`, and what is called of it.
struct Offsets {
    instance: jobject,
    /// `long objectFieldOffset(Class, String)`: the offset of an instance field, private ones included.
    field_offset: jmethodID,
    /// `long getLong(Object, long)`.
    get_long: jmethodID,
}

impl Jni {
    /// What is needed to follow frozen frames; `None` if this VM has none or hides them.
    pub fn chunk_class(&self, hotspot: &HotSpot, memory: &impl Memory) -> Option<ChunkClass> {
        let flag = |name| hotspot.bool_flag(memory, name);
        let continuations = flag("VMContinuations") != Some(false);
        if hotspot.jdk_major() < FIRST_WITH_VIRTUAL_THREADS || !continuations {
            return None;
        }
        let class_klass = hotspot.class_klass_offset(memory)?;
        let offsets = self.offsets()?;
        let offset = |class, name| self.offset(&offsets, class, name);
        let chunk = self.class(c"jdk/internal/vm/StackChunk")?;
        let continuation = self.class(c"jdk/internal/vm/Continuation")?;
        let thread = self.class(c"java/lang/Thread")?;
        let bottom = match offset(chunk, c"bottom") {
            Some(offset) => ChunkBottom::Field(offset),
            None => ChunkBottom::Arguments(offset(chunk, c"argsize")?),
        };
        let found = ChunkClass {
            klass: self.klass(&offsets, chunk, class_klass)?,
            parent: offset(chunk, c"parent")?,
            size: offset(chunk, c"size")?,
            sp: offset(chunk, c"sp")?,
            bottom,
            tail: offset(continuation, c"tail")?,
            thread_id: offset(thread, c"tid")?,
            name: self.name_class(&offsets, thread, class_klass),
        };
        for class in [chunk, continuation, thread] {
            self.release(class);
        }
        self.release(offsets.instance);
        Some(found)
    }

    /// What leads from a `Thread` to the bytes of its name.
    fn name_class(&self, offsets: &Offsets, thread: jclass, class_klass: u32) -> Option<NameClass> {
        let offset = |class, name| self.offset(offsets, class, name);
        let (string, bytes) = (self.class(c"java/lang/String")?, self.class(c"[B")?);
        let found = NameClass {
            name: offset(thread, c"name")?,
            value: offset(string, c"value")?,
            coder: offset(string, c"coder")?,
            string: self.klass(offsets, string, class_klass)?,
            bytes: self.klass(offsets, bytes, class_klass)?,
            first_byte: self.first_byte()?,
        };
        for class in [string, bytes] {
            self.release(class);
        }
        Some(found)
    }

    /// Offset of the first element of a `byte[]`, a number that later releases keep as a long.
    fn first_byte(&self) -> Option<u32> {
        let class = self.class(c"jdk/internal/misc/Unsafe")?;
        let field = |signature: &CStr| {
            let name = c"ARRAY_BYTE_BASE_OFFSET".as_ptr();
            // SAFETY: a live reference and NUL-terminated names.
            let field =
                unsafe { (self.functions().GetStaticFieldID)(self.env, class, name, signature.as_ptr()) };
            self.clear_unless(!field.is_null())?;
            Some(field)
        };
        let value = match field(c"I") {
            // SAFETY: a static int field of this class.
            Some(field) => i64::from(unsafe { (self.functions().GetStaticIntField)(self.env, class, field) }),
            None => {
                let field = field(c"J")?;
                // SAFETY: a static long field of this class.
                unsafe { (self.functions().GetStaticLongField)(self.env, class, field) }
            }
        };
        self.release(class);
        u32::try_from(value).ok()
    }

    /// A class by name, as a local reference.
    fn class(&self, name: &CStr) -> Option<jclass> {
        // SAFETY: the environment is that of the calling thread, the name is NUL-terminated.
        let class = unsafe { (self.functions().FindClass)(self.env, name.as_ptr()) };
        self.clear_unless(!class.is_null())?;
        Some(class)
    }

    /// The instance of `Unsafe`, a local reference.
    fn offsets(&self) -> Option<Offsets> {
        let class = self.class(c"jdk/internal/misc/Unsafe")?;
        let method = |name: &CStr, signature: &CStr| {
            // SAFETY: a live reference and NUL-terminated names.
            let method =
                unsafe { (self.functions().GetMethodID)(self.env, class, name.as_ptr(), signature.as_ptr()) };
            self.clear_unless(!method.is_null())?;
            Some(method)
        };
        let field_offset = method(c"objectFieldOffset", c"(Ljava/lang/Class;Ljava/lang/String;)J")?;
        let get_long = method(c"getLong", c"(Ljava/lang/Object;J)J")?;
        let (name, signature) = (c"getUnsafe".as_ptr(), c"()Ljdk/internal/misc/Unsafe;".as_ptr());
        // SAFETY: a live reference and NUL-terminated names.
        let getter = unsafe { (self.functions().GetStaticMethodID)(self.env, class, name, signature) };
        self.clear_unless(!getter.is_null())?;
        // SAFETY: a static method of this class that takes no arguments and returns an object.
        let instance =
            unsafe { (self.functions().CallStaticObjectMethodA)(self.env, class, getter, std::ptr::null()) };
        self.clear_unless(!instance.is_null())?;
        self.release(class);
        Some(Offsets { instance, field_offset, get_long })
    }

    /// Byte offset of an instance field.
    fn offset(&self, offsets: &Offsets, class: jclass, name: &CStr) -> Option<u32> {
        // SAFETY: a NUL-terminated name.
        let name = unsafe { (self.functions().NewStringUTF)(self.env, name.as_ptr()) };
        self.clear_unless(!name.is_null())?;
        let arguments = [jvalue { l: class }, jvalue { l: name }];
        let offset = self.call(offsets.instance, offsets.field_offset, &arguments);
        self.release(name);
        u32::try_from(offset?).ok().filter(|&offset| offset != 0)
    }

    /// The `Klass*` of a class, injected into its mirror at `offset`.
    fn klass(&self, offsets: &Offsets, class: jclass, offset: u32) -> Option<u64> {
        let arguments = [jvalue { l: class }, jvalue { j: i64::from(offset) }];
        // The VM keeps a pointer there in every mirror, whatever its fields are said to be.
        let klass = self.call(offsets.instance, offsets.get_long, &arguments)?;
        Some(klass.cast_unsigned()).filter(|&klass| klass != 0)
    }

    /// Calls a method that returns a long; `None` if it threw.
    fn call(&self, object: jobject, method: jmethodID, arguments: &[jvalue; 2]) -> Option<i64> {
        // SAFETY: a live reference, a method of its class, and arguments of the types it takes.
        let value =
            unsafe { (self.functions().CallLongMethodA)(self.env, object, method, arguments.as_ptr()) };
        // SAFETY: always allowed.
        let thrown = unsafe { (self.functions().ExceptionOccurred)(self.env) };
        self.clear_unless(thrown.is_null())?;
        Some(value)
    }

    fn release(&self, reference: jobject) {
        // SAFETY: a local reference of this thread, not used again.
        unsafe { (self.functions().DeleteLocalRef)(self.env, reference) };
    }

    /// Clears the exception that a failed look-up leaves.
    fn clear_unless(&self, found: bool) -> Option<()> {
        if !found {
            // SAFETY: always allowed.
            unsafe { (self.functions().ExceptionClear)(self.env) };
        }
        found.then_some(())
    }
}
