//! Ids of native frames, and of the labels of compiler threads.
//!
//! Problem: naming a native frame costs a file read and a demangling, and the same pcs come back all the time.
//! Approach: one id per pc is remembered until the list of libraries changes.
//! Invariant: a label `[compiling] Class.method` appears only if the method's names could be read in full.

use std::hash::BuildHasherDefault;

use proto::v1::FrameKind;
use rustc_hash::FxHasher;
use stackwalk::{HotSpot, Memory, Method, Missing, Place, StackCopy};

use super::{NativeLibraries, NativeView, Owner};
use crate::name::dictionaries::Dictionaries;

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Remembered ids of pcs before all are forgotten; 24 bytes each.
const MAX_CACHED: usize = 1 << 16;

/// What stands for native frames that no unwind table covers.
const NATIVE_MISSING: &str = "[native frames missing]";
/// What stands for frames of a virtual thread that were on their way back to its stack.
const THAWING: &str = "[frames being thawed]";

/// Native code with the ids of its frames.
#[derive(Debug, Default)]
pub struct NativeFrames {
    libraries: NativeLibraries,
    frames: Map<u64, u64>,
    /// `CompilerThread`s by kernel thread id.
    compilers: Map<i32, u64>,
}

impl NativeFrames {
    /// The libraries, for a walk.
    pub fn reading<'a, M: Memory + ?Sized>(&'a mut self, memory: &'a M) -> NativeView<'a, M> {
        self.libraries.reading(memory)
    }

    /// See [`NativeLibraries::prepare`].
    pub fn prepare<M: Memory + ?Sized>(&mut self, memory: &M) -> bool {
        let list = self.libraries.list();
        let further = self.libraries.prepare(memory);
        self.forget_if(self.libraries.list() != list);
        further
    }

    /// See [`NativeLibraries::refresh`].
    pub fn refresh(&mut self) {
        let changed = self.libraries.refresh();
        self.forget_if(changed);
    }

    /// Forgets every id, because the dictionaries did.
    pub fn forget(&mut self) {
        self.frames.clear();
    }

    fn forget_if(&mut self, changed: bool) {
        if changed || self.frames.len() > MAX_CACHED {
            self.frames.clear();
        }
    }

    /// Id of a native frame.
    pub fn frame<M: Memory + ?Sized>(
        &mut self,
        place: Place,
        interrupted: bool,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> u64 {
        let pc = place.pc.0.wrapping_sub(u64::from(!interrupted));
        if let Some(&id) = self.frames.get(&pc) {
            return id;
        }
        let name = self.libraries.name(memory, pc);
        let kind = match name.owner {
            Owner::Vm => FrameKind::Vm,
            Owner::Library | Owner::Nobody => FrameKind::Native,
        };
        let id = dictionaries.symbol_frame(kind, &name.text);
        self.frames.insert(pc, id);
        id
    }

    /// Id of the mark for missing frames.
    pub fn gap(missing: Missing, dictionaries: &mut Dictionaries) -> u64 {
        let text = match missing {
            Missing::Native => NATIVE_MISSING,
            Missing::Thawing => THAWING,
        };
        dictionaries.symbol_frame(FrameKind::Marker, text)
    }

    /// What the compiler thread `tid` was compiling when `stack` was copied.
    ///
    /// Known only while the compilation lasts; a sample waits up to one drain period, so short ones stay without.
    pub fn compiling<M: Memory + ?Sized>(
        &mut self,
        tid: i32,
        stack: &StackCopy<'_>,
        hotspot: &HotSpot,
        memory: &M,
    ) -> Option<Method> {
        let is_it = |address: u64| hotspot.thread_id(memory, address) == u32::try_from(tid).ok();
        let known = self.compilers.get(&tid).copied().filter(|&address| is_it(address));
        let address = match known {
            Some(address) => address,
            None => {
                let found = hotspot.java_threads(memory).find(|&address| is_it(address))?;
                self.compilers.retain(|_, address| *address != found);
                self.compilers.insert(tid, found);
                found
            }
        };
        hotspot.compiled_method(memory, address, stack)
    }
}
