"""One timed process of the comparison: tunes one module with one system and prints its result.

    python benchmarks/tune_child.py SYSTEM MODULE.json FOLDER TRIALS SEED [host|cuda]

The last line on stdout is the result as JSON; whoever started the process takes the time of it.
Each system imports what it needs and no more: start-up is part of what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()
FIRST = (1, 10, 16, 32, 64, 1000)
# Of one build by stock's LocalBuilder; its own 30 s are eaten by the start of its workers. On a
# machine that is not quiet even this is too little: smoke tests raise it.
BUILD_SECS = float(os.environ.get("STOCK_BUILD_SECS", "120"))


def ours(
    module_file: Path,
    folder: Path,
    trials: int,
    seed: int,
    where: str,
    model: str = "none",
    proposer: str = "evolution",
) -> dict[str, Any]:
    from tensorese.measure.crew import start_early

    start_early("cuda" if where == "cuda" else "llvm")
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import Target

    target = Target.parse(where)
    platform = target.platform()
    with TuningFarm(target, platform=platform) as farm:
        from tensorese.identity import workload_of
        from tensorese.records.task import Task
        from tensorese.search.loop.config import TuneConfig
        from tensorese.search.loop.tune_tasks import tune_tasks
        from tensorese.search.rankers.by_name import ranker_named
        from tensorese.tvm_env import import_tvm
        from tensorese.workloads.operators import operator_class

        tvm = import_tvm()
        module = tvm.ir.load_json(module_file.read_text())
        task = Task(
            name=module_file.stem,
            operator=operator_class(module),
            workload=workload_of(module),
            target=target.to_json(),
            weight=1,
            flops=float(tvm.s_tir.analysis.estimate_tir_flops(module)),
            module=module,
        )
        run = tune_tasks(
            [task],
            target=target,
            platform=platform,
            measurer=farm,
            ranker=ranker_named(model, platform)[0],
            proposer=_proposer(proposer, seed, platform),
            out=folder / "run",
            config=TuneConfig(trials=trials, seed=seed),
            model=module_file.stem,
            network=module_file.stem,
            started=STARTED,
        )
        winner = run.winners[task.workload.id]
    lines = (folder / "run" / "batches.jsonl").read_text().splitlines()
    batches = [json.loads(line) for line in lines]
    return {
        "latency": winner.latency,
        "winner": json.loads((folder / "run" / "best.json").read_text())[task.workload.id],
        "curve": [[b["secs"], b["trials"], b["best"]] for b in batches],
        "phases": _summed([b["phases"] for b in batches]),
        "first": _first(folder / "run", batches),
        "torch_imported": "torch" in sys.modules,
    }


def _proposer(name: str, seed: int, platform: Any) -> Any:
    """By name, guided by the ranker; `alone` is a language model without any ranker."""
    if name != "alone":
        return name
    from tensorese.search.proposers.tlm import TLMProposer, writer_for

    return TLMProposer(None, seed, model=writer_for(platform))


def _first(run: Path, batches: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of the first so many trials: latency by number of trials, and the program at the
    number it was best from."""
    from tensorese.records.store import Store

    stored = {m.id: m for m in Store.open(run / "store").measurements()}
    tried = [stored[p["measurement"]] for batch in batches for p in batch["proposed"]]
    best: dict[str, Any] = {}
    before = ""
    for n in FIRST:
        valid = [m for m in tried[:n] if m.latency > 0]
        if n <= len(tried) and valid:
            fastest = min(valid, key=lambda m: m.latency)
            sketch = fastest.program.sketch
            winner = {
                "sketch": {"dialect": sketch.dialect, "body": sketch.body, "slots": sketch.slots},
                "decisions": fastest.program.decisions,
                "tail": "",  # replaying makes it anew
            }
            best[str(n)] = {"latency": fastest.latency}
            if fastest.id != before:
                best[str(n)]["winner"], before = winner, fastest.id
    return best


def tlm(*job: Any) -> dict[str, Any]:
    """What a language model writes, ordered by its own likelihood: no ranker, nothing learnt."""
    return ours(*job, proposer="alone")


def portfolio(*job: Any) -> dict[str, Any]:
    return ours(*job, model="auto", proposer="portfolio")


