"""A dataset's card: what was measured, how, how sure it is, and what may be done with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tensorese.collect.dataset import PlatformFacts, nearest_train, platform_facts, shared_programs
from tensorese.collect.tasklist import ListedTask
from tensorese.records.store import Store

METHOD = """\
Programs of MetaSchedule's design spaces for the zoo's tasks, drawn by `tensorese collect`: legal
rows of every sketch in turn, uniform over factorisations (origin `random`), and for training tasks
up to a quarter mutations of the best measured so far (`mutation`). The random programs of a task
and sketch are a fixed sequence, so that every platform measures the same ones. A program is
compiled by TVM, timed until its median is known to 1 % or 60 ms are spent (two samples suffice for
one that is 1.5 times slower than its task's best), and `censored` when one run takes 20 ms and 16
times the best. Whatever becomes the best of its task is checked against numpy. Failures are
statuses, not times. Every sample, the drift of a reference kernel and the processes at work beside
it are in the row."""

SPLIT = """\
Rows marked `test` are of the tasks of ResNet-50, MobileNet-V2 and ResNeXt-50 (1x3x224x224),
BERT-base and BERT-tiny (1x128): random programs only. No workload of these networks is in the
training part, whichever network it came from. Grouped convolutions of the training part are those
of ResNeXt-50 at other image sizes; all other training tasks are of other networks."""


def card(
    title: str,
    store: Store,
    tasks: Sequence[ListedTask],
    noise: Mapping[str, Mapping[str, Any]],
    remarks: str = "",
) -> str:
    """Markdown; `noise` is `collect.noise.compare_stores` by platform."""
    classes = {task.workload.id: task.operator for task in tasks}
    platforms = sorted(store.platforms())
    facts = [platform_facts(store, name, classes) for name in platforms]
    parts = [f"# {title}", METHOD, _table(facts)]
    if len(platforms) > 1:
        *fewer, everywhere = shared_programs(store, platforms)
        told = ", ".join(f"{n:,} on {k} or more" for k, n in enumerate(fewer, 1))
        parts.append(f"Valid on every platform of this store: {everywhere:,} programs ({told}).")
    parts.extend(["## Classes of the training part, valid programs", _classes(facts)])
    parts.extend(["## Noise", _noise(noise)])
    if remarks:
        parts.extend(["## Remarks", remarks])
    parts.extend(["## Split", SPLIT, _neighbours(store, tasks)])
    parts.append("## Licence\n\nCC BY 4.0; the code that made it is Apache-2.0.")
    return "\n\n".join(parts) + "\n"


def _table(facts: Sequence[PlatformFacts]) -> str:
    lines = [
        "| platform | measured | valid | training tasks | test tasks (programs) | random | samples "
        "| checked | other than ok |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in facts:
        random = one.by_origin.get("random", 0) / max(1, one.programs)
        other = ", ".join(f"{n} {s}" for s, n in one.by_status.items() if s != "ok") or "none"
        lines.append(
            f"| `{one.name}` | {one.programs:,} | {one.valid:,} | {one.train_tasks} | "
            f"{one.test_tasks} ({one.test_programs:,}) | {100 * random:.0f}% | {one.repeats:.0f} | "
            f"{one.verified:,} | {other} |"
        )
    tools = {", ".join(f"{k} {v}" for k, v in json.loads(f.toolchain).items() if v) for f in facts}
    return "\n".join(lines) + "\n\nToolchain: " + "; ".join(sorted(tools)) + "."


def _classes(facts: Sequence[PlatformFacts]) -> str:
    names = sorted({name for one in facts for name in one.by_class})
    lines = ["| class | " + " | ".join(f"`{one.name}`" for one in facts) + " |"]
    lines.append("|---|" + "---:|" * len(facts))
    for name in names:
        cells = []
        for one in facts:
            total = max(1, sum(one.by_class.values()))
            cells.append(
                f"{one.by_class.get(name, 0):,} ({100 * one.by_class.get(name, 0) / total:.1f}%)"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _noise(noise: Mapping[str, Mapping[str, Any]]) -> str:
    if not noise:
        return "Not re-measured yet."
    lines = [
        "| platform | measured again | median | p90 | bias | oracle top-1 | top-5 | of |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, one in noise.items():
        oracle = one["oracle"]
        lines.append(
            f"| `{name}` | {one['n']} | {100 * one['median']:.1f}% | {100 * one['p90']:.1f}% | "
            f"{100 * one['bias']:+.1f}% | {oracle['top1']:.3f} | {oracle['top5']:.3f} "
            f"| {oracle['tasks']:.0f} tasks of {oracle['programs']:.0f} programs |"
        )
    lines.append(
        "\nRelative difference of the stored time from a second one, taken alone in a fresh process"
        " later. The oracle ranks by the second time and is judged by the first: no model can be"
        " expected to do better."
    )
    return "\n".join(lines)


def _neighbours(store: Store, tasks: Sequence[ListedTask]) -> str:
    kinds = {
        str(json.loads(t).get("kind")) for t in set(store.table(["target"])["target"].to_pylist())
    }
    train = [task for task in tasks if task.split != "test" and task.kind in kinds]
    lines = [
        "Each test task's nearest training task of its class; distance in factors of two, summed "
        "over all extents.\n",
        "| test task | class | shapes | nearest in training | distance |",
        "|---|---|---|---|---:|",
    ]
    for task in sorted(tasks, key=lambda t: (t.operator, t.name, t.workload.id)):
        if task.split != "test" or task.kind not in kinds:
            continue
        found = nearest_train(task, train)
        near = f"{_shapes(found[0])} | {found[1]:.1f}" if found else "none of its class | "
        lines.append(f"| {task.name} | {task.operator} | {_shapes(task)} | {near} |")
    return "\n".join(lines)


def _shapes(task: ListedTask) -> str:
    return " ".join("x".join(map(str, arg.shape)) for arg in task.workload.args)
