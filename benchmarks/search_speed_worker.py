"""One measurement of `search_speed.py`, in a process of its own: a job in, a line of JSON out."""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import time
from typing import Any

import numpy as np

from space_audit import TARGETS, operators
from tensorese.identity import plain, workload_of
from tensorese.records.nouns import Measurement, Platform, Program, Status
from tensorese.search.contracts import Proposal, Ranker, TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.random import RandomSearch
from tensorese.search.rankers.by_name import ranker_named
from tensorese.search.rankers.online import OnlineRanker
from tensorese.space.materialise import materialise
from tensorese.space.space import TaskSpace, task_space
from tensorese.space.tiles import factorisations
from tensorese.space.variation import divisor_table
from tensorese.tvm_env import import_tvm

WANTED = 64
MEASURED = 64
Timed = dict[str, float]


class Clock:
    def __init__(self) -> None:
        self.parts: Timed = {}
        self.at = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.parts[name], self.at = now - self.at, now


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def made_up(program: Program) -> float:
    """Seconds: smooth in the logarithms, with a best that is not at the edge."""
    logs = np.log2(np.maximum(np.array(program.decisions, dtype=np.float64), 1))
    wish = 2.0 + 2.0 * np.sin(np.arange(len(logs)))
    return float(1e-3 * (1.0 + 0.1 * ((logs - wish) ** 2).sum()))


def measurements(state: TaskState, proposals: list[Proposal]) -> list[Measurement]:
    programs = [state.space.program(p.sketch, p.row, state.workload) for p in proposals]
    return [
        Measurement(
            program=program,
            platform=state.platform,
            status=Status.OK,
            run_secs=(made_up(program),),
            origin="made-up",
            id=program.id,
            time=0.0,
        )
        for program in programs
    ]


def make_ranker(name: str, platform: Platform) -> Ranker:
    """`model:auto` is what a user gets, `model:FOLDER` one trained model of any kind."""
    if name == "online":
        return OnlineRanker()
    ranker, message = ranker_named(name.removeprefix("model:"), platform)
    if not message.startswith("starting"):
        raise SystemExit(f"no trained model for {platform.name}: {message}")
    return ranker


def platform_asked(job: dict[str, Any]) -> Platform:
    return TARGETS[job["kind"]].platform(job["head"])


def warm_up(kind: str) -> tuple[Any, Any]:
    """TVM, and a module of four elements for which everything was done once."""
    tvm = import_tvm()  # plain CUDA rules tensorize nothing: neither side needs CUDA's intrinsics
    importlib.import_module("tvm.s_tir.tensor_intrin")
    x = tvm.te.placeholder((4,), name="x")
    y = tvm.te.compute((4,), lambda i: x[i] + 1.0, name="y")
    module = tvm.IRModule({"main": tvm.te.create_prim_func([x, y])})
    propose_once(OnlineRanker(), module, kind, "")
    stock_context(tvm, module, kind, 1).generate_design_space()
    return tvm, module


def propose_once(ranker: Ranker, module: Any, kind: str, head: str) -> None:
    space = task_space(module, TARGETS[kind])
    state = TaskState(workload_of(module), space, TARGETS[kind].platform(head))
    proposals = Evolution(ranker).evolve(state, 1)
    materialise(space, [(p.sketch, p.row) for p in proposals], state.workload, traced=False)


def forget_tables() -> None:
    """What a space of the same task has left behind: the timed one has to make its own."""
    factorisations.cache_clear()
    divisor_table.cache_clear()


def known_state(job: dict[str, Any], space: TaskSpace, module: Any) -> TaskState:
    state = TaskState(workload_of(module), space, platform_asked(job))
    for measurement in measurements(state, RandomSearch(7).propose([state], MEASURED)[0]):
        state.add(measurement)
    return state


def ours(job: dict[str, Any], module: Any, small: Any) -> dict[str, Any]:
    ranker = make_ranker(job["ranker"], platform_asked(job))
    propose_once(ranker, small, job["kind"], job["head"])
    # What was measured before: another space of the same task, so that the timed one is fresh.
    before = known_state(job, task_space(module, TARGETS[job["kind"]]), module)
    learning = Clock()
    ranker.update(before.measurements)
    learning.lap("learn")
    forget_tables()
    base = peak_mb()
    clock = Clock()
    space = task_space(module, TARGETS[job["kind"]])
    state = TaskState(before.workload, space, before.platform)
    for measurement in before.measurements:
        state.add(measurement)
    clock.lap("space")
    count = Counted(ranker)
    config = EvolutionConfig(population=job["population"])
    proposals = Evolution(count, config, seed=job["repeat"]).evolve(state, WANTED)
    clock.lap("propose")
    answer: dict[str, Any] = {"scored": count.scored, "found": len(proposals)}
    if job["side"] != "growth":
        rows = [(p.sketch, p.row) for p in proposals]
        ready = materialise(space, rows, state.workload, threads=job["cores"], traced=False)
        clock.lap("materialise")
        answer["found"] = sum(not made.error for made in ready)
    peak = peak_mb()
    if job["side"] != "growth":
        judged = materialise(space, rows, state.workload, threads=job["cores"], verify=True)
        answer["legal"] = sum(not made.error for made in judged)
    return {
        "secs": sum(clock.parts.values()),
        "parts": clock.parts,
        "mean_score": mean_score(ranker, state, proposals),
        "learn_secs": learning.parts["learn"],
        "peak_mb": peak,
        "grown_mb": peak - base,
        **answer,
    }


