"""What the names on the page mean; only those that are on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from tensorese.report.gather import Report

_SYSTEMS = {
    "tuned": "the library of this run",
    "unpacked": "the same programs, weights in the network's own order",
    "untuned": "the same network as TVM compiles it without a schedule: loops as written, one core",
    "sum of tasks": "what the network would take if every kernel ran in it as it was timed alone",
}
_TASKS = {
    "task": "one kernel to tune, named after the operators that were fused into it, in their "
    "order; below the name the shapes of its inputs, then of its output",
    "class": "the operator that costs most in it",
    "runs, calls": "how often one run of the network calls it",
    "share": "of the time of all kernels together",
    "% of peak": "of the fused multiply-adds that this machine's cores did in registers",
    "trials, failed": "programs proposed for the task, and those of them that gave no result",
}
_KERNELS = {
    "in place, alone": "timed as the network runs, and as its task was tuned; a kernel that is no "
    "task has the name TVM gave it",
    "untuned, fixed": "a kernel without a tuned program, and one that has nothing to tune",
}
_WINOGRAD = {
    "winograd_input, winograd_output": "a 3x3 convolution by Winograd's algorithm: transforms "
    "around a matmul of 16 or 36 matrices",
}
_ATTENTION = {
    "attention": "scores, softmax and their product with the values, some query rows at a time",
}
_CHOSEN = {
    "not timed, from A:B": "a program that proposer A wrote and model B ranked first, unmeasured",
}
_STATUSES = {
    "censored": "ran, but was cut short for being far slower than the best",
    "invalid": "refused by TVM before it was built",
    "build_error": "did not compile",
    "build_timeout": "took too long to compile",
    "run_error": "crashed",
    "run_timeout": "took too long to run",
    "wrong_output": "computed something else",
    "infra_error": "the machine's fault, tried again; no result of the program",
}
_PHASES = {
    "space": "finding the programs there are for a task",
    "propose": "drawing, ranking and choosing candidates",
    "materialise": "turning those that were chosen into schedules",
    "measure": "compiling, timing and checking them, and waiting for it",
    "learn": "updating the model of this run",
    "other": "starting up, and timing the best once more at the end",
}


def legend(report: Report, systems: Iterable[str]) -> str:
    terms = dict(_terms(report, set(systems)))
    made = "".join(
        f"<dt>{escape(term)}</dt><dd>{escape(says)}</dd>" for term, says in terms.items()
    )
    return f"<h2>What the names mean</h2><dl>{made}</dl>"


def _terms(report: Report, systems: set[str]) -> Iterator[tuple[str, str]]:
    yield from ((name, says) for name, says in _SYSTEMS.items() if name in systems)
    yield from _TASKS.items()
    if report.compared.get("kernels"):
        yield from _KERNELS.items()
    if report.certificate.get("winograd"):
        yield from _WINOGRAD.items()
    if report.certificate.get("attention"):
        yield from _ATTENTION.items()
    if any(task.chosen for task in report.tasks):
        yield from _CHOSEN.items()
    failed = {status for status, _, _ in report.failures}
    yield from ((status, says) for status, says in _STATUSES.items() if status in failed)
    if report.phases:
        yield from _PHASES.items()
