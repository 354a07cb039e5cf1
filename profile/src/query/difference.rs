//! Compares two selections, as one tree and by method.

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::tree::{Columns, MethodCost, Order, Tree, heaviest, sum_up};

/// Two selections in one tree.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Nodes of both selections; the sums of this tree are empty.
    pub tree: Tree,
    /// CPU time of each node with its subtree, before.
    pub before_ns: Vec<u64>,
    /// The same, after.
    pub after_ns: Vec<u64>,
}

impl Difference {
    /// Merges both trees, with the CPU time of each node on either side.
    ///
    /// Frames of equal name are equal, whether interpreted or compiled; the first kind is shown. Stacks that begin with
    /// native code and continue in Java are shown from their first Java frame on, because the native frames that start a
    /// thread differ between releases of the JVM and of the C library.
    pub fn of(before: &Tree, after: &Tree) -> Self {
        let mut tree = Tree::empty();
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let sides = [before, after].map(|side| {
            let first_java = first_java(side);
            let mut rest_ns: Vec<u64> = side.own.iter().map(|cell| cell.cpu_ns).collect();
            sum_up(&mut rest_ns, |node| !first_java[node], |node| side.parents[node]);
            let mut shown = vec![0u32; side.len()];
            for node in (1..side.len()).filter(|&node| rest_ns[node] > 0) {
                let above = if first_java[node] { 0 } else { shown[side.parents[node] as usize] };
                let name = tree.name(side.text(side.name_of[node]));
                let new = || tree.child(above, name, side.kinds[node]);
                shown[node] = *known.entry((above, name)).or_insert_with(new);
            }
            (side, shown)
        });
        let [before_ns, after_ns] = sides.map(|(side, shown)| {
            let mut own_ns = vec![0u64; tree.len()];
            for (&at, own) in shown.iter().zip(&side.own) {
                own_ns[at as usize] = own_ns[at as usize].saturating_add(own.cpu_ns);
            }
            sum_up(&mut own_ns, |_| true, |node| tree.parents[node]);
            own_ns
        });
        Self { tree, before_ns, after_ns }
    }

    /// Returns the `nodes` nodes that are heaviest in both selections together, and the number of the others.
    pub fn columns(&self, nodes: usize) -> (DifferenceColumns<'_>, usize) {
        let weights: Vec<u64> = self
            .before_ns
            .iter()
            .zip(&self.after_ns)
            .map(|(&before, &after)| before.saturating_add(after))
            .collect();
        let kept = heaviest(&weights, nodes);
        let (columns, left_out) = self.tree.columns(&kept);
        let pick =
            |column: &[u64]| kept.iter().zip(column).filter(|(kept, _)| **kept).map(|(_, &ns)| ns).collect();
        let (before_ns, after_ns) = (pick(&self.before_ns), pick(&self.after_ns));
        let Columns { names, parents, frame_names, kinds, .. } = columns;
        (DifferenceColumns { names, parents, frame_names, kinds, before_ns, after_ns }, left_out)
    }
}

/// A [`Difference`] in columns for an answer.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in docs/formats.md")]
pub struct DifferenceColumns<'t> {
    pub names: Vec<&'t str>,
    pub parents: Vec<u32>,
    pub frame_names: Vec<u32>,
    pub kinds: Vec<u8>,
    pub before_ns: Vec<u64>,
    pub after_ns: Vec<u64>,
}

/// A method in two selections. Shares are of the CPU time of the whole selection, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in docs/formats.md")]
pub struct MethodDifference {
    pub name: String,
    pub before_ns: u64,
    pub after_ns: u64,
    pub before_share: f64,
    pub after_share: f64,
    pub change: f64,
}

/// All methods of a selection, as the answer to the question `methods`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Methods {
    /// CPU time of the selection.
    pub total_ns: u64,
    /// Costs of methods, ordered by self time.
    pub methods: Vec<MethodCost>,
}

impl Methods {
    /// Returns the `limit` first methods of `tree`.
    pub fn of(tree: &Tree) -> Methods {
        Methods { total_ns: tree.total_ns(), methods: tree.methods(Order::SelfTime) }
    }
}

