"""Checks the account of a recording as the Java tests do (java-tests/harness/summary.rs): what is wrong with it, in sentences.

The input is the JSON that `tickwalk top --json` and `--summary` write (docs/formats.md, "Summary").
"""

import json
import subprocess

# Most CPU time of one thread that may be unfinished beyond its period: on a busy machine an expiration waits for a tick
# of the scheduler that interrupts this thread, and for the processor's owner. A thread without a working timer has far
# more.
MOST_UNFINISHED_NS = 2_000_000_000
# Causes of loss that have no request of a handler.
WITHOUT_REQUEST = ["no_timer", "signal_blocked", "handler_replaced", "signal_quota", "not_received"]


def of_recording(tickwalk, recording):
    """Returns the summary of a recording."""
    done = subprocess.run([tickwalk, "top", "--json", recording], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ValueError(f"tickwalk top: exit {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def complaints(summary):
    """Yields a sentence for each identity of the account that does not hold."""
    cpu, threads = summary["cpu_ns"], summary["threads"]
    lost = sum(cpu["lost"].values())
    if not summary["complete"]:
        yield "the recording has no end"
    if min(cpu["kernel"], cpu["sampled"], cpu["unfinished"], cpu["before_timer"], 0, *cpu["lost"].values()) < 0:
        yield f"a negative time in {cpu}"
    if cpu["kernel"] != cpu["sampled"] + lost + cpu["unfinished"]:
        yield f"the account of the process does not close: {cpu}"
    for thread in threads:
        terms = [thread[name] for name in ("kernel_ns", "sampled_ns", "lost_ns", "unfinished_ns", "before_timer_ns")]
        if min(terms) < 0 or thread["kernel_ns"] != sum(terms[1:4]):
            yield f"the account of a thread does not close: {thread}"
        if thread["unfinished_ns"] > MOST_UNFINISHED_NS + summary["sampling"]["period_ns"]:
            yield f"more than an unfinished period: {thread}"
    failed = sum(summary["failed"].values())
    if summary["requests"] != summary["resolved"] + failed or "no_thread" in summary["failed"]:
        yield f"{summary['requests']} requests, {summary['resolved']} resolved, failed {summary['failed']}"
    equal = {"samples": summary["samples"], "samples of the threads": sum(thread["samples"] for thread in threads),
             "walks by stop reason": sum(summary["stops"].values())}
    if summary["complete"] and summary["delivery"]["unnamed_ns"] == 0:
        equal["requests"] = summary["requests"]
        expired = sum(thread["expired_ns"] for thread in threads)
        explained = cpu["sampled"] + lost - sum(cpu["lost"].get(cause, 0) for cause in WITHOUT_REQUEST)
        if expired != explained:
            yield f"handlers counted {expired} ns, and {explained} ns are sampled or lost with a request: {cpu}"
    if len(set(equal.values())) > 1:
        yield f"numbers that must be equal: {equal}"
    for test in summary["self_tests"]:
        if test["outcome"] == "failed":
            yield f"self-test: {test}"
