//! Costs of methods, lines, classes or packages: sums over all samples of a selection.
//!
//! Approach: each part's sums by node are added to one row for each name. No call tree is built, so tables are exact
//! for any number of different stacks.
//! Invariant: the rows' own CPU time adds up to that of the selection. Agents can invent names, so their text is
//! bounded: beyond [`TEXT_BYTES`], the lightest are summed in a row [`LEFT_OUT`], with a warning.

use std::cmp::{Ordering, Reverse};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::dictionary::Dictionary;
use crate::dictionary::texts::Texts;
use crate::query::error::QueryError;
use crate::query::method_name::named_by;
use crate::query::node_sums::{NodeSums, each_part};
use crate::query::selection::Selection;
use crate::query::span::Span;
use crate::query::tree::{LEFT_OUT, Naming, shortened};
use crate::source::Source;
use crate::source::Sum;

/// Maximum bytes of names after adding a part; meanwhile, twice as many.
const TEXT_BYTES: usize = 128 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// CPU time in the method's own code.
    #[default]
    SelfTime,
    /// Samples in the method's own code, as the views of `jfr` count them.
    Samples,
    /// CPU time in the method and its callees.
    TotalTime,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Self::SelfTime => "self",
            Self::Samples => "samples",
            Self::TotalTime => "total",
        }
    }
}

/// CPU time of one method, function or marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodCost {
    /// Text of the method's frames.
    pub name: String,
    /// CPU time of samples with the method on top of the stack.
    pub self_ns: u64,
    /// Number of these samples.
    pub self_samples: u64,
    /// CPU time of samples with the method anywhere on the stack; recursion counts a sample once.
    pub total_ns: u64,
    /// Number of these samples.
    #[serde(skip)]
    pub total_samples: u64,
}

/// Costs by name of a selection.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    names: Texts,
    rows: Vec<Row>,
    whole: Sum,
    /// True if the lightest names are summed in a row [`LEFT_OUT`].
    has_left_out: bool,
    naming: Naming,
}

/// Sums of one name.
#[derive(Clone, Copy, Debug)]
struct Row {
    own: Sum,
    total: Sum,
    /// Least number of frames from the root.
    depth: u32,
    /// Sum of hashes of the stacks with this name; rows with equal sums have the same stacks.
    stacks: u64,
    /// True for a Java method.
    is_java: bool,
}

/// First rows by total time.
#[derive(Clone, Debug, Default)]
pub struct Top {
    pub rows: Vec<MethodCost>,
    /// Number of callers that are left out because they have the same samples as one of the rows.
    pub folded: usize,
}

impl Default for Row {
    fn default() -> Self {
        Row { own: Sum::default(), total: Sum::default(), depth: u32::MAX, stacks: 0, is_java: false }
    }
}

impl Flat {
    /// Returns the costs of methods of `selection` in `source`, and the time it covers.
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<(Flat, Span), QueryError> {
        Self::named(source, selection, Naming::Method, now_ns)
    }

    /// Returns costs with a row for each name that `naming` gives.
    pub fn named(
        source: &dyn Source,
        selection: &Selection,
        naming: Naming,
        now_ns: u64,
    ) -> Result<(Flat, Span), QueryError> {
        let mut flat = Flat { naming, ..Flat::default() };
        let span = each_part(source, selection, now_ns, |dictionary, sums| {
            flat.add_part(dictionary, sums, TEXT_BYTES);
        })?;
        Ok((flat, span))
    }

    /// Returns the CPU time of all samples.
    pub fn total_ns(&self) -> u64 {
        self.whole.cpu_ns
    }

    pub fn samples(&self) -> u64 {
        self.whole.samples
    }

    /// Returns a warning if names are left out.
    pub fn warning(&self) -> Option<String> {
        let text = format!("there are too many names: the lightest are summed as {LEFT_OUT}");
        self.has_left_out.then_some(text)
    }

    /// Returns all methods with their costs, the most expensive first, then callers before callees, then by name.
    pub fn methods(&self, order: Order) -> Vec<MethodCost> {
        self.top_methods(order, usize::MAX).0
    }

