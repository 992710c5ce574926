"""`tensorese measure`: a store's programs, measured on this machine or over TVM RPC."""

from __future__ import annotations

import json
from pathlib import Path

import click

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("source", type=_PATH)
@click.option("--out", required=True, type=_PATH, help="Store to add to; made when missing.")
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--platform", "name", default="", help="Name of this hardware; derived if absent.")
@click.option("--from", "origin", default=None, help="Only programs measured on this platform.")
@click.option("--limit", default=0, help="At most this many programs; 0 for all.")
@click.option("--verify", default="best", show_default=True, help="best, all or none.")
@click.option("--lanes", default=1, show_default=True, help="Runners side by side (CPU).")
@click.option("--build-timeout", default=30.0, show_default=True, help="Seconds per candidate.")
@click.option("--run-timeout", default=20.0, show_default=True, help="Seconds per candidate.")
@click.option("--rpc-tracker", default="", help="HOST:PORT of a TVM tracker: measure there.")
@click.option("--rpc-key", default="", help="Key of the tracker's devices.")
@click.option("--share", is_flag=True, help="Beside others who time programs on these cores.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def measure(
    source: Path,
    out: Path,
    target: str,
    name: str,
    origin: str | None,
    limit: int,
    verify: str,
    lanes: int,
    build_timeout: float,
    run_timeout: float,
    rpc_tracker: str,
    rpc_key: str,
    share: bool,
    as_json: bool,
) -> None:
    """Measure the programs of SOURCE again, here. Interrupted, the same command continues.

    With --rpc-tracker or --rpc-key, or with TVM_TRACKER_HOST, _PORT and _KEY set beside one of
    them, programs are built here and timed on the tracker's devices; name the target and the
    platform then, they are not this machine's.
    """
    from tensorese.cli.collect import tracker_named
    from tensorese.cli.collect_view import say
    from tensorese.cli.progress import Trials
    from tensorese.measure.config import FarmConfig
    from tensorese.measure.cores import alone_on
    from tensorese.measure.farm import Farm
    from tensorese.measure.rpc import RpcMeasurer
    from tensorese.measure.session import measure_new, stored_candidates
    from tensorese.records.store import Store
    from tensorese.targets import Target, usable_cores

    config = FarmConfig(
        verify=verify, lanes=lanes, build_timeout=build_timeout, run_timeout=run_timeout
    )
    parsed = Target.parse(target)
    platform = parsed.platform(name)
    fleet = tracker_named(rpc_tracker, rpc_key)
    with Store.open(source) as programs:
        candidates = stored_candidates(programs, origin, limit)
    with (
        Store.open(out, create=True) as store,
        alone_on(usable_cores(), share=share or fleet is not None, say=say),
        RpcMeasurer(parsed, fleet, config, platform=platform, journal=store)
        if fleet
        else Farm(parsed, config, platform=platform, journal=store) as farm,
        Trials(len(candidates), f"measuring on {platform.name}") as trials,
    ):
        tally = measure_new(farm, store, platform.name, candidates, trials.update)
        drift = farm.drift
    with Store.open(out) as store:
        store.compact()
    result = {
        "platform": platform.name,
        "store": str(out),
        "known": tally.known,
        "measured": len(tally.measured),
        "by_status": tally.by_status,
        "drift": round(drift, 4),
    }
    if as_json:
        click.echo(json.dumps(result))
        return
    counts = ", ".join(f"{n} {status}" for status, n in tally.by_status.items()) or "nothing new"
    click.echo(f"{platform.name}: {counts}; {tally.known} known already; store {out}")
