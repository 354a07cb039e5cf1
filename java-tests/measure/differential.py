"""Compares our walk with the VM's own: AsyncGetCallTrace at every sample, GetStackTrace wherever a class is prepared.

  python3 java-tests/measure differential [--jdk NAME]... [--workload NAME]... [--seconds S] [--size short|full] [--examples]
                          [--quick]

Prints Markdown: by JDK how many lists of methods are the same where AsyncGetCallTrace succeeded, how often either failed,
which one is right where they differ and by which rule (java-tests/agct/src/judge.rs), and the number of each kind of
difference. Lists that differ because both look an interrupted instruction up at another place are counted apart, as an
error of neither (java-tests/agct/src/differences.rs). --examples prints some differences, and all that are not decided for our walk.
--quick takes about two minutes and fails if the other is right, or if more than 0.1 % are neither the same nor decided for
ours, beyond what chance adds. Up to JDK 19, whose sweeper frees code outside of pauses, the other may be right where our stack
is marked as cut; such stacks count as neither.
Prerequisites: java-tests/fetch and CARGO_TARGET_DIR=target/agct cargo build --release -p agct, whose target folder keeps
developers' hooks out of the release build; TICKWALK_BIN_DIR names another folder of libtickwalk_agct.so.
"""

import argparse
import collections
import re
import subprocess
import tempfile

from measure.harness import JDKS, PROGRAMS, binary, compile_workloads, complain, fail, java, program_arguments, rare_events

WORKLOADS = ["DeepRecursion", "Megamorphic", "Lambdas", "RegexStrings", "NativeHeavy", "Exceptions", "DeoptStorm",
             "AllocHeavy", "h2", "clojure"]
QUICK = ["Lambdas", "Exceptions", "DeoptStorm", "clojure"]
# A sample at every tick of the kernel; pauses wait until all earlier samples are walked, even on a busy machine.
OPTIONS = "interval=1ms,gcdrain=100ms"
# Name of the difference that is counted apart.
BEHIND = "theirs is of the instruction behind"
# Beginning of the rules by which the other is right where our stack says that it lacks frames.
MARKED = "theirs: ours is marked as cut"
FIRST_WITHOUT_SWEEPER = 20
# Smallest share of lists that are the same, or differ and ours is proven right; a run of a few thousand shows less by
# chance.
MIN_SHARE = 0.999


def arguments(workload, classes, seconds, size, folder):
    if workload in PROGRAMS:
        return program_arguments(workload, size, folder)
    return ["-cp", str(classes), workload, str(seconds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdk", action="append")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", choices=["short", "full"], default="short")
    parser.add_argument("--examples", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    agent = binary("libtickwalk_agct.so", "agct/release", "CARGO_TARGET_DIR=target/agct cargo build --release -p agct")
    totals, quiet, judged, control, examples = {}, {}, {}, {}, []
    if options.quick:
        options.workload = options.workload or QUICK
    with tempfile.TemporaryDirectory(prefix="tickwalk-differential-") as scratch:
        classes = compile_workloads(scratch)
        for jdk in options.jdk or JDKS:
            totals[jdk], quiet[jdk], judged[jdk], control[jdk] = (collections.Counter() for _ in range(4))
            for workload in options.workload or WORKLOADS:
                line = [java(jdk), f"-agentpath:{agent}={OPTIONS},file={scratch}/x.tickwalk",
                        *arguments(workload, classes, options.seconds, options.size, scratch)]
                done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=600)
                if done.returncode != 0 or "agct comparison" not in done.stderr:
                    fail(f"JDK {jdk} {workload}: exit {done.returncode}: {done.stderr[-2000:]}")
                complain(f"JDK {jdk} {workload}")
                for counter, what in ((totals, "agct difference"), (quiet, "quiet difference"), (judged, "agct judged"),
                                      (control, "agct control")):
                    for count, name in re.findall(what + r": (\d+) x (.*)", done.stderr):
                        counter[jdk][name] += int(count)
                examples += [f"{jdk} {workload} {text}" for text in re.findall(r"(?:agct|quiet) example: .*", done.stderr)]
    failures = report(totals, quiet, judged, control)
    if options.examples:
        print("\n" + "\n".join(examples))
    elif options.quick and failures:
        print("\n" + "\n".join(text for text in examples if re.search(r"example: (Theirs|Undecided|control)\b", text)))
    if options.quick and failures:
        fail("; ".join(failures))


def report(totals, quiet, judged, control):
    """Prints the tables; returns the failures."""
    failures = []
    print("| JDK | compared | it failed | of these ours whole | instruction behind | same methods | same or ours proven right | theirs right |"
          " undecided | same bytecodes too | quiet points the same |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for jdk, shapes in totals.items():
        total = sum(shapes.values()) - shapes["not compared"]
        failed = sum(count for shape, count in shapes.items() if shape.startswith("it failed"))
        whole = sum(count for shape, count in shapes.items() if shape.startswith("it failed") and "ours whole" in shape)
        both = max(total - failed - shapes[BEHIND], 1)
        same = sum(count for shape, count in shapes.items() if shape.startswith("same methods"))
        exact = shapes["same methods, same bytecodes"]
        calm = sum(quiet[jdk].values())
        of = {who: sum(count for rule, count in judged[jdk].items() if rule.startswith(who + ":"))
              for who in ("ours", "theirs", "undecided")}
        good = (same + of["ours"]) / both
        print(f"| {jdk} | {total} | {failed} | {whole} | {shapes[BEHIND]} | {same / both:.2%} of {both} | {good:.2%} | {of['theirs']} |"
              f" {of['undecided']} | {exact / both:.2%} | {quiet[jdk]['same methods, same bytecodes']} of {calm} |")
        if same + sum(of.values()) != both:
            failures.append(f"JDK {jdk}: {both} lists, but {same} the same and {sum(of.values())} judged")
        most = rare_events(1 - MIN_SHARE, both)
        marked = sum(count for rule, count in judged[jdk].items() if rule.startswith(MARKED))
        has_sweeper = int(re.match(r"\d+", jdk)[0]) < FIRST_WITHOUT_SWEEPER
        wrong = of["theirs"] - (marked if has_sweeper else 0)
        if both - same - of["ours"] > most or wrong:
            failures.append(f"JDK {jdk}: {good:.3%} the same or ours, by chance {most} of {both} may be neither;"
                            f" theirs right in {of['theirs']}, {marked} of these where ours is marked as cut")
        if control[jdk]["dropped and found right"] or not control[jdk]["frames dropped from ours"]:
            failures.append(f"JDK {jdk}: the judge finds {control[jdk]['dropped and found right']} lists right that lack frames, of"
                            f" {control[jdk]['frames dropped from ours']}")
    for title, counters in (("who is right, and why", judged), ("control", control), ("difference", totals)):
        print(f"\n| {title} | " + " | ".join(str(jdk) for jdk in totals) + " |")
        print("|---" * (len(totals) + 1) + "|")
        pooled = sum(counters.values(), collections.Counter())
        for name, _ in pooled.most_common():
            print(f"| {name} | " + " | ".join(str(counter[name]) for counter in counters.values()) + " |")
    for jdk, shapes in quiet.items():
        for shape, count in shapes.items():
            if not shape.startswith("same methods, same"):
                print(f"\nquiet, JDK {jdk}: {count} x {shape}")
    return failures


if __name__ == "__main__":
    main()
