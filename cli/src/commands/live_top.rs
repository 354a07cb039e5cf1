//! `tickwalk top -p PID`: the hottest methods of a running JVM, updated until it ends.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use collector::ingest::StopHandle;
use profile::export::table::{self, Report};
use profile::query::flat::Order;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::tree::Naming;

use super::attachment::{Attachment, WaitEnd};
use super::profiling::Sampling;
use crate::output;
use crate::source::{now_ns, read_recording};

/// Time between two screens.
const PERIOD: Duration = Duration::from_secs(2);
/// Computing a screen may take at most one part in this many of the time.
const SHARE: u32 = 10;
/// Beginning of the shown time: ten seconds ago.
const WINDOW: &str = "-10s";
/// Rows and columns of a terminal of unknown size.
const USUAL_SIZE: (usize, usize) = (24, 80);

/// Contents of the screens.
pub struct View<'a> {
    pub pid: i32,
    pub sampling: Sampling,
    /// Unit of the rows; `None` for threads.
    pub naming: Option<Naming>,
    pub orders: &'a [Order],
    pub limit: usize,
    /// Selection, as pairs of the HTTP API.
    pub pairs: Vec<(String, String)>,
}

/// Shows screens until Ctrl-C, the end of the program or of the profile; the last one stays.
pub fn run(mut view: View<'_>) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() {
        bail!("top -p needs a terminal; use tickwalk attach --duration 10s {}", view.pid);
    }
    if !view.pairs.iter().any(|(name, _)| name == "from") {
        view.pairs.push(("from".to_owned(), WINDOW.to_owned()));
    }
    let selection = Selection::of(&view.pairs)?;
    let directory = output::temporary_directory()?;
    let attachment = Attachment::begin(view.pid, &view.sampling, directory.path().join("top.tickwalk"))?;
    let server = attachment.server().stop_handle();
    let screen = Screen::open()?;
    let mut last = Vec::new();
    let mut period = PERIOD;
    let end = loop {
        match attachment.wait(Some(Instant::now() + period))? {
            WaitEnd::Time => {}
            end => break end,
        }
        let begin = Instant::now();
        // The first messages may not have arrived yet.
        if let Some(text) = content(&server, &view, &selection) {
            last = screen.draw(&text)?;
        }
        period = PERIOD.max(begin.elapsed() * SHARE);
    };
    drop(screen);
    attachment.finish(end);
    output::print(|out| last.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of a screen; `None` if nothing was recorded.
fn content(server: &StopHandle, view: &View<'_>, selection: &Selection) -> Option<String> {
    let session = server.sessions().into_iter().next()?;
    let recording = read_recording(&session.path).ok()?;
    let text = match view.naming {
        Some(naming) => {
            let (_, width) = size();
            let (orders, limit) = (view.orders, view.limit);
            let report = Report { orders, naming, limit, verbose: false, width, goes_on: true, folds: true };
            table::report(&recording, selection, report, now_ns()).ok()?
        }
        None => {
            let mut profile = ProcessProfile::of(&recording, selection, now_ns()).ok()?;
            profile.set_going_on();
            table::threads(&profile, selection, view.limit).ok()?
        }
    };
    Some(format!("JVM {}: {} (Ctrl-C ends)\n{text}", view.pid, session.hello.command))
}

/// Returns rows and columns of the terminal.
fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or(USUAL_SIZE, |size| (size.ws_row.into(), size.ws_col.into()))
}

/// The alternate screen of the terminal, until it is dropped.
struct Screen;

impl Screen {
    fn open() -> anyhow::Result<Self> {
        write(format_args!("\x1b[?1049h\x1b[?25l\x1b[H\x1b[Jtickwalk: waiting for samples"))?;
        Ok(Self)
    }

    /// Draws as much of `text` as fits; returns these lines.
    fn draw(&self, text: &str) -> anyhow::Result<Vec<String>> {
        let (rows, columns) = size();
        let lines = text.lines().take(rows.saturating_sub(1));
        let lines: Vec<String> = lines.map(|line| line.chars().take(columns).collect()).collect();
        write(format_args!(
            "\x1b[H{}\x1b[J",
            lines.iter().map(|line| format!("{line}\x1b[K\n")).collect::<String>()
        ))?;
        Ok(lines)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = write(format_args!("\x1b[?25h\x1b[?1049l"));
    }
}

fn write(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.flush()).context("cannot write to the terminal")
}
