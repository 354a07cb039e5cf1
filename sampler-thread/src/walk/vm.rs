//! The sampled VM as the sampler reads it: the layout of its structures and its memory.

use std::sync::Arc;

use proto::characters::from_modified_utf8;
use stackwalk::{Blob, CachedMemory, HotSpot, Memory, Method, ReadCache, Symbol};

/// Bytes of a name that are read without allocating; nearly all names have fewer. A symbol of the VM has 65,535 at
/// most.
const USUAL_NAME: usize = 2048;

/// The names of a Java method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MethodText {
    /// Internal class name, with slashes.
    pub class_name: String,
    pub name: String,
    pub signature: String,
    /// Source file, empty if unknown.
    pub source_file: String,
    /// JVM access flags.
    pub modifiers: u32,
    /// Hidden from ordinary stack traces.
    pub hidden: bool,
}

/// Layout and memory of the VM.
#[derive(Debug)]
pub struct Vm<M> {
    /// Layout of its structures.
    pub hotspot: Arc<HotSpot>,
    pub memory: M,
}

impl<M: Memory> Vm<M> {
    /// Returns the same VM, read through `lines`.
    pub fn through<'l>(&'l self, lines: &'l ReadCache) -> Vm<CachedMemory<'l, M>> {
        Vm { hotspot: Arc::clone(&self.hotspot), memory: CachedMemory::new(&self.memory, lines) }
    }

    /// Reads the names of a method; `None` if they are unreadable.
    pub fn method_text(&self, method: Method) -> Option<MethodText> {
        let names = self.hotspot.method(&self.memory, method).ok()?;
        Some(MethodText {
            class_name: self.symbol(names.class)?,
            name: self.symbol(names.name)?,
            signature: self.symbol(names.signature)?,
            source_file: names.source_file.and_then(|symbol| self.symbol(symbol)).unwrap_or_default(),
            modifiers: u32::from(names.modifiers),
            hidden: names.hidden,
        })
    }

    /// Reads the name of a stub; empty if it is unreadable.
    pub fn stub_name(&self, blob: Blob) -> String {
        let mut buffer = [0; USUAL_NAME];
        let length = self.hotspot.blob_name(&self.memory, blob, &mut buffer).unwrap_or(0);
        from_modified_utf8(buffer.get(..length).unwrap_or(&buffer)).into_owned()
    }

    /// Reads a name of the VM; `None` if it is unreadable.
    pub fn symbol(&self, symbol: Symbol) -> Option<String> {
        let mut buffer = [0; USUAL_NAME];
        let length = self.hotspot.read_symbol(&self.memory, symbol, &mut buffer).ok()?;
        if let Some(name) = buffer.get(..length) {
            return Some(from_modified_utf8(name).into_owned());
        }
        let mut long = vec![0; length];
        let again = self.hotspot.read_symbol(&self.memory, symbol, &mut long).ok()?;
        // Another length is that of another symbol, which the VM has put in the place of a freed one.
        (again == length).then(|| from_modified_utf8(&long).into_owned())
    }
}