def drawn(*job: Any) -> dict[str, Any]:
    return ours(*job, proposer="random")


def auto(module_file: Path, folder: Path, trials: int, seed: int, where: str) -> dict[str, Any]:
    """Ours, starting from the model that is shipped for this platform."""
    return ours(module_file, folder, trials, seed, where, model="auto")


def _summed(phases: list[dict[str, float]]) -> dict[str, float]:
    names = {name for phase in phases for name in phase}
    return {name: round(sum(p.get(name, 0.0) for p in phases), 3) for name in sorted(names)}


def stock(module_file: Path, folder: Path, trials: int, seed: int, where: str) -> dict[str, Any]:
    """MetaSchedule as it comes, but with all cores and a build limit that its start-up fits in.

    On CUDA with its plain rules, which are the space ours searches too (what it takes by default
    is the tensor-core family), and with copies as asynchronous as ours.
    """
    cores = len(os.sched_getaffinity(0))
    os.environ["TVM_NUM_THREADS"] = str(cores)
    import tvm
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    curve: list[tuple[float, int, float]] = []

    @derived_object
    class Watch(ms.measure_callback.PyMeasureCallback):
        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, run: Any) -> None:
            best = curve[-1][2] if curve else float("inf")
            before = curve[-1][1] if curve else 0
            times = [sum(map(float, r.run_secs)) / len(r.run_secs) for r in run if r.run_secs]
            curve.append((time.monotonic() - STARTED, before + len(run), min([best, *times])))

    callbacks = [
        ms.measure_callback.AddToDatabase(),
        ms.measure_callback.RemoveBuildArtifact(),
        ms.measure_callback.UpdateCostModel(),
        Watch(),
    ]
    module = tvm.ir.load_json(module_file.read_text())
    target = tvm.target.Target(json.loads((folder / "target.json").read_text()))
    database = ms.tune_tir(
        mod=module,
        target=target,
        work_dir=str(folder / "work"),
        max_trials_global=trials,
        builder=ms.builder.LocalBuilder(
            timeout_sec=BUILD_SECS, f_build=_with_async_copies if where == "cuda" else None
        ),
        space=_plain_cuda(ms) if where == "cuda" else "post-order-apply",
        cost_model="xgb",
        measure_callbacks=callbacks,
        num_tuning_cores=cores,
        seed=seed,
    )
    record = database.query_tuning_record(module, target, "main")
    if record is None:
        raise SystemExit("stock measured nothing valid; is the machine quiet?")
    return {
        "latency": min(map(float, record.run_secs)),
        "winner": _best_line(folder / "work" / "database_tuning_record.json"),
        "curve": [[secs, n, best if best < 1e9 else None] for secs, n, best in curve],
        "measured": curve[-1][1] if curve else 0,
    }


def _with_async_copies(module: Any, target: Any, _params: Any) -> Any:
    """In a build worker of stock's: its own build, under the settings that ours has."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from tensorese.lowering import async_copies, pass_config

    async_copies.register(tvm)
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    with target, tvm.transform.PassContext(opt_level=3, config=pass_config("cuda")):
        return tvm.build(module, target=target)


def _plain_cuda(ms: Any) -> Any:
    rules = {name: "cuda" for name in ("sch_rules", "postprocs", "mutator_probs")}
    return ms.space_generator.PostOrderApply(**rules)


def _best_line(path: Path) -> Any:
    """The fastest record as the database writes it; `as_json` cannot write a layout's index map."""
    records = [json.loads(line)[1] for line in path.read_text().splitlines() if line.strip()]
    timed = [record for record in records if record[1] and max(record[1]) < 1e9]
    return min(timed, key=lambda record: sum(record[1]) / len(record[1]))


def main() -> None:
    systems = {
        **{"ours": ours, "auto": auto, "stock": stock},
        **{"tlm": tlm, "portfolio": portfolio, "random": drawn},
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("system", choices=systems)
    for name, kind in (("module", Path), ("folder", Path), ("trials", int), ("seed", int)):
        parser.add_argument(name, type=kind)
    parser.add_argument("where", nargs="?", default="host")
    args = parser.parse_args()
    result = systems[args.system](args.module, args.folder, args.trials, args.seed, args.where)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