/// Compares methods by self time, relative to the CPU time of each selection; the largest changes come first.
pub fn method_differences(before: &Methods, after: &Methods) -> Vec<MethodDifference> {
    let mut methods: FxHashMap<&str, (u64, u64)> = FxHashMap::default();
    for method in &before.methods {
        methods.entry(&method.name).or_default().0 = method.self_ns;
    }
    for method in &after.methods {
        methods.entry(&method.name).or_default().1 = method.self_ns;
    }
    let share = |ns, side: &Methods| crate::text::quantity::share(ns, side.total_ns);
    let mut rows: Vec<MethodDifference> = methods
        .into_iter()
        .map(|(name, (before_ns, after_ns))| {
            let (before_share, after_share) = (share(before_ns, before), share(after_ns, after));
            let change = after_share - before_share;
            MethodDifference { name: name.to_owned(), before_ns, after_ns, before_share, after_share, change }
        })
        .collect();
    rows.sort_by(|a, b| b.change.abs().total_cmp(&a.change.abs()).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Returns for each node whether it is a Java frame with only native frames, at least one, on the way to the root.
fn first_java(tree: &Tree) -> Vec<bool> {
    let mut is_native = vec![true; tree.len()];
    let mut first_java = vec![false; tree.len()];
    for node in 1..tree.len() {
        let parent = tree.parents[node] as usize;
        is_native[node] = is_native[parent] && NATIVE_KINDS.contains(&tree.kinds[node]);
        first_java[node] = parent != 0 && is_native[parent] && JAVA_KINDS.contains(&tree.kinds[node]);
    }
    first_java
}

const NATIVE_KINDS: [u8; 3] = [FrameKind::Native as u8, FrameKind::Vm as u8, FrameKind::Stub as u8];
const JAVA_KINDS: [u8; 6] = [
    FrameKind::Interpreted as u8,
    FrameKind::C1 as u8,
    FrameKind::C2 as u8,
    FrameKind::Jvmci as u8,
    FrameKind::Inlined as u8,
    FrameKind::NativeMethod as u8,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::cell::Cell;

    /// Builds a tree from paths of names with kinds, each with the CPU time of its last node.
    fn tree(paths: &[(&[(&str, FrameKind)], u64)]) -> Tree {
        let mut tree = Tree::empty();
        for (path, cpu_ns) in paths {
            let node = path.iter().fold(0, |at, &(name, kind)| {
                let name = tree.name(name);
                tree.child(at, name, kind as u8)
            });
            tree.own[node as usize].add(Cell { cpu_ns: *cpu_ns, samples: 1 });
        }
        tree.sum_totals();
        tree
    }

    /// Returns the nodes by path, with the CPU time of both sides.
    fn paths(difference: &Difference) -> Vec<(String, u64, u64)> {
        let (columns, left_out) = difference.columns(100);
        assert_eq!(left_out, 0);
        let mut texts: Vec<String> = Vec::new();
        for (node, &back) in columns.parents.iter().enumerate() {
            let above = texts.get(node - back as usize).map_or("", String::as_str);
            texts.push(format!("{above}/{}", columns.names[columns.frame_names[node] as usize]));
        }
        let sides = columns.before_ns.iter().zip(&columns.after_ns);
        texts.into_iter().zip(sides).map(|(text, (&before, &after))| (text, before, after)).collect()
    }

    #[test]
    fn java_threads_are_compared_from_their_first_java_frame_on() {
        use FrameKind::{C1, C2, Inlined, Interpreted, Marker, Native, Vm};
        let before = tree(&[
            (&[("start", Native), ("old", Native), ("call", Vm), ("main", Interpreted), ("hot", C1)], 10),
            (&[("start", Native), ("old", Native)], 1),
            (&[("[GC]", Marker), ("start", Native), ("mark", Vm)], 3),
            (&[("[cut]", Marker), ("hot", C2)], 2),
        ]);
        let after = tree(&[
            (&[("start", Native), ("new", Native), ("main", C2), ("hot", Inlined)], 20),
            (&[("start", Native), ("new", Native), ("main", C2), ("lookup", Vm), ("loaded", Interpreted)], 5),
            (&[("main", C2)], 4),
        ]);
        let difference = Difference::of(&before, &after);
        let expected = [
            ("/all", 16, 29),
            ("/all/start", 1, 0),
            ("/all/start/old", 1, 0),
            ("/all/main", 10, 29),
            ("/all/main/hot", 10, 20),
            ("/all/[GC]", 3, 0),
            ("/all/[GC]/start", 3, 0),
            ("/all/[GC]/start/mark", 3, 0),
            ("/all/[cut]", 2, 0),
            ("/all/[cut]/hot", 2, 0),
            ("/all/main/lookup", 0, 5),
            ("/all/main/lookup/loaded", 0, 5),
        ];
        assert_eq!(
            paths(&difference),
            expected.map(|(text, before, after)| (text.to_owned(), before, after))
        );
    }
}
