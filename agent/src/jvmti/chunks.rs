//! Field offsets of the classes that keep a virtual thread's frames, asked of JNI.
//!
//! Problem: no table of the VM names them, and they differ between releases and flags.
//! Approach: the id of an instance field is its byte offset, shifted by two, with a tag in the low bits; the `Klass` of a
//! class is read from the mirror through such an id made of the offset that the tables give.
//! Checked JNI writes other ids, and a VM without continuations must not initialise these classes: neither is asked.
//! Sources: `runtime/jfieldIDWorkaround.hpp`, `classfile/javaClasses.hpp`, JDK 21 and 25.

use std::ffi::CStr;

use jni::sys::{jclass, jfieldID};
use stackwalk::{ChunkBottom, ChunkClass, HotSpot, Memory, NameClass};

use super::Jni;

/// Low bits of an id that say: an instance field, and nothing but its offset above them.
const INSTANCE: usize = 2;
/// The low bits.
const TAG_MASK: usize = 3;
/// Shift of the offset.
const TAG_BITS: u32 = 2;

/// First feature release whose virtual threads are not a preview.
pub const FIRST_WITH_VIRTUAL_THREADS: u32 = 21;

impl Jni {
    /// What is needed to follow frozen frames; `None` if this VM has none or hides them.
    pub fn chunk_class(&self, hotspot: &HotSpot, memory: &impl Memory) -> Option<ChunkClass> {
        let flag = |name| hotspot.bool_flag(memory, name);
        let ids_are_plain = flag("CheckJNICalls") == Some(false);
        let continuations = flag("VMContinuations") != Some(false);
        if hotspot.jdk_major() < FIRST_WITH_VIRTUAL_THREADS || !ids_are_plain || !continuations {
            return None;
        }
        let class_klass = hotspot.class_klass_offset(memory)?;
        let chunk = self.class(c"jdk/internal/vm/StackChunk")?;
        let continuation = self.class(c"jdk/internal/vm/Continuation")?;
        let thread = self.class(c"java/lang/Thread")?;
        let bottom = match self.offset(chunk, c"bottom", c"I") {
            Some(offset) => ChunkBottom::Field(offset),
            None => ChunkBottom::Arguments(self.offset(chunk, c"argsize", c"I")?),
        };
        let found = ChunkClass {
            klass: self.klass(chunk, class_klass)?,
            parent: self.offset(chunk, c"parent", c"Ljdk/internal/vm/StackChunk;")?,
            size: self.offset(chunk, c"size", c"I")?,
            sp: self.offset(chunk, c"sp", c"I")?,
            bottom,
            tail: self.offset(continuation, c"tail", c"Ljdk/internal/vm/StackChunk;")?,
            thread_id: self.offset(thread, c"tid", c"J")?,
            name: self.name_class(thread, class_klass),
        };
        for class in [chunk, continuation, thread] {
            self.release(class);
        }
        Some(found)
    }

    /// What leads from a `Thread` to the bytes of its name.
    fn name_class(&self, thread: jclass, class_klass: u32) -> Option<NameClass> {
        let (string, bytes) = (self.class(c"java/lang/String")?, self.class(c"[B")?);
        let found = NameClass {
            name: self.offset(thread, c"name", c"Ljava/lang/String;")?,
            value: self.offset(string, c"value", c"[B")?,
            coder: self.offset(string, c"coder", c"B")?,
            string: self.klass(string, class_klass)?,
            bytes: self.klass(bytes, class_klass)?,
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

    /// Byte offset of an instance field.
    fn offset(&self, class: jclass, name: &CStr, signature: &CStr) -> Option<u32> {
        // SAFETY: a live reference and NUL-terminated names.
        let field =
            unsafe { (self.functions().GetFieldID)(self.env, class, name.as_ptr(), signature.as_ptr()) };
        self.clear_unless(!field.is_null())?;
        let id = field as usize;
        u32::try_from(id >> TAG_BITS).ok().filter(|&offset| id & TAG_MASK == INSTANCE && offset != 0)
    }

    /// The `Klass*` of a class, injected into its mirror at `offset`.
    fn klass(&self, class: jclass, offset: u32) -> Option<u64> {
        let field = ((offset as usize) << TAG_BITS | INSTANCE) as jfieldID;
        // SAFETY: the VM keeps a pointer there in every mirror, and reads a long field by its offset alone.
        let klass = unsafe { (self.functions().GetLongField)(self.env, class, field) };
        Some(klass.cast_unsigned()).filter(|&klass| klass != 0)
    }

    fn release(&self, class: jclass) {
        // SAFETY: a local reference of this thread, not used again.
        unsafe { (self.functions().DeleteLocalRef)(self.env, class) };
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
