//! Sums up the samples stored since the last request, and builds requests from the sums.

use std::ops::Range;
use std::sync::Arc;

use prost::Message;
use rustc_hash::FxHashMap;

use super::outbox::{Amount, Batch};
use super::settings::Settings;
use crate::store::{StoredSamples, View};
use profile::export::otlp;
use profile::query::process::ProcessProfile;
use profile::source::Sum;

/// Maximum sums in one request: the store waits while names are looked up.
const SUMS: usize = 2000;

/// Sums of one session since its last request.
#[derive(Debug)]
struct SessionSums {
    view: View,
    /// By thread and stack.
    sums: FxHashMap<(u32, u32), Sum>,
    range_ns: Range<u64>,
}

/// Sums of all sessions since their last requests.
#[derive(Debug)]
pub(super) struct Aggregation {
    sessions: FxHashMap<u64, SessionSums>,
    /// Number of sums of all sessions.
    count: usize,
    /// A number that is unique over all runs of the collector; with the session id it makes the id of a profile.
    last_number: u64,
}

impl Aggregation {
    /// Creates an empty aggregation; `start_ns` is the current time since the epoch.
    pub(super) fn new(start_ns: u64) -> Aggregation {
        Aggregation { sessions: FxHashMap::default(), count: 0, last_number: start_ns }
    }

    /// Returns the number of distinct pairs of thread and stack.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds samples. Returns requests for the session's previous samples if those are in another partition, whose stack
    /// numbers differ.
    pub(super) fn add(&mut self, samples: StoredSamples, settings: &Settings) -> Vec<Batch> {
        let StoredSamples { view, session, sums, range_ns } = samples;
        let mut batches = Vec::new();
        if self.sessions.get(&session).is_some_and(|gathered| !gathered.view.is_same(&view))
            && let Some(gathered) = self.sessions.remove(&session)
        {
            self.count -= gathered.sums.len();
            batches = requests(session, gathered, &mut self.last_number, settings);
        }
        let gathered = self.sessions.entry(session).or_insert_with(|| SessionSums {
            view,
            sums: FxHashMap::default(),
            range_ns: range_ns.clone(),
        });
        let known = gathered.sums.len();
        for (thread, stack, sum) in sums {
            gathered.sums.entry((thread, stack)).or_default().add(sum);
        }
        self.count += gathered.sums.len() - known;
        let whole_ns = &mut gathered.range_ns;
        *whole_ns = whole_ns.start.min(range_ns.start)..whole_ns.end.max(range_ns.end);
        batches
    }

    /// Returns requests for all sums, one session after the other, and resets the sums.
    pub(super) fn take<'g>(&'g mut self, settings: &'g Settings) -> impl Iterator<Item = Batch> + 'g {
        self.count = 0;
        let sessions = std::mem::take(&mut self.sessions);
        let last_number = &mut self.last_number;
        sessions
            .into_iter()
            .flat_map(|(session, gathered)| requests(session, gathered, last_number, settings))
    }
}

fn requests(session: u64, gathered: SessionSums, last_number: &mut u64, settings: &Settings) -> Vec<Batch> {
    let SessionSums { view, sums, range_ns } = gathered;
    let mut sums: Vec<(u32, u32, Sum)> =
        sums.into_iter().map(|((thread, stack), sum)| (thread, stack, sum)).collect();
    sums.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
    let mut waiting: Vec<&[(u32, u32, Sum)]> = sums.chunks(SUMS).rev().collect();
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(chunk) = waiting.pop() {
        let Some(profile) = ProcessProfile::of_cells(&view, session, chunk, range_ns.start) else { continue };
        let mut request =
            otlp::request(&profile, range_ns.start, range_ns.end.saturating_sub(range_ns.start));
        // Parts of the same period have the same start, so they need distinct ids.
        let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
        for profile in scopes.flat_map(|scope| &mut scope.profiles) {
            *last_number += 1;
            profile.profile_id = [session.to_be_bytes(), last_number.to_be_bytes()].concat();
        }
        let bytes = request.encoded_len() as u64;
        if bytes > settings.request_bytes && chunk.len() > 1 {
            let (first, second) = chunk.split_at(chunk.len() / 2);
            waiting.extend([second, first]);
            continue;
        }
        let total = profile.total();
        let amount = Amount { requests: 1, bytes, samples: total.samples, cpu_ns: total.cpu_ns };
        batches.push(Batch { request: Arc::new(request), amount });
    }
    batches
}
