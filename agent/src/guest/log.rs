//! Log lines of the agent, on standard error or in the file of `logfile=`.
//!
//! Problem: standard error belongs to the program, so the agent writes only errors, or the level of `log=`, each as one
//! line that names its origin.
//! Approach: a small [`tracing::Subscriber`] instead of a formatting library inside every JVM.
//! Invariant: never called from the signal handler (`design/signal-safety.md`).

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use profile::export::whole_file::Readers;
use sampler_thread::characters::shown;
use sampler_thread::descriptor::OwnedDescriptor;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber, span};

struct StandardError;

/// The file of `logfile=`.
static FILE: Mutex<Option<LogFile>> = Mutex::new(None);

struct LogFile {
    path: PathBuf,
    file: OwnedDescriptor<File>,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        // The program may change its folder before the file is opened again.
        let path = std::path::absolute(path)?;
        let file = OpenOptions::new().append(true).create(true).mode(Readers::Owner.mode()).open(&path)?;
        let file = OwnedDescriptor::new(file)?;
        Ok(Self { path, file })
    }

    /// Opens the file again if the program has closed its descriptor.
    fn keep_open(&mut self) -> io::Result<()> {
        if self.file.get().is_err() {
            *self = Self::open(&self.path)?;
        }
        Ok(())
    }
}

static LEVEL: Mutex<LevelFilter> = Mutex::new(LevelFilter::WARN);

/// Installs the subscriber; a second call changes the level.
pub fn install(level: LevelFilter) {
    *LEVEL.lock() = level;
    // A refusal means that the subscriber is installed already: the agent has its own copy of `tracing`.
    if tracing::subscriber::set_global_default(StandardError).is_err() {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Makes the file at `path` the place of later log lines, or standard error if there is no path. If the file cannot be
/// opened, one line on standard error says so, and later lines follow it there.
pub fn write_to(path: Option<&Path>) {
    let opened = path.map(LogFile::open);
    let refusal = opened.as_ref().and_then(|opened| opened.as_ref().err().map(ToString::to_string));
    *FILE.lock() = opened.and_then(Result::ok);
    if let (Some(path), Some(error)) = (path, refusal) {
        print(&format!("cannot write logfile={}: {error}; messages go to standard error", path.display()));
    }
}

/// Writes one line at every log level.
pub fn print(text: &str) {
    // One write call, so that lines of several processes do not mix. Failures are ignored.
    let line = format!("tickwalk: {}\n", shown(text));
    let mut file = FILE.lock();
    if file.as_mut().is_some_and(|file| file.keep_open().is_err()) {
        *file = None;
    }
    let _ = match &mut *file {
        Some(file) => file.file.write_all(line.as_bytes()),
        None => std::io::stderr().write_all(line.as_bytes()),
    };
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

impl Subscriber for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= *LEVEL.lock()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(*LEVEL.lock())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        print(&format!("{}{}", line.message, line.fields));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
