"""What a model of one platform is worth on another with few labels, beside training from scratch.

    python benchmarks/transfer.py run [--kinds atformer,tenset-mlp] [--source A --target B]
        [--tasks 50,100,200,300,500] [--freeze none,encoder,all-but-head] [--seeds 3] [--part 0/4]
    python benchmarks/transfer.py report [--machine NAME]

Networks of lowered programs learn so many of data/cpu's training tasks on the source platform,
then `--labels` labels of the target: `--each` programs of as many tasks as that takes, drawn anew
by seed. Beside them: the same labels from scratch, and the pre-trained model as it is. Judged on
the target's test rows; intervals over test tasks, of differences paired. Pre-trained models are
kept in runs/transfer; seconds of a model *as it is* are those of its pre-training, if it was not
there. A row is run once; several processes take a `--part` each.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, add_rows, provenance, read_rows, result_file
from tensorese.evaluation.inputs import of_tasks
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.lowered_programs import Listener, ready_for
from tensorese.evaluation.metrics import bootstrap, summary
from tensorese.features.base import feature_set
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.base import Card, Model, load_model, save_model
from tensorese.records.store import Store
from tensorese.training.labels import only
from tensorese.training.recipes.base import DataSelection, Sides, TrainingJob
from tensorese.training.recipes.store_networks import StoreNetworkRecipe
from tensorese.training.transfer import FREEZES, Start

WORK = ROOT / "runs" / "transfer"
SCRATCH, AS_IT_IS = "from scratch", "as it is"
KEY = ("kind", "source", "target", "tasks", "labels", "how", "seed")
ADAPT = {"lr": 2e-4}
"""Going on from good weights takes smaller steps than beginning from random ones."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: `tasks` of the source are pre-trained on, `how` says what is done with `labels`."""

    kind: str
    source: str
    target: str
    tasks: int
    labels: int
    how: str
    seed: int


def cases(args: argparse.Namespace) -> Iterator[Case]:
    counts = [int(n) for n in args.tasks.split(",")]
    for kind, seed in product(args.kinds.split(","), range(args.seeds)):
        about = {"kind": kind, "source": args.source, "target": args.target, "seed": seed}
        yield Case(**about, tasks=0, labels=args.labels, how=SCRATCH)
        for tasks in counts:
            yield Case(**about, tasks=tasks, labels=0, how=AS_IT_IS)
            for freeze in args.freeze.split(","):
                yield Case(**about, tasks=tasks, labels=args.labels, how=freeze)


class Bench:
    """Everything that rows share: programs, what is drawn of them, pre-trained models."""

    def __init__(self, args: argparse.Namespace, store: Store) -> None:
        self.args, self.store = args, store
        names, needs = (args.source, args.target), (feature_set("lowered"),)
        whole = read_programs([store], platforms=names, split="train")
        most = max(int(n) for n in args.tasks.split(","))
        seeds = range(args.seeds)
        self.order = {seed: _shuffled(whole, seed) for seed in seeds}
        self.few = {seed: _few(whole, args, seed) for seed in seeds}
        wanted = {name for seed in seeds for name in self.order[seed][:most]}
        wanted |= {name for seed in seeds for name in self.few[seed][0]}
        train = of_tasks(whole, _places(whole, wanted))
        self.train = ready_for(needs, train, [store], _aloud())
        test = read_programs([store], platforms=(args.target,), split="test")
        test = of_tasks(test, range(args.test_tasks or len(test.tasks)))
        self.test = ready_for(needs, test, [store], _aloud())

    def row(self, case: Case) -> dict[str, Any]:
        began = time.monotonic()
        if case.how == AS_IT_IS:
            model, head = self.pretrained(case), case.source
        else:
            start = None
            if case.how != SCRATCH:
                folder = self.folder(case)
                start = Start(folder=folder, model=self.pretrained(case), freeze=case.how)
            began = time.monotonic()
            model, head = self.adapted(case, start), case.target
        secs = time.monotonic() - began
        scores = model.rank(model.read_all(self.test), head).astype(np.float64)
        judged = judge_scores(self.test, case.target, scores, range(len(self.test.tasks)))
        figures = {key: round(float(value), 4) for key, value in summary(judged).items()}
        kept = ("top1", "top1_low", "top1_high", "top5", "pairwise", "tasks")
        return {
            **asdict(case),
            **{f"test_{key}" if key == "tasks" else key: figures[key] for key in kept},
            "secs": round(secs, 1),
            "ratios": {one.task[:8]: round(one.ratio(1), 4) for one in judged},
        }

    def recipe(self, case: Case, changes: dict[str, Any]) -> StoreNetworkRecipe:
        name, _, preset = case.kind.partition(":")
        recipe = StoreNetworkRecipe.named(name, preset or "default", DataSelection())
        if self.args.epochs:
            changes = {**changes, "epochs": self.args.epochs}
        return replace(recipe, seed=case.seed, fit=replace(recipe.fit, **changes))

    def train_on(
        self, case: Case, programs: ProgramSet, names: Iterable[str], start: Start | None
    ) -> Model:
        tasks = tuple(_places(programs, set(names)))
        job = TrainingJob(
            programs=programs,
            sides=Sides(train=tasks, validation=(), held_out=()),
            stores=(self.store,),
            device=self.args.device,
            start=start,
        )
        return self.recipe(case, {} if start is None else ADAPT).train(job).model

    def folder(self, case: Case) -> Path:
        name = f"{case.kind.replace(':', '-')}-{case.source}-{case.tasks}-{case.seed}"
        return WORK / (f"{name}-{self.args.epochs}" if self.args.epochs else name)

    def pretrained(self, case: Case) -> Model:
        folder = self.folder(case)
        if not (folder / "config.json").exists():
            names = self.order[case.seed][: case.tasks]
            model = self.train_on(case, only(self.train, case.source), names, None)
            save_model(folder, model, Card(targets=self.store.targets()))
        return load_model(folder)

    def adapted(self, case: Case, start: Start | None) -> Model:
        names, ids = self.few[case.seed]
        mine = only(self.train, case.target)
        drawn = np.isin(np.array(mine.ids), sorted(ids))
        latency = np.where(drawn[:, None], mine.latency, np.nan)
        few = replace(mine, latency=latency, failed=mine.failed & drawn[:, None])
        return self.train_on(case, few, names, start)


