//! Ids of native frames.
//!
//! Problem: naming a native frame takes a search among all functions of its library and a read of its file.
//! Approach: a frame is named once per pc, a function once. All are forgotten when a library is gone, for another may
//! take its place; code outside of libraries when one was added, for it may be that code's.

use std::collections::BTreeMap;

use proto::v1::FrameKind;
use stackwalk::Memory;

use crate::name::dictionaries::Dictionaries;
use crate::name::shards::Map;
use crate::name::shown::Shown;
use crate::native::{NativeLibraries, Owner};

#[derive(Debug, Default)]
pub(super) struct NativeIds {
    /// By pc; 0 for frames that are not to be shown.
    ids: Map<u64, u64>,
    /// The pcs in no library.
    outside: Vec<u64>,
    /// End and id of named functions, by their start. They do not overlap.
    functions: BTreeMap<u64, (u64, u64)>,
    /// The list of libraries that these are from, and the version of their places.
    libraries: (u64, u64),
}

impl NativeIds {
    /// Removes the pcs whose names may have changed.
    pub(super) fn begin(&mut self, libraries: &NativeLibraries) {
        let now = (libraries.list(), libraries.places());
        let before = std::mem::replace(&mut self.libraries, now);
        if before.1 != now.1 {
            self.ids.clear();
            self.outside.clear();
            self.functions.clear();
        } else if before.0 != now.0 {
            self.outside.drain(..).for_each(|pc| _ = self.ids.remove(&pc));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the id of the frame at `pc`, an address inside the running or calling instruction; 0 if it is not to be
    /// shown.
    pub(super) fn id<M: Memory>(
        &mut self,
        pc: u64,
        memory: &M,
        libraries: &mut NativeLibraries,
        dictionaries: &mut Dictionaries,
        shown: &Shown,
    ) -> u64 {
        if let Some(&id) = self.ids.get(&pc) {
            return id;
        }
        if let Some((_, &(end, id))) = self.functions.range(..=pc).next_back()
            && pc < end
        {
            self.ids.insert(pc, id);
            return id;
        }
        let name = libraries.name(memory, pc);
        let (kind, is_shown) = match name.owner {
            Owner::Vm => (FrameKind::Vm, shown.vm),
            Owner::Library | Owner::Nobody => (FrameKind::Native, shown.native),
        };
        let id = if is_shown { dictionaries.native_frame(kind, &name.text, &name.library) } else { 0 };
        match name.owner {
            Owner::Nobody => self.outside.push(pc),
            Owner::Vm | Owner::Library => {
                _ = self.functions.insert(name.range.start, (name.range.end, id));
            }
        }
        self.ids.insert(pc, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;

    #[test]
    fn a_frame_has_another_name_when_its_library_is_known() {
        const FIRST: &str = "2000-3000 r-xp 00000000 fe:00 11 /none/liba.so\n";
        const SECOND: &str = "5000-6000 r-xp 00000000 fe:00 12 /none/libb.so\n";
        let (mut dictionaries, shown, memory) =
            (Dictionaries::default(), Shown::default(), StackCopy::new(0, &[]));
        let (mut native, mut libraries) = (NativeIds::default(), NativeLibraries::default());
        let mut ids = |libraries: &mut NativeLibraries| {
            native.begin(libraries);
            [0x2010, 0x5010].map(|pc| native.id(pc, &memory, libraries, &mut dictionaries, &shown))
        };
        libraries.update(FIRST);
        let [inside, outside] = ids(&mut libraries);
        assert_ne!(inside, outside);
        assert_eq!(ids(&mut libraries), [inside, outside]);
        libraries.update(&[FIRST, SECOND].concat());
        let [same, added] = ids(&mut libraries);
        assert!(same == inside && ![inside, outside].contains(&added));
        libraries.update(SECOND);
        assert_eq!(ids(&mut libraries), [outside, added]);
    }
}
