"""Ansor lines from Ansor records: what was imported comes out as it went in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorese.language.ansor import join_steps
from tensorese.records.exporters.files import Exported, replacing
from tensorese.records.importers.ansor import ERRORS
from tensorese.records.nouns import Measurement, Status

FAILED_COST = 1e10
_CODE = re.compile(r"ansor error (\d+)")


def write_ansor(measurements: Iterable[Measurement], path: Path) -> Exported:
    """One file of lines; records of another dialect are counted, not written."""
    exported = Exported()
    with replacing(path) as file:
        for m in measurements:
            if m.program.sketch.dialect != "ansor":
                exported.skip("not an Ansor record")
            elif m.status is Status.CENSORED:
                exported.skip("censored: its time is only a lower bound")
            else:
                file.write(json.dumps(ansor_line(m)) + "\n")
                exported.written += 1
    return exported


def ansor_line(m: Measurement) -> dict[str, Any]:
    sketch = m.program.sketch
    steps = join_steps(sketch.body, sketch.slots, m.program.decisions)
    key = m.toolchain.get("key", m.program.workload.key)
    task = [key, m.platform.target, *json.loads(m.toolchain.get("task", "[]"))]
    total = [m.timing["total_secs"]] if "total_secs" in m.timing else [0.0]
    stamp = int(m.time) if m.time.is_integer() else m.time
    result = [list(m.run_secs) or [FAILED_COST], error_code(m), *total, stamp]
    return {"i": [task, [[], steps]], "r": result, "v": m.toolchain.get("version", "v0.6")}


def error_code(m: Measurement) -> int:
    """The code it was imported with, or the first that means the same."""
    if imported := _CODE.match(m.error):
        return int(imported[1])
    return next((code for code, (status, _) in ERRORS.items() if status is m.status), 8)
