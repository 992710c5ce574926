"""`tensorese compile`: a tuned run to a verified library."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click


@click.command(name="compile")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--unpacked", is_flag=True, help="The same programs, weights in their own order.")
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
def compile_command(run: Path, unpacked: bool, as_json: bool) -> None:
    """Build the network of RUN with its best programs, verify its outputs and time it.

    Writes library.so, certificate.json and database/ into RUN.
    """
    from tensorese.cli.quiet import libraries_logged
    from tensorese.deploy import compile_run
    from tensorese.records.run_folder import LIBRARY

    def say(step: str) -> None:
        click.echo(f"{step} ...", err=True)

    with libraries_logged() as log:
        certificate = compile_run(run, on_step=say, prepack=not unpacked)
        log.keep(run)
    if as_json:
        import json

        click.echo(json.dumps(certificate))
        return
    for line in lines_of(certificate):
        click.echo(line)
    click.echo(f"{run / LIBRARY}: {certificate['library']['bytes'] / 1e6:.1f} MB")


def lines_of(result: dict[str, Any]) -> list[str]:
    """Latencies and what explains them, for people; what was not timed or verified says so."""
    lines = [*_unmeasured(result), *_known(result), *_decided(result)]
    if "device" in result:
        lines.append(f"programs were timed on {result['device']}")
    for one in result.get("shapes", [result]):
        lines += [f"{one['shape']}:"] if "shape" in one else []
        lines += [*_latencies(one), *_verified(one.get("verification", {}))]
    return lines


def _unmeasured(result: dict[str, Any]) -> list[str]:
    chosen = result.get("unmeasured")
    if not chosen:
        return []
    own, named = chosen["judged_for"], result["platform"]
    whom = "its own platform" if own == named else f"{own}, the nearest to {named}"
    return [
        f"nothing was timed to choose {len(chosen['programs'])} programs: the model that chose "
        f"them speaks for {whom}"
    ]


def _known(result: dict[str, Any]) -> list[str]:
    known = result.get("known", {}).values()
    if not known:
        return []
    kept = sum(bool(row["found_by"]) for row in known)
    last = max(effort["time"] for row in known for effort in row["runs"])
    when = datetime.fromtimestamp(last).strftime("%Y-%m-%d")
    trials = sum(row["trials"] for row in known)
    return [
        f"{len(known)} tasks were known from {trials} trials of earlier runs, the last of {when}; "
        f"{kept} of their programs are in the library"
    ]


def _decided(result: dict[str, Any]) -> list[str]:
    played = result.get("play_off", {})
    if not played or "left_out" in played:
        return []
    n, tasks = len(played["decided"]), played["tasks"]
    return [f"{n} of {tasks} tasks were decided in the network, against the fastest alone"]


def _latencies(result: dict[str, Any]) -> list[str]:
    if "latency" not in result:
        return ["the library was not timed: tensorese bench RUN does, where it runs"]
    latency = result["latency"]
    tuned = float(latency["tuned"]["latency"])
    lines = []
    for name, row in sorted(latency.items(), key=lambda item: float(item[1]["latency"])):
        ratio = "" if name == "tuned" else f"{float(row['latency']) / tuned:8.2f}x"
        noise = f"+-{50 * float(row['spread']):.0f}%" if row["runs"] > 1 else "one run"
        lines.append(
            f"{name:12} {float(row['latency']) * 1e3:10.3f} ms {noise:>8} {ratio}".rstrip()
        )
    lines += [f"{name:12} {why}" for name, why in result["absent"].items()]
    explanation = result["explanation"]
    if explanation["sum_of_tasks"]:
        total, gap = explanation["sum_of_tasks"] * 1e3, 100 * explanation["gap"]
        lines.append(f"sum of tasks {total:10.3f} ms; end to end is {gap:+.0f}% of it away")
    lines += [f"  {cause}" for cause in explanation["causes"]]
    for why in result.get("disturbed", []):
        lines.append(f"the machine was disturbed, these times are no measure: {why}")
    return lines


def _verified(verification: dict[str, Any]) -> list[str]:
    skipped = verification.get("skipped")
    lines = [f"outputs were not verified: {skipped}"] if skipped else []
    for row in verification.get("replaced", {}).values():
        lines.append(f"{row['name']} was wrong and runs untuned: {row['error']:.1e} off")
    for kind, says in (("constant", "is the same for both inputs"), ("undefined", "holds NaN")):
        for place in verification.get(kind, []):
            lines.append(f"output{place} {says}: that it agrees says little")
    for name, verdict in verification.get("against", {}).items():
        if verdict["passed"]:
            error, limit = verdict["max_error"], verdict["tolerance"]
            lines.append(f"outputs agree with {name}: {error:.1e} (at most {limit:.1e})")
        else:
            lines.append(f"outputs not compared with {name}: {verdict['note']}")
    return lines