    /// Returns the first `limit` of [`methods`](Self::methods), and the number of the others.
    pub fn top_methods(&self, order: Order, limit: usize) -> (Vec<MethodCost>, usize) {
        let mut ranked = self.names_with_time();
        let left_out = ranked.len().saturating_sub(limit);
        if left_out > 0 {
            ranked.select_nth_unstable_by(limit, |a, b| self.compare(order, *a, *b));
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(|a, b| self.compare(order, *a, *b));
        (ranked.into_iter().map(|name| self.cost(name)).collect(), left_out)
    }

    /// Returns the costs of `method`: of that name, or of the only name that ends with it, such as `HashMap.get`.
    ///
    /// # Errors
    /// As [`named_by`].
    pub fn find(&self, method: &str) -> Result<MethodCost, QueryError> {
        let mut names = self.names_with_time();
        names.sort_unstable_by(|a, b| self.compare(Order::TotalTime, *a, *b));
        let place = named_by(method, names.iter().map(|&name| self.text(name)))?;
        Ok(self.cost(names[place]))
    }

    /// Returns the first `limit` methods by total time, without callers that have no CPU time of their own and the same
    /// samples as one of their callees, and without rows for which `is_shown` is false. Of such a chain its last Java
    /// method remains, else its last function.
    pub fn top_folded(&self, limit: usize, is_shown: impl Fn(&MethodCost) -> bool) -> Top {
        let mut ranked = self.names_with_time();
        ranked.sort_unstable_by(|a, b| self.compare(Order::TotalTime, *a, *b));
        let is_kept = self.chain_ends(&ranked);
        let mut top = Top::default();
        for (name, is_kept) in ranked.into_iter().zip(is_kept) {
            if top.rows.len() == limit {
                break;
            }
            let cost = self.cost(name);
            match is_kept {
                _ if !is_shown(&cost) => {}
                true => top.rows.push(cost),
                false => top.folded += 1,
            }
        }
        top
    }

    /// Returns for each of the `ranked` names, callers first, whether it stands for its chain.
    fn chain_ends(&self, ranked: &[u32]) -> Vec<bool> {
        let mut is_kept: Vec<bool> = Vec::with_capacity(ranked.len());
        let mut ends: FxHashMap<u64, usize> = FxHashMap::default();
        for (place, &name) in ranked.iter().enumerate() {
            let row = &self.rows[name as usize];
            let end = ends.get(&row.stacks).copied();
            let other = end.map(|end| &self.rows[ranked[end] as usize]);
            let is_end = other.is_none_or(|other| {
                row.own.samples > 0 || other.own.samples == 0 && (row.is_java || !other.is_java)
            });
            if let Some(end) = end.filter(|_| is_end && other.is_some_and(|other| other.own.samples == 0)) {
                is_kept[end] = false;
            }
            if is_end {
                ends.insert(row.stacks, place);
            }
            is_kept.push(is_end);
        }
        is_kept
    }

    /// Returns the names of methods with CPU time; a marker of incomplete stacks is not a method.
    fn names_with_time(&self) -> Vec<u32> {
        let is_method = |&name: &u32| {
            let Row { own, total, .. } = self.rows[name as usize];
            total.cpu_ns > 0 && (own.samples > 0 || !self.text(name).starts_with('['))
        };
        (0..self.rows.len() as u32).filter(is_method).collect()
    }

    /// Compares names by time, then by depth, then by text.
    fn compare(&self, order: Order, one: u32, other: u32) -> Ordering {
        let key = |name: u32| {
            let Row { own, total, .. } = self.rows[name as usize];
            match order {
                Order::SelfTime => (own.cpu_ns, total.cpu_ns),
                Order::Samples => (own.samples, own.cpu_ns),
                Order::TotalTime => (total.cpu_ns, 0),
            }
        };
        let place = |name: u32| (self.rows[name as usize].depth, self.text(name));
        key(other).cmp(&key(one)).then_with(|| place(one).cmp(&place(other)))
    }

    fn cost(&self, name: u32) -> MethodCost {
        let Row { own, total, .. } = self.rows[name as usize];
        MethodCost {
            name: self.text(name).to_owned(),
            self_ns: own.cpu_ns,
            self_samples: own.samples,
            total_ns: total.cpu_ns,
            total_samples: total.samples,
        }
    }

    fn text(&self, name: u32) -> &str {
        self.names.get(name).unwrap_or_default()
    }

    fn add_part(&mut self, dictionary: &Dictionary, sums: &NodeSums, text_bytes: usize) {
        let totals = sums.totals(dictionary);
        let name_of = self.names_of(dictionary, sums, &totals, text_bytes);
        let outermost = outermost(dictionary, sums, &name_of, self.names.len());
        let nodes = dictionary.nodes();
        let mut depths = vec![0u32; nodes.len()];
        // Parts number their nodes alike; the samples of those before tell them apart.
        let stacks = stack_hashes(dictionary, sums, self.whole.samples);
        self.whole.add(totals[0]);
        for node in sums.used().skip(1) {
            // A caller has a smaller number than its callees.
            depths[node] = depths[nodes[node].parent as usize] + 1;
            let row = &mut self.rows[name_of[nodes[node].frame as usize] as usize];
            row.own.add(sums.own[node]);
            row.depth = row.depth.min(depths[node]);
            row.is_java |= dictionary.frame(nodes[node].frame).method != 0;
            if outermost[node] {
                row.total.add(totals[node]);
                row.stacks = row.stacks.wrapping_add(stacks[node]);
            }
        }
        self.leave_out(text_bytes);
    }

    /// Returns the number of the name of each used frame; the heaviest frames get theirs first.
    fn names_of(
        &mut self,
        dictionary: &Dictionary,
        sums: &NodeSums,
        totals: &[Sum],
        text_bytes: usize,
    ) -> Vec<u32> {
        let mut weights: Vec<Option<u64>> = vec![None; dictionary.frame_count()];
        for node in sums.used().skip(1) {
            let weight = &mut weights[dictionary.nodes()[node].frame as usize];
            *weight = Some(weight.unwrap_or(0).saturating_add(totals[node].cpu_ns));
        }
        let mut frames: Vec<(u64, u32)> =
            weights.into_iter().zip(0..).filter_map(|(weight, frame)| Some((weight?, frame))).collect();
        frames.sort_unstable_by_key(|&(weight, frame)| (Reverse(weight), frame));
        let mut name_of = vec![u32::MAX; dictionary.frame_count()];
        for (_, frame) in frames {
            name_of[frame as usize] = self.name(&self.naming.text(dictionary, frame), text_bytes);
        }
        name_of
    }

    /// Returns the number of a name, or of [`LEFT_OUT`] if there is no room for a new one.
    fn name(&mut self, text: &str, text_bytes: usize) -> u32 {
        let text = shortened(text);
        if let Some(name) = self.names.find(&text) {
            return name;
        }
        if text != LEFT_OUT && self.names.text_bytes() > 2 * text_bytes {
            self.has_left_out = true;
            return self.name(LEFT_OUT, text_bytes);
        }
        self.rows.push(Row::default());
        self.names.add(&text)
    }

    /// Sums the lightest names in one row if there is too much text.
    fn leave_out(&mut self, text_bytes: usize) {
        if self.names.text_bytes() <= text_bytes {
            return;
        }
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        order.sort_unstable_by_key(|&name| {
            let Row { own, total, .. } = self.rows[name as usize];
            (Reverse((own.cpu_ns, total.cpu_ns)), name)
        });
        let mut kept = Flat { whole: self.whole, has_left_out: true, naming: self.naming, ..Flat::default() };
        for name in order {
            let text = self.text(name);
            let row = self.rows[name as usize];
            if text == LEFT_OUT || kept.names.text_bytes() + text.len() <= text_bytes / 2 {
                let at = kept.name(text, text_bytes) as usize;
                kept.rows[at].merge(row);
            } else {
                let at = kept.name(LEFT_OUT, text_bytes) as usize;
                // A sample can be below several of these names, so only their own CPU time adds up.
                kept.rows[at].merge(Row { total: row.own, ..row });
            }
        }
        *self = kept;
    }
}

impl Row {
    fn merge(&mut self, other: Row) {
        self.own.add(other.own);
        self.total.add(other.total);
        self.depth = self.depth.min(other.depth);
        self.stacks = self.stacks.wrapping_add(other.stacks);
        self.is_java |= other.is_java;
    }
}

/// Returns for each node the sum of the hashes of the stacks that end in its subtree; equal stacks of parts with
/// different `salt` have different hashes.
fn stack_hashes(dictionary: &Dictionary, sums: &NodeSums, salt: u64) -> Vec<u64> {
    let mut hashes = vec![0u64; sums.own.len()];
    for node in (0..hashes.len()).rev().filter(|&node| sums.is_used[node]) {
        if sums.own[node].samples > 0 {
            // Sums of a linear hash would be equal for different nodes with equal sums.
            let content = [salt, node as u64, sums.own[node].cpu_ns].map(u64::to_le_bytes);
            hashes[node] = hashes[node].wrapping_add(xxh3_64(content.as_flattened()));
        }
        if node > 0 {
            let parent = dictionary.nodes()[node].parent as usize;
            hashes[parent] = hashes[parent].wrapping_add(hashes[node]);
        }
    }
    hashes
}

/// Returns for each used node whether its name is absent from the path to it, so that sums over these nodes count each
/// sample once in spite of recursion.
fn outermost(dictionary: &Dictionary, sums: &NodeSums, name_of: &[u32], names: usize) -> Vec<bool> {
    let nodes = dictionary.nodes();
    let mut first_child = vec![0u32; nodes.len()];
    let mut sibling = vec![0u32; nodes.len()];
    for node in (1..nodes.len()).rev().filter(|&node| sums.is_used[node]) {
        let parent = nodes[node].parent as usize;
        sibling[node] = std::mem::replace(&mut first_child[parent], node as u32);
    }
    let mut outermost = vec![false; nodes.len()];
    let mut on_path = vec![0u32; names];
    let name = |node: u32| name_of[nodes[node as usize].frame as usize] as usize;
    let mut node = first_child[0];
    while node != 0 {
        outermost[node as usize] = on_path[name(node)] == 0;
        on_path[name(node)] += 1;
        if first_child[node as usize] != 0 {
            node = first_child[node as usize];
            continue;
        }
        // Go up until there is a sibling; the root has none.
        while node != 0 {
            on_path[name(node)] -= 1;
            if sibling[node as usize] != 0 {
                node = sibling[node as usize];
                break;
            }
            node = nodes[node as usize].parent;
        }
    }
    outermost
}
