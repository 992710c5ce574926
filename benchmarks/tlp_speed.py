"""How fast TLP reads and scores. Prints JSON lines; see docs/models.md.

    python benchmarks/tlp_speed.py score --data DIR [--device cuda]
    python benchmarks/tlp_speed.py encode --data DIR
    python benchmarks/tlp_speed.py train --data DIR --device cuda

`score`: decisions of one sketch to scores, the default model. `encode`: records to matrices on
one core. `train`: 50 epochs on all records of three platforms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # see models.ranker

import numpy as np
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import encode_programs
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.ranker import TLPRanker, bf16_is_faster
from tensorese.models.tlp import TLPConfig
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trunk import TrunkConfig
from tensorese.training.groups import GroupConfig
from tensorese.training.trainer import TrainConfig, Trainer
from tensorese.training.trees import grow_trees
from tlp_runs import PLATFORMS, programs_of
from tlp_stages import BASE, FROZEN, thaw

ANSOR = PLATFORMS[:3]


def _model(programs: Any, platforms: tuple[str, ...]) -> MTLTLP:
    config = TLPConfig(
        trunk=TrunkConfig(**BASE["trunk"]),
        spec=programs.spec(),
        members=BASE.get("members", 1),
        physics_members=BASE.get("physics_members", 0),
        doubt=BASE.get("doubt", 0.0),
    )
    return MTLTLP(config, platforms)


def _trees(programs: Any, settings: dict[str, Any]) -> TreeVotes | None:
    """Real ones: how deep they are is what their speed hangs on."""
    if not settings.get("trees"):
        return None
    encoded = encode_programs(programs, Encoder(programs.spec()))
    tasks = range(len(programs.tasks))
    return TreeVotes(
        grow_trees(programs, encoded, tasks, settings["trees"], 0), settings["tree_votes"]
    )


def score(args: argparse.Namespace) -> None:
    """The largest sketch of V100's and A100's records, its decisions repeated to `--n`."""
    for name in ("v100", "a100"):
        programs = programs_of(args.data, (name,))
        largest = max(range(len(programs.pairs)), key=lambda k: len(programs.pairs[k].bones.rows))
        pair = programs.pairs[largest]
        decisions = np.resize(
            programs.decisions[largest], (args.n, programs.decisions[largest].shape[1])
        )
        workload = programs.workloads[pair.workload]
        usable = bf16_is_faster(torch.device(args.device))
        frozen = json.loads(args.frozen.read_text())["settings"]
        trees = None if args.networks else _trees(programs, frozen)
        for bf16 in (False, True) if usable else (False,):
            model = _model(programs, (name,))
            model.trees = trees
            ranker = TLPRanker(model, device=args.device, bf16=bf16)
            rates = []
            for _ in range(args.repeat + 1):
                start, burnt = time.perf_counter(), time.process_time()
                ranker.score(workload, name, pair.sketch, decisions)
                rates.append(args.n / (time.perf_counter() - start))
                burnt = time.process_time() - burnt
            template = ranker._template(workload, pair.sketch)[0]
            _say(
                what="score one sketch",
                platform=name,
                rows=template.n_rows,
                live=len(template.live),
                bf16=bf16,
                device=args.device,
                threads=torch.get_num_threads(),
                programs_per_s=round(float(np.median(rates[1:]))),
                best=round(max(rates)),
                core_us_per_program=round(burnt / args.n * 1e6, 1),
                trees=0 if trees is None else len(trees.forests[name].roots),
            )


def encode(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    programs = programs_of(args.data, ANSOR)
    start = time.perf_counter()
    encoded = encode_programs(programs, Encoder(programs.spec()))
    values = time.perf_counter() - start
    for piece in np.array_split(np.arange(len(programs)), 64):
        encoded.matrix(piece)
    whole = time.perf_counter() - start
    _say(what="records to values", records=len(programs), seconds=round(values, 2))
    _say(what="records to matrices", records=len(programs), seconds=round(whole, 2))


def train(args: argparse.Namespace) -> None:
    programs = programs_of(args.data, ANSOR)
    encoded = encode_programs(programs, Encoder(programs.spec()))
    groups = GroupConfig(**{**BASE["groups"], "per_batch": args.per_batch})
    config = TrainConfig(**{**BASE["train"], "epochs": 50}, groups=groups)
    trainer = Trainer(
        _model(programs, ANSOR),
        programs,
        encoded,
        train_tasks=range(len(programs.tasks)),
        config=config,
        device=args.device,
    )
    start = time.perf_counter()
    for epoch in range(args.epochs):
        trainer._epoch(epoch)
    seconds = time.perf_counter() - start
    _say(
        what="50 epochs",
        records=trainer.groups.records,
        seconds=round(seconds / args.epochs * 50, 1),
        measured_epochs=args.epochs,
        steps=trainer.step,
        device=args.device,
    )


def _cpu() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _say(**facts: Any) -> None:
    on = facts.get("device", "cpu")
    where = {
        "machine": torch.cuda.get_device_name() if on == "cuda" else _cpu(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "networks": [BASE.get("members", 1), BASE.get("physics_members", 0)],
    }
    print(json.dumps({**facts, **where}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["score", "encode", "train"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--n", type=int, default=20000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--per-batch", type=int, default=16)
    parser.add_argument("--frozen", type=Path, default=FROZEN)
    parser.add_argument("--networks", type=int, nargs=2, help="trunks and physical networks")
    args = parser.parse_args()
    thaw(args.frozen)
    if args.networks:
        BASE["members"], BASE["physics_members"] = args.networks
    {"score": score, "encode": encode, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
