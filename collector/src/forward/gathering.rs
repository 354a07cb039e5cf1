//! Sums up what has been stored since the last time, and makes requests of it.

use std::sync::Arc;

use prost::Message;
use rustc_hash::FxHashMap;

use super::Settings;
use super::outbox::{Amount, Batch};
use crate::export::otlp;
use crate::profile::Cell;
use crate::store::{Fresh, View};

/// Cells in one request at most: names are looked up while the store waits, so not too many at once.
const CELLS: usize = 2000;

/// One session since the last time.
#[derive(Debug)]
struct Gathered {
    view: View,
    cells: FxHashMap<(u32, u32), Cell>,
    first_ns: u64,
    last_ns: u64,
}

/// All sessions since the last time.
#[derive(Debug)]
pub(super) struct Gathering {
    sessions: FxHashMap<u64, Gathered>,
    cells: usize,
    ids: Ids,
}

/// Ids of profiles: the session and a number that no other profile of the session has, in this run or another.
#[derive(Debug)]
struct Ids {
    next: u64,
}

impl Ids {
    fn next(&mut self, session: u64) -> Vec<u8> {
        self.next += 1;
        [session.to_be_bytes(), self.next.to_be_bytes()].concat()
    }
}

impl Gathering {
    /// Nothing yet; `start_ns` is the time of the day.
    pub(super) fn new(start_ns: u64) -> Gathering {
        Gathering { sessions: FxHashMap::default(), cells: 0, ids: Ids { next: start_ns } }
    }

    /// Distinct pairs of thread and stack that are held.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Adds samples; requests come back if those before were stored elsewhere, under other numbers.
    pub(super) fn add(&mut self, fresh: &Fresh, settings: &Settings) -> Vec<Batch> {
        let session = fresh.session();
        let is_elsewhere = |gathered: &Gathered| !gathered.view.is_same(fresh.view());
        let before = if self.sessions.get(&session).is_some_and(is_elsewhere) {
            self.sessions.remove(&session)
        } else {
            None
        };
        let batches = before.map_or_else(Vec::new, |gathered| {
            self.cells -= gathered.cells.len();
            requests(session, gathered, &mut self.ids, settings)
        });
        let gathered = self.sessions.entry(session).or_insert_with(|| Gathered {
            view: fresh.view().clone(),
            cells: FxHashMap::default(),
            first_ns: u64::MAX,
            last_ns: 0,
        });
        let known = gathered.cells.len();
        for (thread, stack, add) in fresh.cells() {
            let cell = gathered.cells.entry((thread, stack)).or_default();
            cell.cpu_ns = cell.cpu_ns.saturating_add(add.cpu_ns);
            cell.samples = cell.samples.saturating_add(add.samples);
        }
        self.cells += gathered.cells.len() - known;
        let range_ns = fresh.range_ns();
        gathered.first_ns = gathered.first_ns.min(range_ns.start);
        gathered.last_ns = gathered.last_ns.max(range_ns.end);
        batches
    }

    /// Requests for everything that is held, one session after the other.
    pub(super) fn take<'g>(&'g mut self, settings: &'g Settings) -> impl Iterator<Item = Batch> + 'g {
        self.cells = 0;
        let sessions = std::mem::take(&mut self.sessions);
        let ids = &mut self.ids;
        sessions.into_iter().flat_map(move |(session, gathered)| requests(session, gathered, ids, settings))
    }
}

fn requests(session: u64, gathered: Gathered, ids: &mut Ids, settings: &Settings) -> Vec<Batch> {
    let mut cells: Vec<(u32, u32, Cell)> =
        gathered.cells.into_iter().map(|((thread, stack), cell)| (thread, stack, cell)).collect();
    cells.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
    let mut waiting: Vec<&[(u32, u32, Cell)]> = cells.chunks(CELLS).rev().collect();
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(chunk) = waiting.pop() {
        // It is there, for its samples were stored under it.
        let Some(profile) = gathered.view.profile(session, chunk) else { continue };
        let mut parts: Vec<(u32, u64, Cell)> = profile.cells().collect();
        parts.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
        let duration_ns = gathered.last_ns.saturating_sub(gathered.first_ns);
        let mut request = otlp::request(&profile, &parts, gathered.first_ns, duration_ns);
        // The start does not tell apart the parts of one stretch of time.
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
