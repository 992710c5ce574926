"""TLP as its paper meant it, on our own data: what the language of schedules alone can rank.

    python benchmarks/tlp_meant.py single|mtl|losses|push|trunk [--platforms A,B] [--systems X;Y]
                                   [--seeds N] [--stack N] [--limit SECONDS] [--rows FILE]
    python benchmarks/tlp_meant.py report [FILE ...]

`single`: the published network and training, language only, physics only, both, on each platform.
`mtl`: 500 and 5,000 labels of a CPU, alone and beside one to four other CPUs' labels, against
fine-tuning, pre-training without labels and a network on hardware features. `losses`: rank and
squared error, attention and LSTM, three crops. `push`: configurations judged on validation tasks;
the one that is best there is trained on all training tasks with three seeds and judged on test
rows. `trunk`: a scorer on the states of a language model (TLM's trunk, reading) that learnt to
write the training tasks' programs and no speed. Rows are added as they come and never trained
again; `--limit` starts nothing new after so many seconds. Neither TVM nor a device is needed;
`tlp_meant_device.sh` runs it on a lent machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from common import RESULTS, read_rows
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import mean_top_k
from tensorese.features.programs import Encoded
from tensorese.features.sentences import sentences_of
from tensorese.models.network import as_batch, outputs_of
from tensorese.models.physics_net import opinions_of
from tensorese.training.stacked import StackedTrainer
from tlp_meant_mtl import mtl
from tlp_meant_report import STORES, report
from tlp_meant_runs import Data, Run, System, figures
from tlp_meant_session import Session, alone_runs, physics_only, together_runs
from tlp_meant_trunk import Scorer, ScorerConfig, language_model, standard, states_of

PHYSICS = System(name="physics only")
"""Networks on hardware features as `tensorese train physics` makes them."""

SINGLE = (
    System(name="published", paper=True),
    System(name="published, nothing cropped", paper=True, crop="whole"),
    System(name="published, 200 epochs", paper=True, fit={"epochs": 200, "patience": 200}),
    System(name="language only"),
    System(name="both", beside=True),
)
LOSSES = (
    System(name="attention, rank", paper=True),
    System(name="attention, squared error", paper=True, fit={"loss": "mse"}),
    System(name="LSTM, rank", paper=True, config={"mixer": "lstm"}),
    System(name="LSTM, squared error", paper=True, config={"mixer": "lstm"}, fit={"loss": "mse"}),
    System(name="attention, rank, 16x16", paper=True, crop="16x16"),
    System(name="attention, rank, nothing cropped", paper=True, crop="whole"),
)
TRUNK_SIZE = "small"
TRUNK = System(name=f"frozen language model, {TRUNK_SIZE}", steps=4000)
"""The steps are the language model's."""
WIDE = {"width": 128, "heads": 8, "layers": 2}
WIDER = {"width": 256, "heads": 8, "layers": 2}
SPEEDS = {"loss": "mse", "octave_weight": 10.0, "regret_weight": 0.0}
ALONE = (
    System(name="width 64"),
    System(name="width 128, 2 layers", config=WIDE),
    System(name="width 128, 4 layers", config={**WIDE, "layers": 4}),
    System(name="width 256, 2 layers", config=WIDER),
    System(name="width 128, 2 layers, speeds", config=WIDE, fit=SPEEDS),
    System(name="width 128, 2 layers, 200 epochs", config=WIDE, fit={"epochs": 200}),
    System(name="width 128, 2 layers, half the tasks", config=WIDE, share=0.5),
    System(name="width 128, 2 layers, hidden decisions first", config=WIDE, hidden=3000),
)
TOGETHER = (
    System(name="all platforms, width 128, 2 layers", config=WIDE),
    System(name="all platforms, width 256, 2 layers", config=WIDER),
    System(name="all platforms, width 128, 2 layers, speeds", config=WIDE, fit=SPEEDS),
    System(
        name="all platforms, width 128, 2 layers, hidden decisions first", config=WIDE, hidden=3000
    ),
)
"""Of `push`, twelve in all."""


def single(session: Session) -> None:
    for store in session.stores():
        data = session.data(store)
        for system in filter(session.wanted, SINGLE):
            runs = alone_runs(
                data, "single", system, session.here(store), session.seeds, data.train
            )
            session.run(data, system, runs, test=True)
        if session.wanted(PHYSICS):
            runs = alone_runs(
                data, "single", PHYSICS, session.here(store), session.seeds, data.train
            )
            physics_only(session, data, runs)


def losses(session: Session) -> None:
    for store in session.stores():
        data = session.data(store)
        here = [name for name in session.here(store) if name in ("znver4-2c", "h200")]
        for system in filter(session.wanted, LOSSES):
            runs = alone_runs(data, "losses", system, here, session.seeds, data.train)
            session.run(data, system, runs, test=True)