def _shuffled(programs: ProgramSet, seed: int) -> list[str]:
    """Tasks as they are pre-trained on: of two numbers, the larger one's hold the smaller's."""
    order = np.random.default_rng(seed).permutation(len(programs.tasks))
    return [programs.tasks[k] for k in order]


def _few(programs: ProgramSet, args: argparse.Namespace, seed: int) -> tuple[set[str], set[str]]:
    """Tasks and programs of the target's labels."""
    rng = np.random.default_rng([seed, 1])
    valid = programs.valid(programs.head(args.target))
    tasks: set[str] = set()
    ids: set[str] = set()
    for task in rng.permutation(len(programs.tasks)):
        left, mine = args.labels - len(ids), valid[programs.task[valid] == task]
        count = min(left, args.each, len(mine))
        if count > 1:
            tasks.add(programs.tasks[task])
            ids |= {programs.ids[k] for k in rng.choice(mine, count, replace=False)}
    return tasks, ids


def _places(programs: ProgramSet, names: set[str]) -> list[int]:
    return [k for k, name in enumerate(programs.tasks) if name in names]


def _aloud() -> Listener:
    return Listener(say=lambda text: print(text, flush=True))


def run(args: argparse.Namespace, store: Store) -> None:
    path = result_file("transfer", ".jsonl", args.machine)
    done = {tuple(row[key] for key in KEY) for row in read_rows(path)}
    wanted = [case for case in cases(args) if tuple(asdict(case)[key] for key in KEY) not in done]
    part, _, parts = args.part.partition("/")
    mine = [case for k, case in enumerate(wanted) if k % int(parts) == int(part)]
    if not mine:
        return
    bench = Bench(args, store)
    for case in mine:
        row = bench.row(case)
        about = provenance()
        if not args.quick:
            add_rows(path, [{**row, "date": about["date"], "commit": about["commit"]}])
        print({key: value for key, value in row.items() if key != "ratios"}, flush=True)


def report(args: argparse.Namespace) -> None:
    """Means over seeds; gains over the same labels from scratch, paired by task and seed."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(result_file("transfer", ".jsonl", args.machine)):
        groups[tuple(row[key] for key in KEY[:-1])].append(row)
    print("| kind | platforms | pre-trained on | labels | how | seeds | top-1 | top-5 | gain |")
    print("|---|---|---|---|---|---|---|---|---|")
    for key, rows in sorted(groups.items()):
        kind, source, target, tasks, labels, how = key
        bases = [k for k in groups if k[:3] == key[:3] and k[5] == SCRATCH]
        top1 = bootstrap(_by_task(rows))
        top5 = float(np.mean([row["top5"] for row in rows]))
        gain = "" if how == SCRATCH or not bases else _gain(rows, groups[bases[0]])
        print(
            f"| {kind} | {source} to {target} | {tasks} | {labels} | {how} | {len(rows)} "
            f"| {top1.mean:.3f} [{top1.low:.3f}, {top1.high:.3f}] | {top5:.3f} | {gain} |"
        )


def _by_task(rows: Sequence[dict[str, Any]]) -> list[float]:
    return [float(np.mean([row["ratios"][task] for row in rows])) for task in rows[0]["ratios"]]


def _gain(rows: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> str:
    """Of the seeds that both have."""
    seeds = {row["seed"] for row in rows} & {row["seed"] for row in base}
    if not seeds:
        return ""
    pair = [_by_task([row for row in each if row["seed"] in seeds]) for each in (rows, base)]
    gain = bootstrap([mine - other for mine, other in zip(*pair, strict=True)])
    return f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("run", "report"))
    parser.add_argument("--kinds", default="atformer,tenset-mlp", help="KIND or KIND:PRESET.")
    parser.add_argument("--source", default="emeraldrapids-16c")
    parser.add_argument("--target", default="znver4-2c")
    parser.add_argument("--tasks", default="50,100,200,300,500")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--each", type=int, default=16, help="Labels of one task.")
    parser.add_argument("--freeze", default=",".join(FREEZES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="0/1", help="Of the rows that are missing.")
    parser.add_argument("--machine", default="", help="Whose result file.")
    parser.add_argument("--epochs", type=int, default=0, help="Instead of the recipe's.")
    parser.add_argument("--test-tasks", type=int, default=0, help="Judge on so many.")
    parser.add_argument("--quick", action="store_true", help="Rows are not kept.")
    args = parser.parse_args()
    if args.stage == "report":
        report(args)
        return
    with Store.open(ROOT / "data" / "cpu") as store:
        run(args, store)


if __name__ == "__main__":
    main()
