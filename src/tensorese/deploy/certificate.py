"""What a library's certificate says of it before anything is timed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorese.deploy.build import sha256
from tensorese.deploy.built import Built
from tensorese.deploy.folder import TunedRun
from tensorese.tvm_env import import_tvm, toolchain_of


def certificate_of(builts: Sequence[Built], library: Path) -> dict[str, Any]:
    """`builts` are the shapes of one library, which has several `signatures` then."""
    built = builts[0]
    run = built.run
    names = {str(task["workload"]): str(task["name"]) for task in run.tasks}
    tuned, untuned = set(built.applied.tuned.values()), set(built.applied.untuned.values())
    return {
        "version": 1,
        "model": run.source or run.model,
        "network": run.network,
        "target": run.target,
        "platform": run.platform,
        "signature": built.signature.to_dict(),
        "library": {"sha256": sha256(library), "bytes": library.stat().st_size},
        "weights": {"sha256": weights_sha256(built.network.module), "packed": built.packed},
        **built.otherwise,
        "toolchain": toolchain_of(run.kind),
        "host": os.uname().nodename,
        "time": time.time(),
        "tasks": {
            "tuned": {workload: names.get(workload, "") for workload in sorted(tuned)},
            "untuned": {workload: names.get(workload, "") for workload in sorted(untuned)},
        },
        **({"signatures": [one.signature.to_dict() for one in builts]} if builts[1:] else {}),
        **({"device": run.device} if run.device else {}),
        **({"ways": [one.to_dict() for one in run.ways]} if run.ways else {}),
        **_unmeasured(run),
        **_known(built),
    }


def _unmeasured(run: TunedRun) -> dict[str, Any]:
    """Which programs a model chose and nobody timed, who proposed each, and for which platform
    the model speaks."""
    origins = {id_: best.origin for id_, best in run.best.items() if best.latency is None}
    if not origins:
        return {}
    return {"unmeasured": {"programs": origins, "judged_for": run.judged_for}}


def _known(built: Built) -> dict[str, Any]:
    """Which tasks other runs had tuned, and which run found a program that is in the library."""
    run, rows = built.run, {}
    for id_, known in sorted(run.known.items()):
        best = run.best.get(id_)
        chosen = best and best.program(known.workload).id
        finder = next((one.run for one in known.programs if one.program.id == chosen), "")
        rows[id_] = {
            "name": best.name if best else "",
            "trials": known.trials,
            "runs": [effort.to_dict() for effort in known.runs.values()],
            "found_by": finder and getattr(known.runs.get(finder), "path", "a run before those"),
        }
    return {"known": rows} if rows else {}


def weights_sha256(module: Any) -> str:
    """Of the network's constants as it was read, in order: which weights these are."""
    tvm = import_tvm()
    digest = hashlib.sha256()

    def see(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            digest.update(node.value.numpy().tobytes())

    tvm.relax.analysis.post_order_visit(module["main"], see)
    return digest.hexdigest()
