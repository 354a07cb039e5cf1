//! Compares two selections, as one tree and by method.

use proto::v1::FrameKind;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::flat::{Flat, MethodCost, Order};
use super::tree::{Columns, LeftOut, Tree, heaviest, sum_up};
use crate::text::generated_name::folded;

/// Two selections merged into one tree.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Nodes of both selections, with the own CPU time of both together; its subtrees are not summed.
    pub tree: Tree,
    /// CPU time of each node with its subtree, before.
    pub before_ns: Vec<u64>,
    /// CPU time of each node with its subtree, after.
    pub after_ns: Vec<u64>,
}

impl Difference {
    /// Returns the nodes of `both` with the CPU time of either side.
    ///
    /// Frames of equal name are equal, whether interpreted or compiled; the first kind is shown. Stacks that begin with
    /// native code and continue in Java are shown from their first Java frame on, because the native frames that
    /// start a thread differ between releases of the JVM and of the C library. Names of generated classes are folded.
    pub(crate) fn of(both: &Tree) -> Self {
        let mut tree = Tree { merged: both.merged, ..Tree::empty() };
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let first_java = first_java(both);
        let mut rest_ns: Vec<u64> = both.own.iter().map(|cell| cell.cpu_ns).collect();
        sum_up(&mut rest_ns, |node| !first_java[node], |node| both.parents[node]);
        let mut shown = vec![0u32; both.len()];
        for node in (1..both.len()).filter(|&node| rest_ns[node] > 0) {
            let above = if first_java[node] { 0 } else { shown[both.parents[node] as usize] };
            let name = tree.name(&folded(both.text(both.name_of[node])));
            let new = || tree.child(above, name, both.kinds[node]);
            shown[node] = *known.entry((above, name)).or_insert_with(new);
        }
        let mut sides_ns = [vec![0u64; tree.len()], vec![0u64; tree.len()]];
        for (node, &at) in shown.iter().enumerate() {
            tree.own[at as usize].add(both.own[node]);
            for (side, own_ns) in sides_ns.iter_mut().zip(both.sides_ns(node)) {
                side[at as usize] = side[at as usize].saturating_add(own_ns);
            }
        }
        for side in &mut sides_ns {
            sum_up(side, |_| true, |node| tree.parents[node]);
        }
        let [before_ns, after_ns] = sides_ns;
        Self { tree, before_ns, after_ns }
    }

    /// Returns the CPU time of both sides.
    pub(crate) fn totals_ns(&self) -> [u64; 2] {
        [&self.before_ns, &self.after_ns].map(|side| side.first().copied().unwrap_or(0))
    }

    /// Returns the `nodes` nodes that are heaviest in both selections together, and what is left out.
    pub fn columns(&self, nodes: usize) -> (DifferenceColumns<'_>, LeftOut) {
        let weights: Vec<u64> = self
            .before_ns
            .iter()
            .zip(&self.after_ns)
            .map(|(&before, &after)| before.saturating_add(after))
            .collect();
        let kept = heaviest(&weights, nodes);
        let pick =
            |column: &[u64]| kept.iter().zip(column).filter(|(kept, _)| **kept).map(|(_, &ns)| ns).collect();
        let (before_ns, after_ns) = (pick(&self.before_ns), pick(&self.after_ns));
        let left_out = self.tree.left_out_of(&kept);
        let Columns { names, parents, frame_names, kinds, .. } = self.tree.columns(&kept);
        (DifferenceColumns { names, parents, frame_names, kinds, before_ns, after_ns }, left_out)
    }
}

/// A [`Difference`] in columns for an answer.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
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
    pub samples: u64,
    /// Costs of methods, ordered by self time.
    pub methods: Vec<MethodCost>,
    /// Names of the modes of the selected processes, if they are known.
    #[serde(default)]
    pub modes: Vec<String>,
    /// Sentences about samples that are missing, and about sums of several modes.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Methods {
    pub fn of(flat: &Flat) -> Methods {
        let methods = flat.methods(Order::SelfTime);
        Methods { total_ns: flat.total_ns(), samples: flat.samples(), methods, ..Methods::default() }
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
    use crate::source::Sum;

    type Path<'p> = (&'p [(&'p str, FrameKind)], u64);

    /// Builds a tree from paths of names with kinds, each with the CPU time of its last node on one of both sides.
    fn tree(before: &[Path<'_>], after: &[Path<'_>]) -> Tree {
        let mut tree = Tree::empty();
        let before = before.iter().map(|path| (path, true));
        for ((path, cpu_ns), is_before) in before.chain(after.iter().map(|path| (path, false))) {
            let node = path.iter().fold(0, |at, &(name, kind)| {
                let name = tree.name(name);
                tree.child(at, name, kind as u8)
            });
            tree.add_own(node, Sum { cpu_ns: *cpu_ns, samples: 1 }, if is_before { *cpu_ns } else { 0 });
        }
        tree.sum_totals();
        tree
    }

    /// Returns the nodes by path, with the CPU time of both sides.
    fn paths(difference: &Difference) -> Vec<(String, u64, u64)> {
        let (columns, left_out) = difference.columns(100);
        assert_eq!(left_out, LeftOut::default());
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
        let before: &[Path<'_>] = &[
            (&[("start", Native), ("old", Native), ("call", Vm), ("main", Interpreted), ("hot", C1)], 10),
            (&[("start", Native), ("old", Native)], 1),
            (&[("[GC]", Marker), ("start", Native), ("mark", Vm)], 3),
            (&[("[cut]", Marker), ("hot", C2)], 2),
        ];
        let after: &[Path<'_>] = &[
            (&[("start", Native), ("new", Native), ("main", C2), ("hot", Inlined)], 20),
            (&[("start", Native), ("new", Native), ("main", C2), ("lookup", Vm), ("loaded", Interpreted)], 5),
            (&[("main", C2)], 4),
        ];
        let difference = Difference::of(&tree(before, after));
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
