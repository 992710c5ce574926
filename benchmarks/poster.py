"""ATFormer's tables on this machine: latency and search time at 300 trials, and an ablation.

    python benchmarks/poster.py pretrain [--kinds …] [--source emeraldrapids-16c]
    python benchmarks/poster.py run [--kinds …] [--networks …] [--target host|cuda] [--trials 300]
    python benchmarks/poster.py report

Every system tunes a network with the same trials. Half of them come first; the cost model then
learns from these measurements and ranks the other half. *From scratch* the first half has no model
and the cost model begins with random weights; *transferred*, a model of the same kind, pre-trained
on data/ without this platform, ranks the first half and goes on learning from it. Systems are named
KIND[:PRESET][+rmse]; the ablation is ATFormer with and without mask, pre-training and ranking loss.
ResNet-18's tasks are among those of pre-training, on the source platform; the other networks' are
not. Latency is the built library's, verified; seconds are those of both halves and of the training
between. Models and runs are kept in runs/poster; what is there goes on, a row is run once. Run it
on a quiet machine. AutoTVM, the paper's last column, has left TVM.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from common import ROOT, add_rows, environment, provenance, read_rows, result_file

WORK = ROOT / "runs" / "poster"
NETWORKS = ("resnet18", "mobilenet_v2", "bert_tiny")
KINDS = ("lstm", "tabnet", "mha", "atformer:1L", "atformer", "atformer:M")
ABLATION = ("atformer+rmse", "atformer", "atformer:M")
STARTS = ("scratch", "transferred")
ALONE = """
from pathlib import Path
from tensorese.models import catalog
catalog.SHIPPED = Path("nothing ships")
from tensorese.cli import main
main()
"""
"""What ships would draft the short lists that a model of lowered programs judges; here the ranker
does that learns from the run alone."""
KEY = ("network", "kind", "start", "trials", "target", "seed")


@dataclass(frozen=True, kw_only=True)
class Case:
    network: str
    kind: str
    start: str
    trials: int
    target: str
    seed: int

    @property
    def folder(self) -> Path:
        kind = self.kind.replace(":", "-")
        name = f"{self.network}-{kind}-{self.start}-{self.trials}-{self.target}-{self.seed}"
        return WORK / "tuned" / name


def training(kind: str) -> list[str]:
    """Arguments of `train` for KIND[:PRESET][+LOSS]."""
    name, _, loss = kind.partition("+")
    name, _, preset = name.partition(":")
    options = ["--preset", preset] if preset else []
    return [name, *options, *(["--set", f"loss={loss}"] if loss else [])]


def tensorese(*arguments: str) -> float:
    """Seconds of one command, from the start of its process; it finds no model but those named."""
    began = time.monotonic()
    command = [sys.executable, "-c", ALONE, *arguments]
    env = {**environment(), "XDG_DATA_HOME": str(WORK / "home")}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def pretrained(kind: str) -> Path:
    return WORK / "pretrained" / kind.replace(":", "-")


def pretrain(args: argparse.Namespace) -> None:
    """One model a kind, of the source platform's training rows."""
    for kind in dict.fromkeys((*args.kinds, *ABLATION)):
        out = pretrained(kind)
        if (out / "config.json").exists():
            continue
        data = ["--data", str(args.data), "--platform", args.source, "--fold", "-1"]
        options = [f"--set={one}" for one in args.set]
        resumed = ["--resume"] if out.exists() else []
        secs = tensorese("train", *training(kind), *data, "--out", str(out), *options, *resumed)
        print(f"{kind}: pre-trained in {secs:.0f} s", flush=True)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    kinds = dict.fromkeys((*args.kinds, *ABLATION))
    for seed, network, kind, start in product(range(args.seeds), args.networks, kinds, args.starts):
        yield Case(
            network=network,
            kind=kind,
            start=start,
            trials=args.trials,
            target=args.target,
            seed=seed,
        )


def run(args: argparse.Namespace) -> None:
    path = result_file("poster", ".jsonl", _machine(args))
    done = {tuple(row[key] for key in KEY) for row in read_rows(path)}
    for case in cases(args):
        if tuple(asdict(case)[key] for key in KEY) in done:
            continue
        about = provenance()
        row = {**asdict(case), **tuned(case, args)}
        add_rows(path, [{**row, **{k: about[k] for k in ("machine", "date", "commit")}}])
        print(row, flush=True)


def tuned(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds are kept stage by stage: a run that was killed goes on with the stage it was in."""
    case.folder.mkdir(parents=True, exist_ok=True)
    kept = case.folder / "stages.json"
    secs: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    for stage, arguments in _stages(case, args).items():
        if stage not in secs:
            secs[stage] = round(tensorese(*arguments), 1)
            kept.write_text(json.dumps(secs))
    certificate = json.loads((case.folder / "run" / "certificate.json").read_text())
    return {
        "latency": certificate["latency"]["tuned"]["latency"],
        "secs": round(sum(secs.values()), 1),
        "stages": secs,
    }


def _stages(case: Case, args: argparse.Namespace) -> dict[str, Sequence[str]]:
    run_folder, model = str(case.folder / "run"), str(case.folder / "model")
    first = "none" if case.start == "scratch" else str(pretrained(case.kind))
    tune = ("tune", f"zoo:{case.network}", "--target", case.target, "--out", run_folder)
    tune = (*tune, "--seed", str(case.seed))
    begin = () if case.start == "scratch" else ("--init", first)
    data = ("--data", f"{run_folder}/store", "--fold", "-1", "--out", model)
    options = [f"--set={one}" for one in (f"seed={case.seed}", *args.set)]
    half = str(case.trials // 2)
    return {
        "first half": (*tune, "--trials", half, "--model", first, "--no-compile"),
        "training": ("train", *training(case.kind), *data, *begin, *options),
        "second half": (*tune, "--trials", str(case.trials), "--model", model),
    }


def report(args: argparse.Namespace) -> None:
    rows = read_rows(result_file("poster", ".jsonl", _machine(args)))
    print("| network | kind | start | trials | latency (ms) | search (s) | seeds |")
    print("|---|---|---|---|---|---|---|")
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[key] for key in KEY[:4]), []).append(row)
    for (network, kind, start, trials), each in sorted(by_key.items()):
        latency = " ".join(f"{1e3 * row['latency']:.3f}" for row in each)
        secs = sum(row["secs"] for row in each) / len(each)
        about = f"{network} | {kind} | {start} | {trials}"
        print(f"| {about} | {latency} | {secs:.0f} | {len(each)} |")


def _machine(args: argparse.Namespace) -> str:
    if args.machine:
        return str(args.machine)
    from common import machine_name

    return machine_name(gpu=args.target == "cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("pretrain", "run", "report"))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--starts", nargs="*", choices=STARTS, default=list(STARTS))
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--source", default="emeraldrapids-16c")
    parser.add_argument("--target", default="host", choices=("host", "cuda"))
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="Passed on to train.")
    parser.add_argument("--machine", default="", help="Whose result file.")
    args = parser.parse_args()
    {"pretrain": pretrain, "run": run, "report": report}[args.stage](args)


if __name__ == "__main__":
    main()
