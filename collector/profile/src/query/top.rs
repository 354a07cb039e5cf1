//! Hot methods.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{Cell, NameId, Naming, Profile};

/// What methods are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// CPU time in the method's own code.
    #[default]
    SelfTime,
    /// CPU time in the method and all it called.
    TotalTime,
}

/// CPU time of one method, or of one function or marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MethodCost {
    /// Text of the method's frames.
    pub name: String,
    /// CPU time of samples with the method on top of the stack.
    pub self_ns: u64,
    /// Number of these samples.
    pub self_samples: u64,
    /// CPU time of samples with the method anywhere on the stack, each counted once however often it recurs.
    pub total_ns: u64,
}

/// All methods of `profile` with their costs, dearest first, then by name.
pub fn methods(profile: &Profile, order: Order) -> Vec<MethodCost> {
    // Costs do not depend on the thread, so each stack is looked at once.
    let mut by_stack: FxHashMap<u64, Cell> = FxHashMap::default();
    for (_, stack, cell) in profile.cells() {
        let sum = by_stack.entry(stack).or_default();
        sum.cpu_ns = sum.cpu_ns.saturating_add(cell.cpu_ns);
        sum.samples = sum.samples.saturating_add(cell.samples);
    }
    let mut naming = Naming::new(profile);
    let mut costs: FxHashMap<NameId, (Cell, u64)> = FxHashMap::default();
    let mut names = Vec::new();
    for (stack, cell) in by_stack {
        names.clear();
        names.extend(naming.stack(stack).into_iter().map(|frame| frame.name));
        if let Some(&leaf) = names.first() {
            let own = &mut costs.entry(leaf).or_default().0;
            own.cpu_ns = own.cpu_ns.saturating_add(cell.cpu_ns);
            own.samples = own.samples.saturating_add(cell.samples);
        }
        names.sort_unstable();
        names.dedup();
        for name in &names {
            let total = &mut costs.entry(*name).or_default().1;
            *total = total.saturating_add(cell.cpu_ns);
        }
    }
    let mut methods: Vec<MethodCost> = costs
        .into_iter()
        .map(|(name, (own, total_ns))| MethodCost {
            name: naming.text(name).to_owned(),
            self_ns: own.cpu_ns,
            self_samples: own.samples,
            total_ns,
        })
        .collect();
    let key = |method: &MethodCost| match order {
        Order::SelfTime => (method.self_ns, method.total_ns),
        Order::TotalTime => (method.total_ns, method.self_ns),
    };
    methods.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    methods
}
