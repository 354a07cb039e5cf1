//! Collapsed stacks: a line `root;...;leaf weight` for each distinct stack, the input of flame graph tools.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::frames::Frames;
use super::{Options, Profiles};
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::source::Sum;

/// Unit of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Sampling intervals of CPU time, rounded: a sample of three intervals counts as three.
    #[default]
    Samples,
    /// Nanoseconds of CPU time.
    Nanoseconds,
}

/// Writes the stacks of `profile` to `out`, sorted by text. Stacks lighter than half a unit are left out.
pub fn write(profile: &ProcessProfile, options: Options, mut out: impl Write) -> io::Result<()> {
    push(profile, options, false, &mut out)?;
    out.flush()
}

/// Writes the stacks of several processes, each sorted by text and begun with the service and the process id.
pub fn write_each(profiles: Profiles<'_>, options: Options, mut out: impl Write) -> Result<(), QueryError> {
    for profile in profiles {
        push(&profile?, options, true, &mut out)?;
    }
    Ok(out.flush()?)
}

fn push(profile: &ProcessProfile, options: Options, is_named: bool, out: &mut impl Write) -> io::Result<()> {
    let mut frames = Frames::new(profile);
    let title = profile.title();
    // Stacks with equal text (same methods, other lines) share a line.
    let mut lines: BTreeMap<String, Sum> = BTreeMap::new();
    for (thread, stack, cell) in profile.cells() {
        let mut line = String::new();
        if is_named {
            push_frame(&mut line, &title);
        }
        if options.threads {
            let name = profile.thread_name(thread);
            match profile.thread(thread).filter(|_| options.internal_names) {
                Some(thread) => push_frame(&mut line, &format!("[{name} tid={}]", thread.tid)),
                None => push_frame(&mut line, name),
            }
        }
        for frame in frames.stack(stack).into_iter().rev() {
            let parts = &frames.all()[frame as usize];
            match options.internal_names && !parts.class.is_empty() {
                true => push_frame(&mut line, &format!("{}.{}", parts.class, parts.method)),
                false => push_frame(&mut line, &parts.text),
            }
            if options.lines && parts.line > 0 {
                // Writing to a String cannot fail.
                let _ = write!(line, ":{}", parts.line);
            }
        }
        lines.entry(line).or_default().add(cell);
    }
    let interval_ns = profile.hello().interval_ns;
    for (line, Sum { cpu_ns, samples }) in lines {
        let weight = match options.unit {
            Unit::Nanoseconds => cpu_ns,
            Unit::Samples if interval_ns > 0 => cpu_ns.saturating_add(interval_ns / 2) / interval_ns,
            // Without a known interval, the weight is the number of samples.
            Unit::Samples => samples,
        };
        if weight > 0 {
            writeln!(out, "{line} {weight}")?;
        }
    }
    Ok(())
}

/// Appends a frame and replaces the separator of the format in it; its text has no line ends.
fn push_frame(line: &mut String, text: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    line.extend(text.chars().map(|letter| if letter == ';' { ':' } else { letter }));
}
