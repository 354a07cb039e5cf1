//! Places of HTTP connections.
//!
//! Problem: a peer without the token can open any number of connections, and supervisors must get an answer from
//! `/healthz` all the same.
//! Approach: a connection begins with a place among unknown ones. When these are taken, the oldest of them is closed
//! for the next one. The first request with the token gives its connection a place of its own, if there is one.
//! Invariant: `/healthz` never waits, and a peer without the token takes no place of those that have it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// All places.
pub(super) struct Places {
    /// Closes unknown connections; ids grow, so the oldest is the first.
    unknown: Mutex<BTreeMap<u64, oneshot::Sender<()>>>,
    most_unknown: usize,
    admitted: Arc<Semaphore>,
    next_id: AtomicU64,
}

impl Places {
    pub(super) fn new(most_unknown: usize, most_admitted: usize) -> Self {
        Places {
            unknown: Mutex::default(),
            most_unknown: most_unknown.max(1),
            admitted: Arc::new(Semaphore::new(most_admitted)),
            next_id: AtomicU64::new(0),
        }
    }

    /// Returns the place of a new connection, and a receiver that gets a message when it has to close.
    pub(super) fn take(self: &Arc<Self>) -> (Arc<Place>, oneshot::Receiver<()>) {
        // Relaxed: only the number matters.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (close, closed) = oneshot::channel();
        let mut unknown = self.unknown.lock();
        if unknown.len() >= self.most_unknown
            && let Some((_, oldest)) = unknown.pop_first()
        {
            // It may have ended meanwhile.
            let _ = oldest.send(());
        }
        unknown.insert(id, close);
        drop(unknown);
        (Arc::new(Place { id, places: Arc::clone(self), permit: OnceLock::new() }), closed)
    }
}

/// The place of a connection; drop frees it.
pub(super) struct Place {
    id: u64,
    places: Arc<Places>,
    /// Empty while the connection is unknown.
    permit: OnceLock<OwnedSemaphorePermit>,
}

impl Place {
    /// Gives the connection a place of its own; returns false if all of them are taken.
    pub(super) fn admit(&self) -> bool {
        if self.permit.get().is_none() {
            let Ok(permit) = Arc::clone(&self.places.admitted).try_acquire_owned() else { return false };
            // The requests of a connection follow one another, so no other one has set it meanwhile.
            let _ = self.permit.set(permit);
            self.places.unknown.lock().remove(&self.id);
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.unknown.lock().remove(&self.id);
    }
}
