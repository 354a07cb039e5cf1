//! Classes and ids of methods, and whether they are still loaded.
//!
//! Problem: an address of a `Method` outlives the method. Its memory is freed when its class is unloaded, and may keep
//! its content, be unmapped or be used again.
//! Approach: what is loaded is linked from the VM's own lists. A class is loaded if its `ClassLoaderData` is in the
//! list of all of them, from which the VM removes it before it frees anything; a method is one of its class's.
//! Invariant: every loop is bounded, and every pointer is read through [`Memory`].
//! A jmethodID is found in the table of its class, by the method's number; the VM fills the table when an id is
//! requested. Up to JDK 25 an id is the address of a word that holds the method; later ones are numbers of another
//! table.
//! Sources: `oops/{instanceKlass,constMethod,method}.{hpp,cpp}`, `classfile/classLoaderDataGraph.cpp`, JDK 11 to 25.

use super::HotSpot;
use super::method::{MethodError, Symbol, follow, pointer};
use crate::frame::Method;
use crate::limits::{MAX_LOADERS, MAX_METHODS};
use crate::memory::{Memory, at};

/// Address of an `InstanceKlass`: a class in the VM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Class(pub u64);

/// Methods of a class that are compared at once.
const BLOCK: usize = 16;

impl HotSpot {
    /// The class that declares a method.
    ///
    /// # Errors
    /// [`MethodError`] if `method` is not a method.
    pub fn class_of<M: Memory + ?Sized>(&self, memory: &M, method: Method) -> Result<Class, MethodError> {
        Ok(Class(follow(memory, at(self.pool(memory, method)?, self.layout.method.pool_holder))?))
    }

    /// The name of a class in internal form, `java/lang/Thread`.
    ///
    /// # Errors
    /// [`MethodError`] if `class` is not a class.
    pub fn class_name<M: Memory + ?Sized>(&self, memory: &M, class: Class) -> Result<Symbol, MethodError> {
        Ok(Symbol(follow(memory, at(pointer(class.0)?, self.layout.method.klass_name))?))
    }

    /// The number of a method in its class, which redefinition keeps; `None` if this VM's tables lack it.
    ///
    /// # Errors
    /// [`MethodError`] if `method` is not a method.
    pub fn method_number<M: Memory + ?Sized>(
        &self,
        memory: &M,
        method: Method,
    ) -> Result<Option<u16>, MethodError> {
        let const_method = self.const_method(memory, method)?;
        match self.layout.metadata.method_number {
            Some(offset) => Ok(Some(memory.read_u16(at(const_method, offset))?)),
            None => Ok(None),
        }
    }

    /// The jmethodID of a method, if the VM has made one.
    pub fn method_id<M: Memory + ?Sized>(&self, memory: &M, method: Method) -> Option<u64> {
        let (layout, own) = (&self.layout.metadata, &self.layout.method);
        let const_method = self.const_method(memory, method).ok()?;
        // The number lies in the word that is read with the address of the pool: one read less.
        let number_at = at(const_method, layout.method_number?);
        let words = [at(const_method, own.constants), number_at & !7];
        let [pool, number] = memory.read_words(words).ok()?;
        let number = number.to_ne_bytes();
        let number =
            number.get((number_at & 7) as usize..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))?;
        let number = u64::from(number);
        let class = memory.read_u64(at(pointer(pool).ok()?, own.pool_holder)).ok()?;
        let ids = memory.read_u64(at(pointer(class).ok()?, layout.method_ids?)).ok()?;
        if ids == 0 || !ids.is_multiple_of(8) {
            return None;
        }
        // The first word is the number of ids that follow. A slot behind them may be unreadable.
        let slot = ids.checked_add((number + 1) * 8)?;
        let [count, id] = memory.read_words([ids, slot]).ok()?;
        (number < count && id != 0).then_some(id)
    }

    /// The method of a jmethodID that is the address of a word; `None` for any other.
    pub fn method_of_id<M: Memory + ?Sized>(&self, memory: &M, id: u64) -> Option<Method> {
        if id == 0 || !id.is_multiple_of(8) {
            return None;
        }
        let method = Method(memory.read_u64(id).ok()?);
        (self.method_id(memory, method) == Some(id)).then_some(method)
    }

    /// Returns whether a class is loaded; true if this VM's tables cannot tell.
    pub fn is_loaded<M: Memory + ?Sized>(&self, memory: &M, class: Class) -> bool {
        let layout = &self.layout.metadata;
        let (Some(owner), Some(graph), Some(next)) =
            (layout.loader_data, layout.loader_graph, layout.loader_next)
        else {
            return true;
        };
        let Ok(owner) = memory.read_u64(at(class.0, owner)) else { return false };
        let mut loader = memory.read_u64(graph).unwrap_or(0);
        for _ in 0..MAX_LOADERS {
            if loader == 0 || !loader.is_multiple_of(8) {
                return false;
            }
            if loader == owner {
                return true;
            }
            loader = memory.read_u64(at(loader, next)).unwrap_or(0);
        }
        false
    }

    /// Returns whether a method is one of its class's; true if this VM's tables cannot tell.
    ///
    /// Methods that redefinition has replaced are not.
    pub fn is_declared<M: Memory + ?Sized>(&self, memory: &M, class: Class, method: Method) -> bool {
        let layout = &self.layout.metadata;
        let (Some(methods), Some(length), Some(data)) =
            (layout.methods, layout.array_length, layout.methods_data)
        else {
            return true;
        };
        let Ok(array) = memory.read_u64(at(class.0, methods)) else { return false };
        let count = memory.read_u32(at(array, length)).map_or(0, u64::from).min(MAX_METHODS);
        let mut block = [0; 8 * BLOCK];
        let mut position = 0;
        while position < count {
            let here = usize::try_from(count - position).unwrap_or(0).min(BLOCK);
            let Some(bytes) = block.get_mut(..8 * here) else { return false };
            if memory.read(at(array, data).wrapping_add(position * 8), bytes).is_err() {
                return false;
            }
            if bytes.as_chunks::<8>().0.contains(&method.0.to_ne_bytes()) {
                return true;
            }
            position += here as u64;
        }
        false
    }
}
