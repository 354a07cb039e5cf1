// Phases of HotSpot's compilers. A compiler thread has a tower of functions for each method that it compiled, so a
// flame graph shows one box for each phase in their place until the box is opened.

/** The box of all compiler threads. */
const COMPILERS = "[JIT compiler]";

/**
 * Functions at which a phase begins, in JDK 11 to 25: of C2 (`Compile::Compile`, `Optimize` and `Code_Gen` in
 * `src/hotspot/share/opto/compile.cpp`) and of C1 (`compile_java_method` and `emit_lir` in
 * `src/hotspot/share/c1/c1_Compilation.cpp`).
 */
const PHASES = {
  "Parsing and inlining": ["ParseGenerator::generate", "Parse::Parse", "Compile::inline_incrementally", "ciTypeFlow::do_flow", "Compilation::build_hir"],
  "Escape analysis": ["ConnectionGraph::do_analysis"],
  "Simplifying expressions": ["PhaseIterGVN::optimize", "PhaseRemoveUseless::PhaseRemoveUseless", "PhaseRenumberLive::PhaseRenumberLive", "PhaseCCP::analyze", "PhaseCCP::do_transform", "Compile::final_graph_reshaping"],
  "Optimizing loops": ["Compile::optimize_loops", "PhaseIdealLoop::optimize", "PhaseIdealLoop::build_and_optimize", "PhaseIdealLoop::verify"],
  "Expanding allocations and locks": ["PhaseMacroExpand::expand_macro_nodes", "PhaseMacroExpand::eliminate_macro_nodes"],
  "Selecting instructions": ["Matcher::match", "LIRGenerator::block_do"],
  "Scheduling instructions": ["PhaseCFG::PhaseCFG", "PhaseCFG::do_global_code_motion", "PhaseCFG::global_code_motion", "PhaseBlockLayout::PhaseBlockLayout"],
  "Allocating registers": ["PhaseChaitin::Register_Allocate", "LinearScan::do_linear_scan"],
  "Writing machine code": ["PhaseOutput::Output", "Compile::Output", "Compilation::emit_code_body"],
  "Installing code": ["PhaseOutput::install", "PhaseOutput::install_code", "Compilation::install_code", "ciEnv::register_method"],
};
const PHASE_OF = new Map(Object.entries(PHASES).flatMap(([title, functions]) => functions.map((name) => [name, title])));

/** Whether a box is one of the compiler threads of a kind, such as `C2 CompilerThread`. */
const isCompilerThread = (box) => box.kind === MARKER && box.parent?.label === COMPILERS;

/** Boxes of the phases below a compiler thread, in the form of `heaviestFirst`. */
function phasesOf(parent, model) {
  const byTitle = new Map();
  const visit = [...parent.items];
  while (visit.length > 0) {
    const item = visit.pop();
    for (let node = model.firstChild[item]; node >= 0; node = model.nextChild[node]) {
      const total = parent.weights.total(node);
      if (total === 0) continue;
      const title = PHASE_OF.get(model.names[model.name[node]].split("(")[0]);
      if (title === undefined) visit.push(node);
      else add(phase(byTitle, parent, title, model.name[node]), node, model.kind[node], total, parent.weights.self(node));
    }
  }
  return heaviestFirst(byTitle);
}

function phase(byTitle, parent, title, name) {
  let made = byTitle.get(title);
  if (!made) {
    made = box(parent, title, name, MARKER, parent.weights);
    made.isFolded = true;
    byTitle.set(title, made);
  }
  return made;
}

/** Opens the box of a phase. */
function unfold(box) {
  if (!box.isFolded) return;
  box.isFolded = false;
  box.children = null;
}
