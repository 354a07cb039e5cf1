//! A source for one query, which ends at a deadline or when its client disconnects.
//!
//! Problem: a query over a large store reads for minutes, although its answer may no longer be needed.
//! Approach: once the query is over, the parts of the source select no session, so they skip the rest of their data,
//! and the call fails.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use proto::framing::FramingError;

use crate::dictionary::Dictionary;
use crate::session::Session;
use crate::source::{Extent, Gap, Kind, Part, ReadError, Row, Scope, SharedSource, Source, Wanted};

/// The end of a query: a time, or the cancellation by the client. Clones share the cancellation.
#[derive(Clone, Debug)]
pub struct Deadline {
    time: Instant,
    is_cancelled: Arc<AtomicBool>,
}

impl Deadline {
    pub fn at(time: Instant) -> Deadline {
        Deadline { time, is_cancelled: Arc::default() }
    }

    /// Ends the query now.
    pub fn cancel(&self) {
        // Relaxed, here and below: the flag guards nothing else, and a late view costs a little work.
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed) || Instant::now() >= self.time
    }

    fn check(&self) -> Result<(), ReadError> {
        if self.is_over() { Err(ReadError("the question took too long".to_owned())) } else { Ok(()) }
    }
}

/// Cancels the query of its deadline on drop.
#[derive(Debug)]
pub struct CancelOnDrop(pub Deadline);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A source that fails after a deadline.
pub struct WithDeadline {
    source: SharedSource,
    deadline: Deadline,
}

impl WithDeadline {
    pub fn new(source: SharedSource, deadline: Deadline) -> WithDeadline {
        WithDeadline { source, deadline }
    }
}

impl Source for WithDeadline {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        let parts = self.source.parts().into_iter();
        parts
            .map(|part| Box::new(PartWithDeadline { part, deadline: &self.deadline }) as Box<dyn Part>)
            .collect()
    }

    fn end_ns(&self) -> Option<u64> {
        self.source.end_ns()
    }

    fn start_ns(&self) -> Option<u64> {
        self.source.start_ns()
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

    fn usual_time(&self) -> Option<&'static str> {
        self.source.usual_time()
    }

    fn read_part(&self, wanted: &Wanted<'_>) -> Result<Option<SharedSource>, ReadError> {
        let is_over = || self.deadline.is_over() || (wanted.is_over)();
        let part = self.source.read_part(&Wanted { is_over: &is_over, ..wanted.clone() })?;
        Ok(part.map(|part| Arc::new(WithDeadline::new(part, self.deadline.clone())) as SharedSource))
    }

    fn gaps(&self) -> Vec<Gap> {
        self.source.gaps()
    }
}

struct PartWithDeadline<'s> {
    part: Box<dyn Part + 's>,
    deadline: &'s Deadline,
}

impl Part for PartWithDeadline<'_> {
    fn range_ns(&self) -> Range<u64> {
        self.part.range_ns()
    }

    fn has_samples(&self) -> bool {
        self.part.has_samples()
    }

    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        self.deadline.check()?;
        self.part.dictionary(read)
    }

    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        self.part.sessions(extent, &|id| !self.deadline.is_over() && is_selected(id), visit)?;
        self.deadline.check()
    }

    fn read(&self, scope: &Scope<'_>, kind: Kind<'_>, visit: &mut dyn FnMut(Row)) -> Result<(), ReadError> {
        let sessions = |id| !self.deadline.is_over() && (scope.sessions)(id);
        self.part.read(&Scope { range_ns: scope.range_ns.clone(), sessions: &sessions }, kind, visit)?;
        self.deadline.check()
    }
}
