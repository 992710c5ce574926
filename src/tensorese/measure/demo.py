"""The demo: one convolution, its naive program and random ones, measured and verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorese.errors import MeasureError
from tensorese.identity import workload_of
from tensorese.measure.candidates import from_module, from_schedule
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.session import MeasuredTally, measure_new
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store
from tensorese.space.sampling import random_schedules
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

SIZE, CHANNELS = 56, 64


def conv2d_module() -> Any:
    """3x3, stride 1, NHWC, its weights free to be re-laid out as a compiler would."""
    tvm = import_tvm()
    te = tvm.te
    x = te.placeholder((1, SIZE, SIZE, CHANNELS), name="x")
    w = te.placeholder((3, 3, CHANNELS, CHANNELS), name="w")
    ry, rx, rc = (te.reduce_axis((0, n), name=f"r{i}") for i, n in enumerate((3, 3, CHANNELS)))

    def padded(n: Any, y: Any, z: Any, c: Any) -> Any:
        inside = tvm.tirx.all(y >= 1, y < SIZE + 1, z >= 1, z < SIZE + 1)
        return tvm.tirx.if_then_else(inside, x[n, y - 1, z - 1, c], 0.0)

    pad = te.compute((1, SIZE + 2, SIZE + 2, CHANNELS), padded, name="pad")
    conv = te.compute(
        (1, SIZE, SIZE, CHANNELS),
        lambda n, y, z, c: te.sum(pad[n, y + ry, z + rx, rc] * w[ry, rx, rc, c], axis=[ry, rx, rc]),
        name="conv2d",
    )
    func = te.create_prim_func([x, w, conv]).with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": func})


def conv2d_demo(
    out: Path, *, trials: int, seed: int, on_result: Callable[[MeasuredTally], None]
) -> dict[str, Any]:
    """Measures what `out` lacks, then answers from the store alone."""
    started = time.monotonic()
    target = Target.parse("host")
    platform = target.platform()
    module = conv2d_module()
    workload = workload_of(module)
    naive = from_module(module, workload, origin="naive")
    drawn = random_schedules(module, target, trials, seed)
    candidates = [naive, *(from_schedule(s, workload, origin="random") for s in drawn)]
    # The naive program is what the others are compared with: it is never cut short.
    config = FarmConfig(timing=TimingConfig(censor_ratio=1000.0))
    with (
        Store.open(out, create=True) as store,
        Farm(target, config, platform=platform, journal=store) as farm,
    ):
        tally = measure_new(farm, store, platform.name, candidates, on_result)
    with Store.open(out) as store:
        rows = list(store.measurements(platform=platform.name, workload=workload.id))
    return _summary(rows, tally, time.monotonic() - started)


def _summary(rows: list[Measurement], tally: MeasuredTally, seconds: float) -> dict[str, Any]:
    valid = [m for m in rows if m.status is Status.OK]
    naive = [m for m in valid if m.origin == "naive"]
    best = min((m for m in valid if m.origin != "naive"), key=lambda m: m.latency, default=None)
    if not naive or best is None:
        raise MeasureError("the demo needs its naive program and one other, but one did not run")
    gflop = 2 * SIZE * SIZE * CHANNELS * CHANNELS * 9 / 1e9
    return {
        "naive_ms": naive[0].latency * 1e3,
        "naive_gflops": gflop / naive[0].latency,
        "best_ms": best.latency * 1e3,
        "best_gflops": gflop / best.latency,
        "speed_up": naive[0].latency / best.latency,
        "statuses": ", ".join(f"{n} {s}" for s, n in tally.by_status.items()) or "all known",
        "verified": bool(best.verification.get("passed")),
        "seconds": seconds,
    }