def push(session: Session) -> None:
    for store in session.stores():
        data, here = session.data(store), session.here(store)
        for system in filter(session.wanted, ALONE):
            runs = alone_runs(data, "push", system, here, [0], data.train)
            session.run(data, system, runs, test=False)
        for system in filter(session.wanted, TOGETHER if store == "cpu" else ()):
            runs = together_runs(data, "push", system, here, [0], data.train)
            session.run(data, system, runs, test=False)
        chosen = best_pushed(session, store)
        if chosen is None or session.args.systems:
            continue
        # The last weights: there is no task left to choose an epoch on.
        final = replace(chosen, name=f"chosen: {chosen.name}")
        stage, tasks = "chosen", data.all_tasks
        if chosen in TOGETHER:
            runs = together_runs(data, stage, final, here, session.seeds, tasks)
        else:
            runs = alone_runs(data, stage, final, here, session.seeds, tasks)
        session.run(data, final, runs, test=True)


def best_pushed(session: Session, store: str) -> System | None:
    """By validation tasks alone, the mean of top-1 and top-5 over the store's platforms."""
    marks: list[float] = []
    platforms = [name for name in STORES if STORES[name] == store]
    pushed = [row for row in read_rows(session.rows.path) if row["stage"] == "push"]
    systems = (*ALONE, *(TOGETHER if store == "cpu" else ()))
    for system in systems:
        said = [
            r["validation"] for r in pushed if r["system"] == system.name and r["store"] == store
        ]
        if len(said) < len(platforms):
            print(f"{store}: {system.name} lacks validation rows, nothing is chosen yet")
            return None
        marks.append(float(np.mean([[v["top1"], v["top5"]] for v in said])))
    return systems[int(np.argmax(marks))]


def trunk(session: Session) -> None:
    """A scorer on the states of a language model that was taught no speed, and stays as it is."""
    for store in session.stores():
        data = session.data(store)
        runs = {
            platform: alone_runs(data, "trunk", TRUNK, [platform], session.seeds, data.train)
            for platform in session.here(store)
        }
        runs = {p: [r for r in of if session.rows.missing(r)] for p, of in runs.items()}
        if not any(runs.values()) or session.late():
            continue
        began = time.monotonic()
        steps = 2 if session.args.quick else TRUNK.steps
        model = language_model(
            data.programs, data.targets, data.train, steps, session.device, TRUNK_SIZE
        )
        written = [sentences_of(programs) for programs in (data.programs, data.test)]
        print(f"{store}: a language model in {time.monotonic() - began:.0f} s", flush=True)
        for platform, of in runs.items():
            if of and not session.late():
                target = data.targets[platform]
                known, test = standard(*(states_of(model, said, target) for said in written))
                scorers(session, data, of, known, test)


def scorers(
    session: Session, data: Data, runs: Sequence[Run], known: Encoded, test: Encoded
) -> None:
    began, [platform] = time.monotonic(), runs[0].judged
    config = ScorerConfig(columns=known.values.shape[1])
    fit = replace(System(name="").recipe().fit, epochs=1 if session.args.quick else 50)

    def build(seed: int) -> Scorer:
        torch.manual_seed(seed)
        return Scorer(config, (platform,))

    taught = [(run.labels, run.tasks, run.seed) for run in runs]
    stacked = StackedTrainer(build, known, taught, fit, session.device)
    stacked.fit()
    spent = round((time.monotonic() - began) / len(runs), 1)
    for number, run in enumerate(runs):
        network = build(run.seed)
        network.load_state_dict(stacked.weights(number))
        found = []
        sides = ((data.programs, known, data.validation), (data.test, test, None))
        for programs, states, tasks in sides:
            outputs = outputs_of(network, as_batch(states), 0, 8192).numpy()
            scores = opinions_of(outputs).mean(1).astype(np.float64)
            wanted = range(len(programs.tasks)) if tasks is None else tasks
            found.append(judge_scores(programs, platform, scores, wanted))
        row = {**run.key, "platform": platform, "store": data.name, "epochs": fit.epochs}
        row["validation"] = {f"top{k}": round(mean_top_k(found[0], k), 4) for k in (1, 5)}
        row |= {"seconds": spent, "side_by_side": len(runs)}
        session.rows.add({**row, **figures(found[1])})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    stages = {"single": single, "mtl": mtl, "losses": losses, "push": push, "trunk": trunk}
    parser.add_argument("stage", choices=[*stages, "report"])
    parser.add_argument("files", nargs="*", type=Path, help="report: rows; all of ours if none.")
    parser.add_argument("--platforms", default="", help="Some of them, by name.")
    parser.add_argument("--systems", default="", help="Some of them, by name; between semicolons.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stack", type=int, default=15, help="Networks side by side on a GPU.")
    parser.add_argument("--limit", type=float, default=float("inf"), help="Seconds.")
    parser.add_argument("--published", action="store_true", help="mtl: the published network.")
    parser.add_argument("--device", default="", help="cpu or cuda; what there is if empty.")
    parser.add_argument("--machine", default="", help="Of the rows: h200.")
    parser.add_argument("--rows", type=Path, help="The file of rows, where it is another one.")
    parser.add_argument("--quick", action="store_true", help="One epoch, few tasks; no file.")
    args = parser.parse_args()
    if args.stage == "report":
        files = args.files or sorted((RESULTS / "tlp_meant").glob("*.jsonl"))
        report([row for path in files for row in read_rows(path)])
        return
    unknown = set(args.platforms.split(",")) - {"", *STORES}
    if unknown:
        parser.error(f"--platforms are of {', '.join(STORES)}, but got {', '.join(unknown)}")
    stages[args.stage](Session(args))


if __name__ == "__main__":
    main()
