//! The sampled VM as the sampler reads it: the layout of its structures and its memory.

use std::sync::Arc;

use stackwalk::{Blob, HotSpot, Lines, Memory, Method, Nearby, Symbol};

use crate::name::dictionaries::MethodText;

/// Longest name that is read from the VM, in bytes; longer ones are cut.
const MAX_NAME: usize = 2048;

/// Layout and memory of the VM.
#[derive(Debug)]
pub struct Vm<M> {
    /// Layout of its structures.
    pub hotspot: Arc<HotSpot>,
    /// Its memory.
    pub memory: M,
}

impl<M: Memory> Vm<M> {
    /// Returns the same VM, read through `lines`.
    pub fn nearby<'l>(&'l self, lines: &'l Lines) -> Vm<Nearby<'l, M>> {
        Vm { hotspot: Arc::clone(&self.hotspot), memory: Nearby::new(&self.memory, lines) }
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
        let mut buffer = [0; MAX_NAME];
        let length = self.hotspot.blob_name(&self.memory, blob, &mut buffer).unwrap_or(0);
        lossy(buffer.get(..length.min(MAX_NAME)).unwrap_or_default())
    }

    /// Reads a name of the VM; `None` if it is unreadable.
    pub fn symbol(&self, symbol: Symbol) -> Option<String> {
        let mut buffer = [0; MAX_NAME];
        let length = self.hotspot.read_symbol(&self.memory, symbol, &mut buffer).ok()?;
        buffer.get(..length.min(MAX_NAME)).map(lossy)
    }
}

/// Decodes UTF-8; modified UTF-8 differs from it in NUL and in characters beyond the BMP, which names hardly ever contain.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
