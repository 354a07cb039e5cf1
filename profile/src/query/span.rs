//! The time that an answer covers, and what its reader must know of the samples in it.

use std::ops::Range;

use serde::Serialize;

use super::modes::Modes;
use super::moment::NS_PER_S;
use crate::source::Gap;

/// The absolute time range of a selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Nanoseconds since the epoch.
    pub from_ns: u64,
    /// Nanoseconds since the epoch, exclusive.
    pub to_ns: u64,
    /// Times in the range whose samples cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Why a recording could not be read whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// True if samples with impossible times are left out, because no time was selected.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves_out_wrong_clocks: bool,
    /// Modes of the processes whose samples are summed; written if there are several.
    #[serde(skip_serializing_if = "Modes::can_be_summed")]
    pub modes: Modes,
}

impl Span {
    /// Returns the warnings about missing samples, samples with wrong times and sums of several modes.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let wrong = self.leaves_out_wrong_clocks.then(|| {
            "samples of processes with a wrong clock are left out; name a time (--from, --to) to see them"
                .to_owned()
        });
        let gaps = self.gaps.iter().map(|gap| {
            let (from_s, to_s) = (gap.from_ns / NS_PER_S, gap.to_ns / NS_PER_S);
            format!("samples of {} are missing, seconds {from_s} to {to_s}: the file is damaged", gap.path)
        });
        self.modes.warning().into_iter().chain(self.cut.clone()).chain(wrong).chain(gaps)
    }

    /// Returns the warnings as lines in front of a text.
    pub fn warning_lines(&self) -> String {
        self.warnings().map(|warning| format!("warning: {warning}\n")).collect()
    }

    pub fn range_ns(&self) -> Range<u64> {
        self.from_ns..self.to_ns
    }
}
