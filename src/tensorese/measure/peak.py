"""The float32 peak of this process's cores, measured: fused multiply-adds that never leave
registers, one thread a core, all at once."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

# Independent accumulators hide the latency of two FMA units: as many as there are registers for.
_SOURCE = """
typedef float v __attribute__((vector_size(WIDTH)));
float spin(long n) {
  v a[CHAINS], x, y;
  for (int i = 0; i < WIDTH / 4; i++) { x[i] = 0.999f; y[i] = 0.001f; }
  for (int k = 0; k < CHAINS; k++) a[k] = x + (float)k;
  for (long i = 0; i < n; i++) {
#pragma GCC unroll 32
    for (int k = 0; k < CHAINS; k++) a[k] = a[k] * x + y;
  }
  v sum = a[0];
  for (int k = 1; k < CHAINS; k++) sum += a[k];
  return sum[0];
}
"""


def peak_gflops(seconds: float = 0.5, rounds: int = 3) -> float:
    """GFLOPS of all cores together, the best of a few rounds."""
    bits = 512 if "avx512f" in Path("/proc/cpuinfo").read_text() else 256
    chains = 24 if bits == 512 else 12
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name) / "peak.c", Path(name) / "peak.so"
        source.write_text(_SOURCE)
        flags = ["-O3", "-march=native", f"-mprefer-vector-width={bits}", f"-DWIDTH={bits // 8}"]
        flags.append(f"-DCHAINS={chains}")
        command = ["gcc", *flags, "-ffp-contract=fast", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, str(library), str(source)], check=True, capture_output=True)
        spin = ctypes.CDLL(str(library)).spin
        spin.argtypes, spin.restype = [ctypes.c_long], ctypes.c_float
        steps = _steps_for(spin, seconds)
        flops = 2.0 * chains * (bits // 32) * steps
        return max(_round(spin, steps, flops) for _ in range(rounds)) / 1e9


def known_peak() -> float | None:
    """The peak of this machine's cores, measured once a day; None where it cannot be.

    A busy moment shows too little, so that many are looked at; see `believed`.
    """
    cores = len(os.sched_getaffinity(0))
    name = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        os.uname().machine,
    )
    key = f"{name.partition(':')[2].strip()}, {cores} cores, {date.today()}"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tensorese"
    try:
        known: dict[str, float] = json.loads((cache / "peak.json").read_text())
    except (OSError, ValueError):
        known = {}
    if key not in known:
        try:
            known[key] = peak_gflops(seconds=0.1, rounds=10)
            cache.mkdir(parents=True, exist_ok=True)
            (cache / "peak.json").write_text(json.dumps({key: known[key]}))
        except (OSError, subprocess.CalledProcessError):
            return known.get(key)  # no compiler, or nowhere to remember it
    return known[key]


def believed(peak: float | None, rates: Iterable[float]) -> float | None:
    """The peak, unless a program was faster: then it was measured at a busy moment."""
    return peak if peak and peak >= max(rates, default=0.0) else None


def _steps_for(spin: Any, seconds: float) -> int:
    started = time.perf_counter()
    spin(1_000_000)
    return max(1_000_000, int(1_000_000 * seconds / (time.perf_counter() - started)))


def _round(spin: Any, steps: int, flops: float) -> float:
    """Each thread's own rate, summed: ctypes lets go of the interpreter during a call."""
    rates: list[float] = []

    def work(core: int) -> None:
        os.sched_setaffinity(0, {core})
        started = time.perf_counter()
        spin(steps)
        rates.append(flops / (time.perf_counter() - started))

    cores = sorted(os.sched_getaffinity(0))
    threads = [threading.Thread(target=work, args=(core,)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)
