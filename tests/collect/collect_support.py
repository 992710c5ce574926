"""Small tasks for the tests that really collect, and the command itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tensorese.collect.tasklist import ListedTask, write_tasks
from tensorese.measure.candidates import workload_of
from tensorese.tvm_env import import_tvm

tvm = import_tvm()
ONE_CORE = '{"kind":"llvm","num-cores":1}'
FOUR_CORES = '{"kind":"llvm","num-cores":4}'


def matmul(n: int) -> Any:
    a, b = tvm.te.placeholder((n, n), name="a"), tvm.te.placeholder((n, n), name="b")
    k = tvm.te.reduce_axis((0, n), name="k")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})


def two_tasks() -> list[ListedTask]:
    """One for training, one for testing."""
    return [
        ListedTask(workload=workload_of(matmul(n)), kind="llvm", operator="dense", split=split)
        for n, split in ((48, ""), (64, "test"))
    ]


def task_list(path: Path) -> Path:
    write_tasks(path, two_tasks())
    return path


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "tensorese", "collect", *map(str, args)]


def collect(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), capture_output=True, text=True, check=False)
