//! Field offsets of the classes that keep a virtual thread's frames.
//!
//! Problem: no table of the VM names them, and they differ between releases and flags.
//! Approach: `jdk.internal.misc.Unsafe` returns the byte offset of a field by its class and name, and reads the
//! `Klass` of a class out of its mirror, at the offset that the tables give. JNI's field ids hold offsets as well,
//! in a form that changes: read as on JDK 21 to 27, the ids of JDK 28 and of checked JNI give wrong offsets. No
//! class is initialised: that would run Java code at each start, and a VM without continuations must not initialise
//! these.
//! Sources: `jdk/internal/misc/Unsafe.java`, `classfile/javaClasses.hpp`, JDK 21 to 28;
//! `runtime/jfieldIDWorkaround.hpp`, JDK 21 and 25.

use std::ffi::CStr;

use jni::sys::{jclass, jmethodID, jobject, jvalue};
use stackwalk::{ChunkBottom, ChunkClass, HotSpot, Memory, NameClass};

use crate::jvmti::jni_calls::Jni;

/// First feature release whose virtual threads are not a preview.
pub const FIRST_WITH_VIRTUAL_THREADS: u32 = 21;

/// First feature release in which `ARRAY_BYTE_BASE_OFFSET` is a long.
const FIRST_WITH_LONG_OFFSETS: u32 = 25;

const UNSAFE: &CStr = c"jdk.internal.misc.Unsafe";

/// The one instance of `jdk.internal.misc.Unsafe`, and its methods.
struct Offsets<'a> {
    jni: &'a Jni,
    instance: jobject,
    /// `long objectFieldOffset(Class, String)`: the offset of an instance field, private ones included.
    field_offset: jmethodID,
    /// `long getLong(Object, long)`.
    get_long: jmethodID,
    /// Offset of the `Klass*` in a class's mirror.
    klass_in_mirror: u32,
}

impl Jni {
    /// Returns what is needed to follow frozen frames; `None` if this VM has none or hides them.
    pub fn chunk_class(&self, hotspot: &HotSpot, memory: &impl Memory) -> Option<ChunkClass> {
        let has_continuations = hotspot.bool_flag(memory, "VMContinuations") != Some(false);
        if hotspot.jdk_major() < FIRST_WITH_VIRTUAL_THREADS || !has_continuations {
            return None;
        }
        let offsets = Offsets::new(self, hotspot.class_klass_offset(memory)?)?;
        let chunk = self.boot_class(c"jdk.internal.vm.StackChunk")?;
        let continuation = self.boot_class(c"jdk.internal.vm.Continuation")?;
        let thread = self.boot_class(c"java.lang.Thread")?;
        let bottom = match offsets.field(chunk, c"bottom") {
            Some(offset) => ChunkBottom::Field(offset),
            None => ChunkBottom::Arguments(offsets.field(chunk, c"argsize")?),
        };
        let found = ChunkClass {
            klass: offsets.klass(chunk)?,
            parent: offsets.field(chunk, c"parent")?,
            size: offsets.field(chunk, c"size")?,
            sp: offsets.field(chunk, c"sp")?,
            bottom,
            tail: offsets.field(continuation, c"tail")?,
            thread_id: offsets.field(thread, c"tid")?,
            name: offsets.name_class(thread, hotspot.jdk_major() >= FIRST_WITH_LONG_OFFSETS),
        };
        for reference in [chunk, continuation, thread, offsets.instance] {
            self.release(reference);
        }
        Some(found)
    }
}

impl<'a> Offsets<'a> {
    fn new(jni: &'a Jni, klass_in_mirror: u32) -> Option<Self> {
        let class = jni.boot_class(UNSAFE)?;
        let field_offset =
            jni.method(class, c"objectFieldOffset", c"(Ljava/lang/Class;Ljava/lang/String;)J")?;
        let get_long = jni.method(class, c"getLong", c"(Ljava/lang/Object;J)J")?;
        let instance = jni.call_getter(class, c"getUnsafe", c"()Ljdk/internal/misc/Unsafe;")?;
        jni.release(class);
        Some(Self { jni, instance, field_offset, get_long, klass_in_mirror })
    }

    /// Byte offset of an instance field.
    fn field(&self, class: jclass, name: &CStr) -> Option<u32> {
        let name = self.jni.string(name)?;
        let arguments = [jvalue { l: class }, jvalue { l: name }];
        // SAFETY: a method of the instance's class that takes a class and a string.
        let offset = unsafe { self.jni.call_long(self.instance, self.field_offset, &arguments) };
        self.jni.release(name);
        u32::try_from(offset?).ok().filter(|&offset| offset != 0)
    }

    /// The `Klass*` of a class, which the VM keeps in the class's mirror.
    fn klass(&self, class: jclass) -> Option<u64> {
        let arguments = [jvalue { l: class }, jvalue { j: i64::from(self.klass_in_mirror) }];
        // SAFETY: a method of the instance's class that takes an object and a long; every mirror has a pointer there.
        let klass = unsafe { self.jni.call_long(self.instance, self.get_long, &arguments) }?;
        Some(klass.cast_unsigned()).filter(|&klass| klass != 0)
    }

    /// Offsets on the way from a `Thread` to the bytes of its name.
    fn name_class(&self, thread: jclass, expects_long: bool) -> Option<NameClass> {
        let (string, bytes) = (self.jni.boot_class(c"java.lang.String")?, self.jni.boot_class(c"[B")?);
        let found = NameClass {
            name: self.field(thread, c"name")?,
            value: self.field(string, c"value")?,
            coder: self.field(string, c"coder")?,
            string: self.klass(string)?,
            bytes: self.klass(bytes)?,
            first_byte: self.first_byte(expects_long)?,
        };
        self.jni.release(string);
        self.jni.release(bytes);
        Some(found)
    }

    /// Offset of the first element of a `byte[]`: an int, or a long in later releases.
    ///
    /// A look-up that fails makes an exception, which takes 0.2 ms, so the expected type comes first.
    fn first_byte(&self, expects_long: bool) -> Option<u32> {
        const NAME: &CStr = c"ARRAY_BYTE_BASE_OFFSET";
        let class = self.jni.boot_class(UNSAFE)?;
        let int = || self.jni.static_int(class, NAME).map(i64::from);
        let long = || self.jni.static_long(class, NAME);
        let value = if expects_long { long().or_else(int) } else { int().or_else(long) };
        self.jni.release(class);
        u32::try_from(value?).ok()
    }
}