class Counted:
    """A ranker that counts what it is asked."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.name, self.needs = ranker.name, ranker.needs
        self.scored = 0

    def score(self, workload: Any, platform: str, sketch: Any, decisions: Any) -> Any:
        self.scored += len(decisions)
        return self.ranker.score(workload, platform, sketch, decisions)

    def update(self, measurements: Any) -> None:
        self.ranker.update(measurements)


def mean_score(ranker: Ranker, state: TaskState, proposals: list[Proposal]) -> float:
    """Of guided and random picks alike: stock's picks have their random part too."""
    scores = []
    for p in proposals:
        sketch = state.space.sketches[p.sketch].sketch
        rows = np.array([p.row], dtype=np.int64)
        scores.append(float(ranker.score(state.workload, state.platform.name, sketch, rows)[0]))
    return float(np.mean(scores)) if scores else float("nan")


def stock_context(tvm: Any, module: Any, kind: str, cores: int, **more: Any) -> Any:
    """Plain CUDA rules, as ours; the default on recent devices is the tensor-core family."""
    ms = tvm.s_tir.meta_schedule
    generator: Any = "post-order-apply"
    if kind == "cuda":
        generator = ms.space_generator.PostOrderApply(
            sch_rules="cuda", postprocs="cuda", mutator_probs="cuda"
        )
    target = tvm.target.Target(TARGETS[kind].to_dict())
    return ms.TuneContext(
        mod=module, target=target, space_generator=generator, num_threads=cores, **more
    )


def stock(job: dict[str, Any], module: Any, tvm: Any) -> dict[str, Any]:
    """Stock's search, with XGB or (side `shared`) with our ranker for a cost model."""
    ms = tvm.s_tir.meta_schedule
    ranker: Ranker | None = None
    if job["side"] == "shared":
        ranker = make_ranker(job["ranker"], platform_asked(job))
    state = known_state(job, task_space(module, TARGETS[job["kind"]]), module)
    database, candidates, results = recorded(ms, tvm, module, state, job["kind"])
    teacher = stock_context(tvm, module, job["kind"], job["cores"])
    model, count = counting_model(ms, job, ranker)
    learning = Clock()
    model.update(teacher, candidates, results)
    learning.lap("learn")
    base = peak_mb()
    clock = Clock()
    search = ms.search_strategy.EvolutionarySearch(population_size=job["stock"])
    context = stock_context(tvm, module, job["kind"], job["cores"], search_strategy=search)
    designs = context.generate_design_space()
    clock.lap("space")
    context.pre_tuning(
        max_trials=10**6,
        num_trials_per_iter=WANTED,
        design_spaces=designs,
        database=database,
        cost_model=model,
    )
    candidates = list(context.generate_measure_candidates() or [])
    clock.lap("propose")
    answer = {"scored": count[0], "found": len(candidates), "learn_secs": learning.parts["learn"]}
    if ranker is not None:
        answer["mean_score"] = mean_score(ranker, state, placed(state, candidates))
    return {
        "secs": sum(clock.parts.values()),
        "parts": clock.parts,
        "peak_mb": peak_mb(),
        "grown_mb": peak_mb() - base,
        **answer,
    }


def placed(state: TaskState, candidates: list[Any]) -> list[Proposal]:
    proposals = []
    for candidate in candidates:
        sketch, row, _ = state.space.encode(plain(candidate.sch.trace.as_json()))
        proposals.append(Proposal(sketch=sketch, row=row, origin="stock"))
    return proposals


def recorded(ms: Any, tvm: Any, module: Any, state: TaskState, kind: str) -> tuple[Any, Any, Any]:
    """What was measured as stock keeps it: a database, candidates and runner results."""
    rows = [state.place(m.program) for m in state.measurements]
    ready = materialise(state.space, [place for place in rows if place], state.workload)
    secs = [m.latency for m in state.measurements]
    database = ms.database.MemoryDatabase()
    entry = database.commit_workload(module)
    target = tvm.target.Target(TARGETS[kind].to_dict())
    candidates, results = [], []
    for made, latency in zip(ready, secs, strict=True):
        if made.error:
            continue
        args = ms.arg_info.ArgInfo.from_entry_func(made.schedule.mod, remove_preproc=True)
        candidates.append(ms.MeasureCandidate(made.schedule, args))
        results.append(ms.runner.RunnerResult([latency], None))
        record = ms.database.TuningRecord(made.schedule.trace, entry, [latency], target, args)
        database.commit_tuning_record(record)
    return database, candidates, results


def counting_model(ms: Any, job: dict[str, Any], ranker: Ranker | None) -> tuple[Any, list[int]]:
    """A cost model that counts what it is asked; XGB answers from 64 labels on, not from 100."""
    from tensorese.integrations.meta_schedule import cost_model

    derived_object: Any = importlib.import_module("tvm.ir.utils").derived_object
    inner = (
        cost_model(ranker, platform=platform_asked(job).name)
        if ranker is not None
        else ms.cost_model.XGBModel(num_warmup_samples=MEASURED, num_tuning_cores=job["cores"])
    )
    count = [0]

    @derived_object
    class Counting(ms.cost_model.PyCostModel):  # type: ignore[misc, name-defined]
        def update(self, context: Any, candidates: Any, results: Any) -> None:
            inner.update(context, candidates, results)

        def predict(self, context: Any, candidates: Any) -> Any:
            count[0] += len(candidates)
            return inner.predict(context, candidates)

    return Counting(), count


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("job", type=json.loads, help="JSON, see search_speed.py.")
    job = parser.parse_args().job
    tvm, small = warm_up(job["kind"])
    module = tvm.IRModule({"main": operators()[job["case"]]()})
    if job["side"] in ("ours", "growth"):
        answer = ours(job, module, small)
    else:
        answer = stock(job, module, tvm)
    print("RESULT " + json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
