"""`tensorese data`: records in, out, together, and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from tensorese.records.nouns import Measurement
    from tensorese.records.store import Store

_PATH = click.Path(path_type=Path)
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def data() -> None:
    """Import, inspect, export, merge, publish and verify records."""


@data.command("import")
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option("--out", required=True, type=_PATH, help="Store to add to; made when missing.")
@click.option("--platform", required=True, help="Name of the hardware the records are of.")
@click.option(
    "--format", "format_", default="auto", show_default=True, help="auto, ansor or metaschedule."
)
@click.option("--split", default="", help="Mark the records, e.g. test: never tuned or trained on.")
@click.option("--skip-bad", is_flag=True, help="Leave out unreadable lines and name them.")
@_json
def import_(
    paths: tuple[Path, ...],
    out: Path,
    platform: str,
    format_: str,
    split: str,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Add Ansor logs and MetaSchedule databases to a store. Importing twice adds nothing."""
    from tensorese.cli.progress import counted
    from tensorese.records.importers import Skipped, of_one_kind, read_records
    from tensorese.records.store import Store

    skipped = Skipped(allowed=skip_bad)
    tally = _Tally()
    readers = [read_records(path, platform, format_, skipped) for path in paths]
    with Store.open(out, create=True) as store:
        for path, records in zip(paths, readers, strict=True):
            same = of_one_kind(records, _kind_in(store, platform), str(path))
            stream = tally.count(_marked(same, split))
            tally.added += store.ingest(counted(stream, f"importing {path.name}"))
    result = {**tally.result(), "platform": platform, "store": str(out), "skipped": skipped.lines}
    if as_json:
        click.echo(json.dumps(result))
        return
    for line in skipped.lines:
        click.echo(f"skipped {line}", err=True)
    click.echo(
        f"{tally.records:,} records read, {tally.valid:,} valid; {tally.added:,} new in {out} "
        f"as {platform}"
    )


class _Tally:
    """Counts what flows past."""

    def __init__(self) -> None:
        self.records = self.valid = self.added = 0

    def count(self, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
        for m in measurements:
            self.records += 1
            self.valid += m.status == "ok"
            yield m

    def result(self) -> dict[str, int]:
        return {"records": self.records, "valid": self.valid, "added": self.added}


def _kind_in(store: Store, platform: str) -> str:
    """The kind of target a platform has in the store, empty for a new one."""
    from tensorese.records.importers import target_kind

    if platform not in store.platforms():
        return ""
    rows = store.table(["target"], platform=platform)
    return target_kind(rows["target"][0].as_py()) if rows.num_rows else ""


def _marked(measurements: Iterable[Measurement], split: str) -> Iterator[Measurement]:
    from dataclasses import replace

    for m in measurements:
        yield replace(m, split=split) if split else m


@data.command()
@click.argument("store", type=_PATH)
@_json
def info(store: Path, as_json: bool) -> None:
    """Counts by platform and failure, and what was found wrong."""
    from tensorese.records.store import Store

    with Store.open(store) as opened:
        facts = opened.info()
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"{facts['path']}: {facts['measurements']:,} measurements of {facts['workloads']:,} "
        f"workloads, {facts['sketches']:,} sketches, {facts['bytes'] / 1e6:.1f} MB"
    )
    if facts["programs"]:
        click.echo(f"  {facts['programs']:,} programs listed to be measured")
    for name, counts in facts["platforms"].items():
        failures = ", ".join(f"{n:,} {status}" for status, n in counts["failures"].items())
        click.echo(
            f"  {name}: {counts['measurements']:,} measurements ({counts['valid']:,} valid), "
            f"{counts['tasks']:,} tasks" + (f"; {failures}" if failures else "")
        )
        if len(counts["lowering"]) > 1:
            each = ", ".join(f"{n:,} by {v or 'none'}" for v, n in counts["lowering"].items())
            click.echo(f"    compiled by several versions of `lowering`: {each}")
    for problem in facts["problems"]:
        click.echo(f"  problem: {problem}")


@data.command()
@click.argument("store", type=_PATH)
@click.option("--format", "format_", required=True, type=click.Choice(["metaschedule", "ansor"]))
@click.option("--out", required=True, type=_PATH, help="A folder (metaschedule) or file (ansor).")
@click.option("--platform", help="Only this platform's records.")
@_json
def export(store: Path, format_: str, out: Path, platform: str | None, as_json: bool) -> None:
    """Write records for stock TVM 0.27 or for readers of Ansor logs."""
    from tensorese.cli.progress import counted
    from tensorese.records.exporters import write_ansor, write_metaschedule
    from tensorese.records.store import Store

    with Store.open(store) as opened:
        records = counted(opened.measurements(platform=platform), f"exporting {store.name}")
        if format_ == "ansor":
            exported = write_ansor(records, out)
        else:
            exported = write_metaschedule(records, out, _structural_hash)
    if as_json:
        skipped = dict(exported.skipped)
        click.echo(json.dumps({"written": exported.written, "skipped": skipped, "out": str(out)}))
        return
    click.echo(f"{exported.written:,} records written to {out}")
    for why, count in exported.skipped.most_common():
        click.echo(f"  {count:,} left out: {why}")


def _structural_hash(module: str) -> str:
    """Asked only for modules that came without one; needs TVM."""
    import importlib

    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    ffi: Any = importlib.import_module("tvm_ffi")
    return str(ffi.structural_hash(tvm.ir.load_json(module)))


