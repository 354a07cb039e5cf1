//! Telling others what has been stored, while it is fresh.
//!
//! Problem: whoever hands samples on wants each of them once, and must never delay the store.
//! Approach: the writer gives away the batches it has taken in, after their commit and after their connection was
//! answered; names are looked up by the follower, on its own thread.
//! Invariant: a message that an agent repeats is told of once, as it is stored once.

use std::fmt::Debug;
use std::ops::Range;

use rustc_hash::FxHashSet;

use super::dictionary::Dictionary;
use super::head::Taken;
use super::read::{Extent, View};
use crate::profile::{Cell, Definitions, Frame, Method, Profile, Stack};

/// Is told what has been stored.
pub trait Follower: Debug + Send + Sync {
    /// Takes `fresh` or leaves it; called by the thread that writes, so it returns at once.
    fn follow(&self, fresh: StoredSamples);
}

/// Samples of one session that have just become durable.
#[derive(Debug)]
pub struct StoredSamples {
    view: View,
    session: u64,
    taken: Taken,
}

impl StoredSamples {
    pub(super) fn new(view: &View, session: u64, taken: Taken) -> StoredSamples {
        StoredSamples { view: view.clone(), session, taken }
    }

    /// Where they were stored.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whose samples they are.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// How many samples they stand for, and the CPU time of these.
    pub fn total(&self) -> Cell {
        self.taken.cells.iter().fold(Cell::default(), |sum, (.., cell)| Cell {
            cpu_ns: sum.cpu_ns.saturating_add(cell.cpu_ns),
            samples: sum.samples.saturating_add(cell.samples),
        })
    }

    /// Thread, number of the stack in the view's dictionary, and what is to be added there.
    pub fn cells(&self) -> impl Iterator<Item = (u32, u32, Cell)> + '_ {
        self.taken.cells.iter().copied()
    }

    /// From the first sample to the last, in ns since the epoch.
    pub fn range_ns(&self) -> Range<u64> {
        self.taken.first_ns..self.taken.last_ns
    }
}

impl View {
    /// A part of a session as a profile: `cells` are thread, number of the stack, and sums. Ids in it are made of
    /// numbers, they mean nothing elsewhere. `None` if the session is not known here.
    pub fn profile(&self, session: u64, cells: &[(u32, u32, Cell)]) -> Option<Profile> {
        let threads: FxHashSet<u32> = cells.iter().map(|&(thread, ..)| thread).collect();
        let mut known = None;
        let read = self.sessions(
            Extent::Threads,
            |id| id == session,
            |_, session| {
                let carriers = threads.iter().filter_map(|&thread| Some(session.thread(thread)?.carrier));
                let threads: FxHashSet<u32> = carriers.chain(threads.iter().copied()).collect();
                let threads = threads.into_iter().filter_map(|thread| session.thread(thread)).cloned();
                known = Some((session.hello.clone(), threads.collect()));
            },
        );
        let stacks = cells.iter().map(|&(_, stack, _)| stack);
        let definitions = read.and_then(|()| self.dictionary(|dictionary| definitions(dictionary, stacks)));
        let definitions = definitions.unwrap_or_else(|error| {
            tracing::error!(%error, "names cannot be read, samples go without them");
            Definitions::default()
        });
        let (hello, threads) = known?;
        let mut profile = Profile::new(hello);
        profile.define(Definitions { threads, ..definitions });
        Some(profile.with_samples(cells.iter().map(|&(thread, stack, cell)| (thread, id(stack), cell))))
    }
}

/// Id 0 is none, and number 0 of stacks and frames is what was never defined.
fn id(number: u32) -> u64 {
    u64::from(number) + 1
}

fn definitions(dictionary: &Dictionary, stacks: impl Iterator<Item = u32>) -> Definitions {
    let mut definitions = Definitions::default();
    let (mut strings, mut methods, mut frames) =
        (FxHashSet::default(), FxHashSet::default(), FxHashSet::default());
    // A stack that was never defined is left undefined, which shows it as what it is.
    let stacks: FxHashSet<u32> = stacks.filter(|&stack| stack != 0).collect();
    for stack in stacks {
        let own = dictionary.frames_of(stack);
        definitions.stacks.push(Stack {
            id: id(stack),
            frames: own.iter().map(|&frame| id(frame)).collect(),
            stop: dictionary.string(dictionary.stack(stack).stop).to_owned(),
        });
        frames.extend(own);
    }
    for frame in frames {
        let row = dictionary.frame(frame);
        strings.insert(row.symbol);
        methods.insert(row.method);
        definitions.frames.push(Frame {
            id: id(frame),
            kind: row.kind.into(),
            method: row.method.into(),
            bci: row.bci,
            line: row.line,
            symbol: row.symbol.into(),
        });
    }
    methods.remove(&0);
    for method in methods {
        let row = dictionary.method(method);
        strings.extend([row.class_name, row.name, row.signature, row.source_file]);
        definitions.methods.push(Method {
            id: method.into(),
            class_name: row.class_name.into(),
            name: row.name.into(),
            signature: row.signature.into(),
            source_file: row.source_file.into(),
            modifiers: row.modifiers,
            hidden: row.hidden,
        });
    }
    strings.remove(&0);
    definitions.strings =
        strings.into_iter().map(|string| (string.into(), dictionary.string(string).into())).collect();
    definitions
}
