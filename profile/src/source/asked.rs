//! A source that answers only while the answer is wanted.
//!
//! Problem: a question about a large store reads for minutes, and neither an asker that is gone nor a server that has
//! other questions benefits from its end.
//! Approach: the parts of the source see no session any more once the question is over, so they skip the rest of what they
//! would read, and the call fails.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use proto::framing::FramingError;

use crate::dictionary::Dictionary;
use crate::session::Session;
use crate::source::cell::Cell;
use crate::source::{Extent, Gap, Part, ReadError, Sample, Scope, Source, Threads};

/// How long an answer is wanted: until a deadline, and while somebody waits.
#[derive(Clone, Debug)]
pub struct Patience {
    deadline: Instant,
    is_gone: Arc<AtomicBool>,
}

impl Patience {
    /// Returns the patience of an asker that waits until `deadline`.
    pub fn until(deadline: Instant) -> Patience {
        Patience { deadline, is_gone: Arc::default() }
    }

    /// Ends the patience of all clones.
    pub fn end(&self) {
        // Relaxed, here and below: the flag guards nothing else, and a late view costs a little work.
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Returns whether the answer is not wanted any more.
    pub fn is_over(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    fn check(&self) -> Result<(), ReadError> {
        if self.is_over() { Err(ReadError("the question took too long".to_owned())) } else { Ok(()) }
    }
}

/// A source for one question.
pub struct Asked<'s> {
    source: &'s dyn Source,
    patience: Patience,
}

impl<'s> Asked<'s> {
    /// Returns `source` for an asker with this patience.
    pub fn new(source: &'s dyn Source, patience: Patience) -> Asked<'s> {
        Asked { source, patience }
    }
}

impl Source for Asked<'_> {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        let parts = self.source.parts().into_iter();
        parts.map(|part| Box::new(AskedPart { part, patience: &self.patience }) as Box<dyn Part>).collect()
    }

    fn end_ns(&self) -> Option<u64> {
        self.source.end_ns()
    }

    fn plausible_ns(&self, now_ns: u64) -> Range<u64> {
        self.source.plausible_ns(now_ns)
    }

    fn cut(&self) -> Option<FramingError> {
        self.source.cut()
    }

    fn source_text(&self, file: &str) -> Option<String> {
        self.source.source_text(file)
    }

    fn gaps(&self) -> Vec<Gap> {
        self.source.gaps()
    }
}

struct AskedPart<'s> {
    part: Box<dyn Part + 's>,
    patience: &'s Patience,
}

impl AskedPart<'_> {
    /// Calls `read` with a scope that becomes empty when the question is over.
    fn read(
        &self,
        scope: &Scope<'_>,
        read: impl FnOnce(&Scope<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let sessions = |id| !self.patience.is_over() && (scope.sessions)(id);
        read(&Scope { range_ns: scope.range_ns.clone(), sessions: &sessions })?;
        self.patience.check()
    }
}

impl Part for AskedPart<'_> {
    fn range_ns(&self) -> Range<u64> {
        self.part.range_ns()
    }

    fn has_samples(&self) -> bool {
        self.part.has_samples()
    }

    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        self.patience.check()?;
        self.part.dictionary(read)
    }

    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        self.part.sessions(extent, &|id| !self.patience.is_over() && is_selected(id), visit)?;
        self.patience.check()
    }

    fn stacks(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(u64, u32, Cell)) -> Result<(), ReadError> {
        self.read(scope, |scope| self.part.stacks(scope, visit))
    }

    fn thread_stacks(
        &self,
        scope: &Scope<'_>,
        is_selected: &dyn Fn(u64, u32) -> bool,
        visit: &mut dyn FnMut(u64, u32, u32, Cell),
    ) -> Result<(), ReadError> {
        self.read(scope, |scope| self.part.thread_stacks(scope, is_selected, visit))
    }

    fn times(
        &self,
        scope: &Scope<'_>,
        threads: Threads,
        visit: &mut dyn FnMut(u64, u32, Range<u64>, u64),
    ) -> Result<(), ReadError> {
        self.read(scope, |scope| self.part.times(scope, threads, visit))
    }

    fn samples(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(Sample)) -> Result<(), ReadError> {
        self.read(scope, |scope| self.part.samples(scope, visit))
    }
}
