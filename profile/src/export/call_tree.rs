//! Call trees as text: of a selection, and of the callers of a method.
//!
//! Problem: Java stacks are deep, and rows that are indented once for each frame leave the screen.
//! Approach: a row is indented only if its caller has several callees that are shown. `+` begins such a branch; rows
//! below it without `+` are each called by the row above.
//! Invariant: the last line says how many rows are left out, and how much of the time they have.

use std::fmt::Write;

use crate::query::flat::MethodCost;
use crate::query::tree::{LeftOut, Tree};
use crate::text::quantity::{count, duration, percent, percent_of};

/// Bounds of a tree that is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Least share of the whole, 0 to 1, of a row.
    pub least: f64,
    /// Most frames below the root.
    pub depth: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { least: 0.01, depth: 64 }
    }
}

/// Returns the call tree of a selection; `time` is the quantity that its samples measure.
pub fn tree(tree: &Tree, time: &str, shape: Shape) -> String {
    let mut text = format!("Call tree of {} {time}\n", duration(tree.total_ns()));
    text.push_str("   total     self  method\n");
    let self_ns = |node: usize| tree.own[node].cpu_ns;
    push_rows(&mut text, tree, shape, |node| {
        format!(
            "{:>8} {:>8}",
            percent_of(tree.totals[node], tree.total_ns()),
            percent_of(self_ns(node), tree.total_ns())
        )
    });
    text
}

/// Returns the callers of `method`, each above its own callers, with their shares of the method's total time.
pub fn callers(method: &MethodCost, whole_ns: u64, tree: &Tree, time: &str, shape: Shape) -> String {
    let mut text = format!(
        "{}\n{} {time} with callees, {} of all; {} of its own\n",
        method.name,
        duration(method.total_ns),
        percent_of(method.total_ns, whole_ns),
        duration(method.self_ns)
    );
    text.push_str("   share        time  called by\n");
    push_rows(&mut text, tree, shape, |node| {
        let ns = tree.totals[node];
        format!("{:>8} {:>11}", percent_of(ns, tree.total_ns()), duration(ns))
    });
    text
}

/// A node and the place of its row.
struct Row {
    node: u32,
    indent: usize,
    begins_branch: bool,
}

fn push_rows(text: &mut String, tree: &Tree, shape: Shape, cells: impl Fn(usize) -> String) {
    let kept = kept(tree, shape);
    let mut callees = callees(tree, &kept);
    let mut rows = Vec::new();
    push_callees(&mut rows, &mut callees, 0, 0, true);
    while let Some(Row { node, indent, begins_branch }) = rows.pop() {
        let name = tree.name_text(node as usize);
        let mark = if begins_branch { "+ " } else { "  " };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}  {:indent$}{mark}{name}", cells(node as usize), "");
        push_callees(&mut rows, &mut callees, node, indent, false);
    }
    let LeftOut { nodes, cpu_ns } = tree.left_out_of(&kept);
    if nodes > 0 {
        let (nodes, share) = (count(nodes), percent_of(cpu_ns, tree.total_ns()));
        let _ = writeln!(
            text,
            "left out: {nodes} rows with {share} of the time, each below {} or more than {} frames deep",
            percent(shape.least),
            shape.depth
        );
    }
}

/// Puts the callees of `node` on the stack of rows, the heaviest last, so that it is taken first.
fn push_callees(rows: &mut Vec<Row>, callees: &mut [Vec<u32>], node: u32, indent: usize, is_root: bool) {
    let callees = std::mem::take(&mut callees[node as usize]);
    let begins_branch = is_root || callees.len() > 1;
    let indent = if begins_branch && !is_root { indent + 2 } else { indent };
    rows.extend(callees.into_iter().map(|node| Row { node, indent, begins_branch }));
}

/// Returns for each node whether it is drawn.
fn kept(tree: &Tree, shape: Shape) -> Vec<bool> {
    // A share of the total, which fits.
    let least_ns = ((tree.total_ns() as f64 * shape.least) as u64).max(1);
    let mut depths = vec![0usize; tree.len()];
    let mut kept = vec![true; tree.len()];
    for node in 1..tree.len() {
        let parent = tree.parents[node] as usize;
        depths[node] = depths[parent] + 1;
        kept[node] = kept[parent] && depths[node] <= shape.depth && tree.totals[node] >= least_ns;
    }
    kept
}

/// Returns the callees that are drawn of each node, the lightest first.
fn callees(tree: &Tree, kept: &[bool]) -> Vec<Vec<u32>> {
    let mut callees: Vec<Vec<u32>> = vec![Vec::new(); tree.len()];
    for node in (1..tree.len()).filter(|&node| kept[node]) {
        callees[tree.parents[node] as usize].push(node as u32);
    }
    let order = |&node: &u32| (tree.totals[node as usize], std::cmp::Reverse(node));
    callees.iter_mut().for_each(|callees| callees.sort_unstable_by_key(order));
    callees
}