@data.command()
@click.argument("stores", nargs=-1, required=True, type=_PATH)
@click.option("--out", required=True, type=_PATH, help="Store to add to; made when missing.")
@_json
def merge(stores: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Bring stores together; a measurement in several of them is kept once."""
    from tensorese.records.store import Store

    sources = [Store.open(path) for path in stores]
    with Store.open(out, create=True) as merged:
        added = [_absorbed(merged, source, as_json) for source in sources]
        total = merged.table(["id"]).num_rows
    if as_json:
        click.echo(json.dumps({"added": sum(added), "measurements": total, "store": str(out)}))
        return
    click.echo(f"{sum(added):,} measurements added; {out} holds {total:,}")


@data.command()
@click.argument("stores", nargs=-1, required=True, type=_PATH)
@click.option("--out", required=True, type=_PATH, help="Dataset to add to; made when missing.")
@click.option("--title", default="", help="First line of the card; the folder's name if absent.")
@click.option("--card", type=_PATH, default=None, help="File of the card; OUT/card.md if absent.")
@click.option("--tasks", type=_PATH, default=None, help="Task list the programs are of.")
@click.option("--again", multiple=True, type=_PATH, help="Store of second measurements: the noise.")
@click.option("--remarks", type=click.File(), default=None, help="Markdown to put on the card.")
@click.option("--licence", default="CC BY 4.0", show_default=True, help="Of the data.")
@_json
def publish(
    stores: tuple[Path, ...],
    out: Path,
    title: str,
    card: Path | None,
    tasks: Path | None,
    again: tuple[Path, ...],
    remarks: TextIO | None,
    licence: str,
    as_json: bool,
) -> None:
    """Add stores to a small dataset and write its card: counts, statuses, timing, noise, licence.

    Faults of the machinery, and what a replay derives anew, are left out.
    """
    from tensorese.collect.publish import CardText, publish_dataset

    text = CardText(title=title, remarks=remarks.read().strip() if remarks else "", licence=licence)
    result = publish_dataset(stores, out, text, card_path=card, tasks=tasks, again=again)
    if as_json:
        click.echo(json.dumps(result))
        return
    click.echo(
        f"{result['added']:,} measurements added; {out} holds {result['measurements']:,} of "
        f"{len(result['platforms'])} platforms in {result['bytes'] / 1e6:.1f} MB"
    )
    click.echo(f"card: {result['card']}")


@data.command()
@click.option("--tasks", "source", required=True, help="zoo:train, zoo:test, zoo:NAME, list, store")
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--platform", "name", default="", help="Name of that hardware; derived if absent.")
@click.option("--model", "spec", default="auto", show_default=True, help="Scores: auto, DIR, none.")
@click.option("--out", required=True, type=_PATH, help="Store to add to; made when missing.")
@click.option("--split", default="train", type=click.Choice(["all", "train", "test"]))
@click.option("--random", default=24, show_default=True, help="Programs a task drawn at random.")
@click.option("--best", default=24, show_default=True, help="Programs a task that search finds.")
@click.option("--population", default=2048, show_default=True, help="Programs the search scores.")
@click.option("--seed", default=0, help="Of both.")
@_json
def corpus(
    source: str, target: str, name: str, spec: str, out: Path, split: str, random: int, best: int,
    population: int, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Write legal programs of tasks, scored by a model and not measured: for `train tlm --corpus`.

    No device is needed. The same command again goes on with the tasks that are missing.
    """
    from tensorese.cli.collect import listed_tasks
    from tensorese.cli.progress import Steps
    from tensorese.iterate.corpus import CorpusConfig, scorer, write_corpus
    from tensorese.records.store import Store
    from tensorese.targets import Target

    config = CorpusConfig(random=random, best=best, population=population, seed=seed)
    parsed = Target.parse(target)
    platform = parsed.platform(name)
    judge = scorer(spec, platform)
    model, head = judge or (None, "")
    tasks = listed_tasks(source, parsed, split)
    with Store.open(out, create=True) as store, Steps(len(tasks), "writing programs") as steps:

        def progress(done: int, of: int) -> None:
            steps.show(len(tasks) - of + done, done)

        skipped = write_corpus(
            store, tasks, parsed, platform, model=model, head=head, config=config,
            progress=progress,
        )  # fmt: skip
        programs = store.program_table().num_rows
    if as_json:
        facts = {"platform": platform.name, "tasks": len(tasks), "programs": programs}
        click.echo(json.dumps({**facts, "skipped": skipped, "store": str(out)}))
        return
    for line in skipped:
        click.echo(f"left out {line}", err=True)
    by = f"scored by {spec if spec != 'auto' else head}" if judge else "without scores"
    click.echo(f"{programs:,} programs of {len(tasks)} tasks for {platform.name} in {out}, {by}")


def _absorbed(merged: Store, source: Store, quiet: bool) -> int:
    added = merged.absorb(source)
    if not quiet:
        click.echo(f"{source.path}: {added:,} new", err=True)
    return added


@data.command()
@click.argument("store", type=_PATH)
@_json
def verify(store: Path, as_json: bool) -> int:
    """Re-read everything: checksums, ids, references. Exit code 1 when something is wrong."""
    from tensorese.records.store import Store
    from tensorese.records.verify import verify as check

    with Store.open(store) as opened:
        report = check(opened)
    if as_json:
        click.echo(json.dumps(report))
    else:
        checked = ", ".join(f"{count:,} {what}" for what, count in report["checked"].items())
        verdict = "sound" if report["ok"] else f"{len(report['problems'])} problems"
        click.echo(f"{report['path']}: {verdict} ({checked or 'empty'})")
        for problem in report["problems"]:
            click.echo(f"  {problem}")
    return 0 if report["ok"] else 1
