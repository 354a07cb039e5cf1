//! Costs, callers and callees of methods, computed from the tree.

use serde::{Deserialize, Serialize};

use super::{Tree, sum_up};
use crate::source::cell::Cell;

/// Order of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// CPU time in the method's own code.
    #[default]
    SelfTime,
    /// CPU time in the method and its callees.
    TotalTime,
}

impl Order {
    /// Returns the name of this order.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelfTime => "self",
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

impl Tree {
    /// Returns for each node whether its method is absent from the path to it. Sums over these nodes count each sample
    /// once in spite of recursion.
    fn outermost(&self) -> Vec<bool> {
        let mut first_child = vec![0u32; self.len()];
        let mut sibling = vec![0u32; self.len()];
        for node in (1..self.len()).rev() {
            let parent = self.parents[node] as usize;
            sibling[node] = std::mem::replace(&mut first_child[parent], node as u32);
        }
        let mut outermost = vec![true; self.len()];
        let mut on_path = vec![0u32; self.names.len()];
        let mut node = 0u32;
        loop {
            let name = self.name_of[node as usize] as usize;
            outermost[node as usize] = on_path[name] == 0;
            on_path[name] += 1;
            if first_child[node as usize] != 0 {
                node = first_child[node as usize];
                continue;
            }
            loop {
                on_path[self.name_of[node as usize] as usize] -= 1;
                if node == 0 {
                    return outermost;
                }
                if sibling[node as usize] != 0 {
                    node = sibling[node as usize];
                    break;
                }
                node = self.parents[node as usize];
            }
        }
    }

    /// Returns all methods with their costs, the most expensive first, then callers before callees, then by name.
    pub fn methods(&self, order: Order) -> Vec<MethodCost> {
        self.top_methods(order, usize::MAX).0
    }

    /// Returns the first `limit` of [`methods`](Self::methods), and the number of the others.
    pub fn top_methods(&self, order: Order, limit: usize) -> (Vec<MethodCost>, usize) {
        let outermost = self.outermost();
        let mut costs = vec![(Cell::default(), 0u64); self.names.len()];
        let mut samples: Vec<u64> = self.own.iter().map(|cell| cell.samples).collect();
        sum_up(&mut samples, |_| true, |node| self.parents[node]);
        let mut total_samples = vec![0u64; self.names.len()];
        let mut depths = vec![0u32; self.len()];
        let mut least_depths = vec![u32::MAX; self.names.len()];
        for node in 1..self.len() {
            let name = self.name_of[node] as usize;
            // A caller has a smaller number than its callees.
            depths[node] = depths[self.parents[node] as usize] + 1;
            least_depths[name] = least_depths[name].min(depths[node]);
            let cost = &mut costs[name];
            cost.0.add(self.own[node]);
            if outermost[node] {
                cost.1 = cost.1.saturating_add(self.totals[node]);
                total_samples[name] = total_samples[name].saturating_add(samples[node]);
            }
        }
        // The marker of an incomplete stack is not a method.
        let is_method = |&name: &u32| {
            let (own, total_ns) = costs[name as usize];
            total_ns > 0 && (own.samples > 0 || !self.text(name).starts_with('['))
        };
        let mut ranked: Vec<u32> = (0..self.names.len() as u32).filter(is_method).collect();
        let key = |name: u32| {
            let (own, total_ns) = costs[name as usize];
            match order {
                Order::SelfTime => (own.cpu_ns, total_ns),
                Order::TotalTime => (total_ns, 0),
            }
        };
        let place = |name: u32| (least_depths[name as usize], self.text(name));
        let first = |a: &u32, b: &u32| key(*b).cmp(&key(*a)).then_with(|| place(*a).cmp(&place(*b)));
        let left_out = ranked.len().saturating_sub(limit);
        if left_out > 0 {
            ranked.select_nth_unstable_by(limit, first);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(first);
        let row = |name: u32| {
            let (own, total_ns) = costs[name as usize];
            let (self_ns, self_samples) = (own.cpu_ns, own.samples);
            let total_samples = total_samples[name as usize];
            MethodCost { name: self.text(name).to_owned(), self_ns, self_samples, total_ns, total_samples }
        };
        (ranked.into_iter().map(row).collect(), left_out)
    }

    /// Returns the merged subtrees of the method `name`; the root stands for the method.
    pub fn callees(&self, name: &str) -> Tree {
        let mut tree = Tree::empty();
        let Some(method) = self.names.find(name) else {
            tree.sum_totals();
            return tree;
        };
        let outermost = self.outermost();
        let mut shown: Vec<Option<u32>> = vec![None; self.len()];
        for node in 1..self.len() {
            let above = shown[self.parents[node] as usize];
            shown[node] = if self.name_of[node] == method && outermost[node] {
                Some(0)
            } else if let Some(above) = above {
                let name = tree.name(self.text(self.name_of[node]));
                Some(tree.child(above, name, self.kinds[node]))
            } else {
                None
            };
            if let Some(at) = shown[node] {
                tree.own[at as usize].add(self.own[node]);
            }
        }
        tree.sum_totals();
        tree
    }

    /// Returns the tree of callers of the method `name`: children are callers, with the CPU time of the method in calls
    /// from there.
    pub fn callers(&self, name: &str) -> Tree {
        let mut tree = Tree::empty();
        if let Some(method) = self.names.find(name) {
            let outermost = self.outermost();
            for node in (1..self.len()).filter(|&node| self.name_of[node] == method && outermost[node]) {
                let mut at = 0;
                let mut caller = self.parents[node] as usize;
                while caller != 0 {
                    let name = tree.name(self.text(self.name_of[caller]));
                    at = tree.child(at, name, self.kinds[caller]);
                    caller = self.parents[caller] as usize;
                }
                // This tree has no numbers of samples, because they are counted by node and not by subtree.
                tree.own[at as usize].add(Cell { cpu_ns: self.totals[node], samples: 0 });
                tree.prune_if_large();
            }
        }
        tree.sum_totals();
        tree
    }
}
