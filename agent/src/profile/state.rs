//! The state of profiles in this process, and the only place where it is kept.
//!
//! Problem: starts, ends and events of the VM come at any time on any thread, and every door must see the same profile.
//! Approach: [`Stage`] is how far the present profile has come, [`Record`] is what outlives a stage: options, results,
//! what follows.
//! Invariants: a thread that holds the record takes no other lock. Callbacks of the VM lock the stage before any other
//! lock, and never call into the VM while it is locked for writing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard, RwLock};
use sampler_thread::clock;

use super::refusal::Refusal;
use super::session::{PreparedSession, Session};
use super::storage::Results;
use super::thread_filter::Filter;
use crate::jvmti::jni_calls::Jni;
use crate::jvmti::mark::{self, Mark};
use crate::jvmti::{ThreadRef, guard};
use agent_options::Options;

/// The stage of the present profile.
enum Stage {
    /// There is none.
    Free,
    /// A thread prepares or starts it.
    Starting,
    /// It begins when the VM is initialised.
    Prepared(Box<PreparedSession>),
    Running(Box<Session>),
    /// A thread ends it.
    Stopping,
    /// Its sampler thread still sends samples, and reads memory that the next profile would reuse.
    Ending(JoinHandle<()>),
}

/// The part of the state that outlives a stage.
pub(super) struct Record {
    /// Shows to other processes that a profile is prepared or runs.
    mark: Option<Mark>,
    /// Options of an agent that waits for a start.
    pub waiting: Option<String>,
    pub profile: Option<LastProfile>,
    pub results: Results,
    /// Starts the next profile when the time of this one is over (`loop=`).
    pub next: Option<Box<dyn FnOnce() + Send>>,
    /// The threads that the program has chosen.
    pub filter: Filter,
}

/// A profile, as its request describes it.
pub(super) struct LastProfile {
    /// The parts of the request that count.
    pub text: String,
    /// Its options, with the file of its recording.
    pub options: Options,
    /// When it was requested.
    pub since: Instant,
}

static STAGE: RwLock<Stage> = RwLock::new(Stage::Free);
static RECORD: Mutex<Record> = Mutex::new(Record::new());
/// True once the VM has reported its end to a profile.
static VM_ENDS: AtomicBool = AtomicBool::new(false);

impl Record {
    pub const fn new() -> Self {
        Self {
            mark: None,
            waiting: None,
            profile: None,
            results: Results::new(),
            next: None,
            filter: Filter::new(),
        }
    }
}

/// The state of the agent, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No profile runs.
    Idle,
    /// A profile is about to begin.
    Starting,
    /// A profile runs.
    Running,
    /// A profile has ended, and its last samples are being delivered.
    Ending,
    /// An internal error has switched the agent off.
    Off,
}

pub fn phase() -> Phase {
    if guard::is_disabled() {
        return Phase::Off;
    }
    match &*STAGE.read() {
        Stage::Ending(thread) if thread.is_finished() => Phase::Idle,
        Stage::Free => Phase::Idle,
        Stage::Starting | Stage::Prepared(_) => Phase::Starting,
        Stage::Running(_) => Phase::Running,
        Stage::Stopping | Stage::Ending(_) => Phase::Ending,
    }
}

/// Locks the record.
pub(super) fn record() -> MutexGuard<'static, Record> {
    RECORD.lock()
}

/// Claims this process for one profile; `on_panic` ends it after a panic of the agent.
///
/// # Errors
/// [`Refusal::Running`], [`Refusal::Delivering`], [`Refusal::Off`].
pub(super) fn claim(on_panic: fn()) -> Result<(), Refusal> {
    guard::set_on_panic(on_panic);
    mark::show_agent();
    if guard::is_disabled() {
        return Err(Refusal::Off);
    }
    let mut stage = STAGE.write();
    match &*stage {
        Stage::Ending(thread) if !thread.is_finished() => return Err(Refusal::Delivering),
        Stage::Free | Stage::Ending(_) => *stage = Stage::Starting,
        Stage::Starting | Stage::Prepared(_) | Stage::Running(_) | Stage::Stopping => {
            return Err(Refusal::Running);
        }
    }
    drop(stage);
    RECORD.lock().mark = Mark::of_profile();
    Ok(())
}

/// Frees the process for another profile; `unfinished` is the sampler thread of the last one, if it still runs.
pub(super) fn free(unfinished: Option<JoinHandle<()>>) {
    RECORD.lock().mark = None;
    let former = std::mem::replace(&mut *STAGE.write(), unfinished.map_or(Stage::Free, Stage::Ending));
    // Outside of the lock: dropping a session may take long.
    drop(former);
}

/// Keeps a profile for its start.
pub(super) fn keep_prepared(prepared: PreparedSession) {
    *STAGE.write() = Stage::Prepared(Box::new(prepared));
}

/// Keeps a profile that runs.
pub(super) fn keep_running(session: Session) {
    *STAGE.write() = Stage::Running(Box::new(session));
}

/// Takes the profile that is prepared, if there is one.
pub(super) fn take_prepared() -> Option<Box<PreparedSession>> {
    let mut stage = STAGE.write();
    match std::mem::replace(&mut *stage, Stage::Starting) {
        Stage::Prepared(prepared) => Some(prepared),
        other => {
            *stage = other;
            None
        }
    }
}

/// Takes the profile that runs, whose handlers sample nothing from then on.
///
/// A Java thread that ends after this does not report it, and its handlers must not read its `JavaThread` any more. No
/// callback runs while the stage is locked for writing, so each thread has either reported its end or is silent.
pub(super) fn take_running() -> Option<Box<Session>> {
    let mut stage = STAGE.write();
    match std::mem::replace(&mut *stage, Stage::Stopping) {
        Stage::Running(session) => {
            session.silence();
            Some(session)
        }
        other => {
            *stage = other;
            None
        }
    }
}

/// Runs `body` with the profile that runs, if one does; it stays until `body` returns.
pub(super) fn with_session<T>(body: impl FnOnce(&Session) -> T) -> Option<T> {
    match &*STAGE.read() {
        Stage::Running(session) => Some(body(session)),
        _ => None,
    }
}

pub(super) fn set_vm_ends() {
    VM_ENDS.store(true, Ordering::Relaxed);
}

/// Returns whether the VM has reported its end, which is no failure of a profile that begins or ends beside it.
pub fn vm_ends() -> bool {
    VM_ENDS.load(Ordering::Relaxed)
}

/// Chooses a thread, or ends that, for the results of the present and the next profile.
pub fn choose_thread(tid: i32, is_chosen: bool) {
    RECORD.lock().filter.change(tid, is_chosen, clock::wall_nanos());
    with_session(|session| session.judge_again(tid));
}

/// Returns the kernel id of a Java thread that is alive, while a profile runs.
pub fn tid_of(jni: Jni, thread: ThreadRef) -> Option<i32> {
    with_session(|session| session.java_threads().tid_of(jni, thread))?
}
