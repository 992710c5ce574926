"""CUDA kernels compiled TVM's way and without its headers: seconds, and whether the code differs.

    python benchmarks/cuda_build.py [--programs 60] [--processes 15] [--machine h200]

Programs of `data/h200`, every one compiled both ways in the same process, as many processes at
work as the farm has builders. Needs the CUDA toolkit's headers (TVM's way reads them), no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import struct
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from common import ROOT, write_result
from tensorese.measure import nvrtc
from tensorese.measure.jobs import trace_of
from tensorese.records.store import Store
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

TARGET = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


def chosen(n: int) -> list[dict[str, Any]]:
    """Programs spread over the store, as what a build worker is sent."""
    target = Target.from_dict(TARGET)
    with Store.open(ROOT / "data" / "h200") as store:
        valid = [m for m in store.measurements(platform="h200") if m.latency]
    return [
        {"target": target.to_json(), "module": "", "workload": m.program.workload.module}
        | {"trace": trace_of(m.program, target), "operator": m.program.workload.operator}
        for m in valid[:: max(1, len(valid) // n)][:n]
    ]


def machine_code(cubin: bytes) -> dict[str, bytes]:
    """The sections of an ELF file that a GPU runs, by name; other parts name the source."""
    at, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    sections = [struct.unpack_from("<IIQQQQ", cubin, at + k * size) for k in range(count)]
    base = sections[names][4]
    kernels: dict[str, bytes] = {}
    for name, _, _, _, offset, length in sections:
        start = base + name
        text = cubin[start : cubin.index(b"\0", start)].decode()
        if text.startswith(".text."):
            kernels[text] = cubin[offset : offset + length]
    return kernels


def compile_both(job: dict[str, Any]) -> dict[str, Any]:
    tvm = import_tvm("cuda")
    import tvm_ffi

    from tensorese.measure.build_worker import compile_module, load_module

    sources: list[str] = []

    def note(code: str) -> bytearray:
        sources.append(code)
        return bytearray(b"\x7fELF")

    toolkit = importlib.import_module("tvm.support.nvcc")
    tvm_ffi.register_global_func(nvrtc._CALLBACK, note, override=True)
    target = tvm.target.Target(TARGET)
    started = time.perf_counter()
    library = compile_module(load_module(job), target)
    lowering = time.perf_counter() - started
    code = sources[0] if sources else library.imports[0].inspect_source()
    compiler = importlib.import_module("cuda.bindings.nvrtc")
    with target:
        plain = nvrtc.without_headers(code)
        flags = nvrtc._flags(toolkit)
        ways = {
            "stock": lambda: toolkit.compile_cuda(code, target_format="cubin", compiler="nvrtc"),
            "ours": lambda: nvrtc._cubin(compiler, plain or "", flags),
        }
        secs, made = {}, {}
        for way in ("ours", "stock") if len(code) % 2 else ("stock", "ours"):
            started = time.perf_counter()
            made[way] = ways[way]()
            secs[way] = time.perf_counter() - started
    codes = [machine_code(bytes(made[way])) for way in ("ours", "stock") if made[way] is not None]
    same = len(codes) == 2 and bool(codes[0]) and codes[0] == codes[1]
    return {"operator": job["operator"], "lowering": lowering, **secs, "same": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--machine", default="", help="Name of the result file.")
    args = parser.parse_args()
    jobs = chosen(args.programs)
    with ProcessPoolExecutor(max_workers=args.processes) as pool:
        rows = list(pool.map(compile_both, jobs))
    print("seconds a kernel   mean  median")
    result: dict[str, Any] = {"programs": len(rows), "processes": args.processes}
    for part in ("lowering", "stock", "ours"):
        secs = [row[part] for row in rows]
        result[part] = {"mean": statistics.mean(secs), "median": statistics.median(secs)}
        print(f"{part:16s} {result[part]['mean']:6.2f} {result[part]['median']:7.2f}")
    result["same_code"] = sum(row["same"] for row in rows)
    print(f"same machine code: {result['same_code']} of {len(rows)}")
    print(write_result("cuda_build", {**result, "rows": rows}, args.machine))


if __name__ == "__main__":
    main()
