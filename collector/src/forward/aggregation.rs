//! Sums up the samples stored since the last request, and builds requests from the sums.

use std::sync::Arc;

use prost::Message;
use rustc_hash::FxHashMap;

use super::outbox::{Amount, Batch};
use super::settings::Settings;
use crate::store::{StoredSamples, View};
use profile::export::otlp;
use profile::query::process::ProcessProfile;
use profile::source::cell::Cell;

/// Maximum cells in one request: the store waits while names are looked up.
const CELLS: usize = 2000;

/// Sums of one session since its last request.
#[derive(Debug)]
struct SessionSums {
    view: View,
    cells: FxHashMap<(u32, u32), Cell>,
    first_ns: u64,
    last_ns: u64,
}

/// Sums of all sessions since their last requests.
#[derive(Debug)]
pub(super) struct Aggregation {
    sessions: FxHashMap<u64, SessionSums>,
    cells: usize,
    ids: ProfileIds,
}

/// Generates profile ids: the session id, and a number that is unique in the session over all runs of the collector.
#[derive(Debug)]
struct ProfileIds {
    next: u64,
}

impl ProfileIds {
    fn next(&mut self, session: u64) -> Vec<u8> {
        self.next += 1;
        [session.to_be_bytes(), self.next.to_be_bytes()].concat()
    }
}

impl Aggregation {
    /// Creates an empty aggregation; `start_ns` is the current time since the epoch.
    pub(super) fn new(start_ns: u64) -> Aggregation {
        Aggregation { sessions: FxHashMap::default(), cells: 0, ids: ProfileIds { next: start_ns } }
    }

    /// Returns the number of distinct pairs of thread and stack.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Adds samples. Returns requests for the session's previous samples if those are in another partition, whose stack
    /// numbers differ.
    pub(super) fn add(&mut self, samples: &StoredSamples, settings: &Settings) -> Vec<Batch> {
        let session = samples.session();
        let is_elsewhere = |gathered: &SessionSums| !gathered.view.is_same(samples.view());
        let before = if self.sessions.get(&session).is_some_and(is_elsewhere) {
            self.sessions.remove(&session)
        } else {
            None
        };
        let batches = before.map_or_else(Vec::new, |gathered| {
            self.cells -= gathered.cells.len();
            requests(session, gathered, &mut self.ids, settings)
        });
        let gathered = self.sessions.entry(session).or_insert_with(|| SessionSums {
            view: samples.view().clone(),
            cells: FxHashMap::default(),
            first_ns: u64::MAX,
            last_ns: 0,
        });
        let known = gathered.cells.len();
        for (thread, stack, add) in samples.cells() {
            gathered.cells.entry((thread, stack)).or_default().add(add);
        }
        self.cells += gathered.cells.len() - known;
        let range_ns = samples.range_ns();
        gathered.first_ns = gathered.first_ns.min(range_ns.start);
        gathered.last_ns = gathered.last_ns.max(range_ns.end);
        batches
    }

    /// Returns requests for all sums, one session after the other, and resets the sums.
    pub(super) fn take<'g>(&'g mut self, settings: &'g Settings) -> impl Iterator<Item = Batch> + 'g {
        self.cells = 0;
        let sessions = std::mem::take(&mut self.sessions);
        let ids = &mut self.ids;
        sessions.into_iter().flat_map(move |(session, gathered)| requests(session, gathered, ids, settings))
    }
}

fn requests(session: u64, gathered: SessionSums, ids: &mut ProfileIds, settings: &Settings) -> Vec<Batch> {
    let mut cells: Vec<(u32, u32, Cell)> =
        gathered.cells.into_iter().map(|((thread, stack), cell)| (thread, stack, cell)).collect();
    cells.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
    let mut waiting: Vec<&[(u32, u32, Cell)]> = cells.chunks(CELLS).rev().collect();
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(chunk) = waiting.pop() {
        let Some(profile) = ProcessProfile::of_cells(&gathered.view, session, chunk, gathered.first_ns)
        else {
            continue;
        };
        let duration_ns = gathered.last_ns.saturating_sub(gathered.first_ns);
        let mut request = otlp::request(&profile, gathered.first_ns, duration_ns);
        // Parts of the same period have the same start, so they need distinct ids.
        let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
        scopes
            .flat_map(|scope| &mut scope.profiles)
            .for_each(|profile| profile.profile_id = ids.next(session));
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
