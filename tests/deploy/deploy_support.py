"""A small run folder: an exported torch model and random programs, nothing measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorese.targets import Target
from tensorese.tvm_env import import_tvm


def export(module: Any, inputs: tuple[Any, ...], path: Path) -> Path:
    import_tvm()
    import torch

    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), inputs), path)
    return path


def small_network(path: Path) -> Path:
    """A convolution, a pool and a matrix product; two outputs."""
    import_tvm()
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3, padding=1)
            self.norm = nn.BatchNorm2d(16)
            self.head = nn.Linear(16, 8)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.conv(x)))
            pooled = y.mean((2, 3))
            return self.head(pooled), pooled

    torch.manual_seed(0)
    return export(Small(), (torch.randn(1, 3, 16, 16),), path)


def make_run(
    folder: Path,
    model: Path,
    *,
    only: str = "",
    programs: int = 1,
    prepack: bool = True,
    winograd: bool = False,
    others: int = 0,
) -> Path:
    """`run.json` and `best.json` by the contract; `only` limits tuning to one operator. So many
    `others` of the `programs` came close to each best one."""
    from tensorese.measure import from_schedule
    from tensorese.space.sampling import random_schedules
    from tensorese.workloads import load_variants, tasks_of_all

    host = Target.parse("host")
    target = host.to_json()
    networks = load_variants(str(model))
    tasks = tasks_of_all(networks, target, prepack=prepack, winograd=winograd)
    best: dict[str, Any] = {}
    for task in tasks:
        if only and task.operator != only:
            continue
        schedules = random_schedules(task.module, host, programs, seed=3)
        rows = [_best(task, from_schedule(one, task.workload).program) for one in schedules]
        best[task.workload.id] = {**rows[-1], "others": rows[:-1][:others]}
    heads = [
        {
            "workload": task.workload.id,
            "name": task.name,
            "operator": task.operator,
            "weight": task.weight,
            "flops": task.flops,
            "shapes": ["x".join(map(str, arg.shape)) for arg in task.workload.args],
        }
        for task in tasks
    ]
    head = {
        "version": 1,
        "model": str(model),
        "network": model.stem,
        "target": target,
        "platform": host.platform().name,
        "config": {"prepack": prepack, "winograd": winograd},
        "environment": {},
        "fingerprint": "",
        "tasks": heads,
        "state": "finished",
        "seconds": 1.0,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(head))
    (folder / "best.json").write_text(json.dumps(best))
    return folder


def _best(task: Any, program: Any) -> dict[str, Any]:
    return {
        "program": program.id,
        "sketch": {
            "dialect": program.sketch.dialect,
            "body": program.sketch.body,
            "slots": program.sketch.slots,
        },
        "decisions": list(program.decisions),
        "tail": program.tail,
        "latency": 1e-5,
        "remeasured": [1e-5],
        "name": task.name,
        "weight": task.weight,
        "flops": task.flops,
    }
