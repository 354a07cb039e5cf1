//! Uploads the intervals of a spool, the oldest first.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::storage::{Lake, LakeError};
use crate::write::spool::Spool;

/// Wait after the first failed attempt; it doubles with each one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Longest wait after a failed attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Time for uploads when the collector ends. What remains is uploaded after the next start.
const FAREWELL: Duration = Duration::from_secs(10);

/// The thread that uploads; dropping it ends it.
#[derive(Debug)]
pub struct Uploader {
    spool: Arc<Spool>,
    thread: Option<JoinHandle<()>>,
}

impl Uploader {
    /// Starts the upload of what waits in `spool`, and of what is sealed later.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(spool: &Arc<Spool>, lake: Lake) -> std::io::Result<Uploader> {
        let own = Arc::clone(spool);
        let thread = thread::Builder::new().name("lake".into()).spawn(move || run(&own, &lake))?;
        Ok(Uploader { spool: Arc::clone(spool), thread: Some(thread) })
    }
}

impl Drop for Uploader {
    /// Uploads what waits, for a limited time and until an attempt fails.
    fn drop(&mut self) {
        self.spool.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that uploads to the lake panicked");
        }
    }
}

fn run(spool: &Spool, lake: &Lake) {
    let mut wait = FIRST_WAIT;
    let mut end: Option<Instant> = None;
    loop {
        spool.wait();
        if spool.is_closed() && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + FAREWELL) {
            return;
        }
        match upload_oldest(spool, lake) {
            Ok(true) => {
                if wait > FIRST_WAIT {
                    tracing::info!(%lake, "the lake can be written again");
                }
                wait = FIRST_WAIT;
            }
            Ok(false) if spool.is_closed() => return,
            Ok(false) => {}
            Err(error) => {
                if spool.count_failure() {
                    tracing::error!(%error, "the lake cannot be written; intervals wait on the local disk");
                }
                if spool.is_closed() {
                    return;
                }
                spool.wait_for(wait);
                wait = (2 * wait).min(LONGEST_WAIT);
            }
        }
    }
}

/// Uploads the oldest interval and removes it; returns false if none waits.
///
/// # Errors
/// If a file cannot be read or uploaded; the interval remains.
pub fn upload_oldest(spool: &Spool, lake: &Lake) -> Result<bool, LakeError> {
    let Some(interval) = spool.oldest()? else { return Ok(false) };
    for (path, file) in &interval.files {
        lake.put(path, std::fs::read(file)?.into())?;
    }
    spool.remove(interval.number)?;
    Ok(true)
}
