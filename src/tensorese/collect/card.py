"""A dataset's card: what was measured, how, how sure it is, and what may be done with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tensorese.collect.dataset import (
    LICENCE,
    TIMING,
    PlatformFacts,
    nearest_train,
    platform_facts,
    shared_programs,
)
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

_DRAWN = {"random", "mutation"}
"""Origins that `METHOD` speaks of; other programs are counted by theirs."""


def card(
    title: str,
    store: Store,
    tasks: Sequence[ListedTask] = (),
    noise: Mapping[str, Mapping[str, Any]] | None = None,
    remarks: str = "",
    licence: str = LICENCE,
) -> str:
    """Markdown; `noise` is `evaluation.noise.compare_stores` by platform."""
    classes = {id_: workload.operator for id_, workload in store.workloads().items()}
    classes |= {task.workload.id: task.operator for task in tasks}
    platforms = sorted(store.platforms())
    facts = [platform_facts(store, name, classes) for name in platforms]
    parts = [f"# {title}", *_method(facts), _table(facts)]
    if len(platforms) > 1:
        *fewer, everywhere = shared_programs(store, platforms)
        partly = ", ".join(f"{n:,} on {k} or more" for k, n in enumerate(fewer, 1))
        parts.append(f"Valid on every platform of this store: {everywhere:,} programs ({partly}).")
    parts.extend(["## Timing", _timing(facts)])
    parts.extend(["## Classes of the training part, valid programs", _classes(facts)])
    parts.extend(["## Noise", _noise(noise or {})])
    if remarks:
        parts.extend(["## Remarks", remarks])
    parts.extend(["## Split", *_split(store, tasks, facts)])
    parts.append(f"## Licence\n\n{licence}; the code that made it is Apache-2.0.")
    return "\n\n".join(parts) + "\n"


def _method(facts: Sequence[PlatformFacts]) -> list[str]:
    """How the programs came about, as far as their origins show."""
    origins: Counter[str] = Counter()
    for one in facts:
        origins.update(one.by_origin)
    others = {origin: n for origin, n in origins.most_common() if origin not in _DRAWN}
    parts = [METHOD] if origins.keys() & _DRAWN else []
    if others:
        counted = ", ".join(f"{n:,} `{origin or 'unknown'}`" for origin, n in others.items())
        parts.append(f"Programs of other origins: {counted}.")
    return parts


def _timing(facts: Sequence[PlatformFacts]) -> str:
    lines = ["| platform | caches | threads | processes beside it |", "|---|---|---|---|"]
    for one in facts:
        cells = [_counted(one.timing.get(key, {})) for key in TIMING]
        lines.append(f"| `{one.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\nOf valid programs; how many where it is not all."


def _counted(values: Mapping[str, int]) -> str:
    """`hot`, or `hot (812), rotated (4)`: the four most frequent."""
    if len(values) == 1:
        return next(iter(values))
    ranked = sorted(values.items(), key=lambda item: -item[1])
    return ", ".join(f"{value} ({n:,})" for value, n in ranked[:4]) or "not recorded"


def _split(store: Store, tasks: Sequence[ListedTask], facts: Sequence[PlatformFacts]) -> list[str]:
    if not any(one.test_programs for one in facts):
        return ["No row is marked `test`."]
    rows = store.table(["workload_id", "split"]).to_pylist()
    test = {row["workload_id"] for row in rows if row["split"] == "test"}
    train = {row["workload_id"] for row in rows if row["split"] != "test"}
    shared = f"{len(test & train)} of them are" if test & train else "None of them is"
    parts = [
        f"Rows marked `test` are of {len(test)} workloads, for judging only. {shared} in the "
        "training part, whichever network it came from."
    ]
    if tasks:
        named = sorted({n for t in tasks if t.workload.id in test for n, _ in t.networks})
        parts.append(f"Their networks: {', '.join(named)}.")
        parts.append(_neighbours(store, tasks))
    return parts


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
        nearest = nearest_train(task, train)
        near = f"{_shapes(nearest[0])} | {nearest[1]:.1f}" if nearest else "none of its class | "
        lines.append(f"| {task.name} | {task.operator} | {_shapes(task)} | {near} |")
    return "\n".join(lines)


def _shapes(task: ListedTask) -> str:
    return " ".join("x".join(map(str, arg.shape)) for arg in task.workload.args)
