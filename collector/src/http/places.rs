//! Places of HTTP connections.
//!
//! Problem: a peer that may not ask anything can open any number of connections, and supervisors must get an answer
//! from `/healthz` all the same.
//! Approach: a connection begins with a place among unknown ones. When these are taken, the oldest of them is closed
//! for the next one. A request that may be answered gives its connection a place of its own, as long as there are any.
//! Invariant: `/healthz` waits for nobody, and a peer without the token takes no place of those who have it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// All places.
pub(super) struct Places {
    /// What closes each unknown connection; ids grow, so the oldest is the first.
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

    /// Returns the place of a new connection, and what tells it to close.
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
        let place = Place {
            id,
            places: Arc::clone(self),
            permit: Mutex::new(None),
            is_admitted: AtomicBool::new(false),
        };
        (Arc::new(place), closed)
    }
}

/// The place of a connection; drop frees it.
pub(super) struct Place {
    id: u64,
    places: Arc<Places>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    is_admitted: AtomicBool,
}

impl Place {
    /// Moves the connection to those that may ask; returns false if all their places are taken.
    pub(super) fn admit(&self) -> bool {
        // Relaxed: the requests of a connection follow one another.
        if self.is_admitted.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.places.admitted).try_acquire_owned() else { return false };
        *self.permit.lock() = Some(permit);
        self.is_admitted.store(true, Ordering::Relaxed);
        self.places.unknown.lock().remove(&self.id);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.unknown.lock().remove(&self.id);
    }
}
