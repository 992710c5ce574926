"""`Target`: what programs are compiled for; as users name it, and what this host really is.

Inside it is an object; records, messages and run folders have its JSON.

Free of TVM except where LLVM names the CPU, so that a wrong flag is reported fast.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorese.errors import TargetError, did_you_mean
from tensorese.records.nouns import Platform, canonical_json
from tensorese.tvm_env import import_tvm, lacks_cuda_runtime

# TVM reads a bare `cuda` on a machine without a GPU as sm_50: the limits are stated here instead.
_CUDA_LIMITS = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
    "max_num_threads": 1024,
    "registers_per_block": 65536,
}
CUDA_DEVICES = {
    "k80": "sm_37",
    "v100": "sm_70",
    "t4": "sm_75",
    "rtx2080ti": "sm_75",
    "a100": "sm_80",
    "rtx3080": "sm_86",
    "rtx3090": "sm_86",
    "rtx4090": "sm_89",
    "h100": "sm_90",
    "h200": "sm_90",
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What TVM compiles for. Two of the same meaning are equal, however they were spelled."""

    kind: str
    """`llvm`, `cuda`, ..."""
    mcpu: str = ""
    """LLVM's name of a CPU."""
    arch: str = ""
    """Of a GPU: `sm_90`."""
    cores: int = 0
    """That a CPU's programs use; 0 where it is not stated."""
    attributes: tuple[tuple[str, Any], ...] = ()
    """Further attributes of a TVM target, by name."""
    device: str = field(default="", compare=False)
    """A GPU's name where the user or its driver said it, `h200`; no part of what is compiled."""

    @classmethod
    def parse(cls, text: str, *, cores: int | None = None) -> Target:
        """The target a user named; unknown kinds and keys are refused by TVM's list.

        `host` takes its CPU from LLVM and its cores from this process; `cuda` and `cuda:NAME` take
        limits from a table, so that a CUDA space can be built on a machine without a GPU.
        """
        device = _cuda_device(text.strip())
        spec = _expand(text, cores, device)
        if spec.get("kind") == "llvm":
            spec.setdefault("num-cores", cores or len(usable_cores()))
        tvm = import_tvm()  # a target is checked without its intrinsics, which take half a minute
        try:
            tvm.target.Target(spec)
        except (ValueError, TypeError, AttributeError) as error:
            raise TargetError(_explain(spec, str(error))) from None
        _check_llvm_cpu(tvm, spec)
        return replace(cls.from_dict(spec), device=device)

    @classmethod
    def from_json(cls, text: str) -> Target:
        """What `to_json` wrote, into a record, a message or a run folder; without TVM."""
        spec = json.loads(text)
        if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str):
            raise TargetError(f'a target object must have a "kind", but got {text!r}; e.g. "llvm"')
        return cls.from_dict(spec)

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> Target:
        named = {"kind", *_FIELDS}
        others = sorted((key, _frozen(value)) for key, value in spec.items() if key not in named)
        fields = {field: spec[key] for key, field in _FIELDS.items() if key in spec}
        return cls(kind=str(spec["kind"]), attributes=tuple(others), **fields)

    def to_dict(self) -> dict[str, Any]:
        """As TVM takes it."""
        fields = {key: getattr(self, field) for key, field in _FIELDS.items()}
        stated = {key: value for key, value in fields.items() if value}
        return {"kind": self.kind, **stated, **{k: _thawed(v) for k, v in self.attributes}}

    def to_json(self) -> str:
        """Canonical."""
        return canonical_json(self.to_dict())

    @property
    def is_cpu(self) -> bool:
        return self.kind == "llvm"

    @property
    def threads(self) -> int:
        """Of a program: all the target's cores, 1 on a GPU's host."""
        return (self.cores or 1) if self.is_cpu else 1

    def platform(self, name: str = "") -> Platform:
        """Named after the hardware, e.g. `emeraldrapids-2c`, unless the user names it."""
        if not name and self.is_cpu:
            name = f"{self.mcpu or 'cpu'}-{self.cores or 1}c"
        name = name or self.device or f"{self.kind}-{self.arch or 'device'}"
        return Platform(name=name, target=self.to_json())


_FIELDS = {"mcpu": "mcpu", "arch": "arch", "num-cores": "cores"}
"""TVM's names of what a target has fields for."""


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class HostCpu:
    """What `doctor` prints and a platform name is made of."""

    model: str
    mcpu: str
    cores: int
    """Cores this process may use, which a container may have fewer of than the machine."""
    vector_bits: int
    caches: dict[str, int]
    """Bytes per instance: L1d, L2, L3."""


def usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def host_cpu() -> HostCpu:
    flags = _cpuinfo("flags").split()
    bits = 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    return HostCpu(
        model=_cpuinfo("model name") or os.uname().machine,
        mcpu=_llvm_cpu(),
        cores=len(usable_cores()),
        vector_bits=bits,
        caches=_caches(),
    )


def _cpuinfo(key: str) -> str:
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    match = re.search(rf"^{re.escape(key)}\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _caches(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for index in sorted(root.glob("index*")):
        try:
            level = (index / "level").read_text().strip()
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction":
            scale = {"K": 1024, "M": 1024**2}.get(size[-1:], 1)
            sizes[f"L{level}" + ("d" if kind == "Data" else "")] = int(size.rstrip("KM")) * scale
    return sizes


def _llvm_cpu() -> str:
    tvm = import_tvm()
    return str(tvm.target.codegen.llvm_get_system_cpu())


def _expand(text: str, cores: int | None, device: str) -> dict[str, Any]:
    name = text.strip()
    if name in ("host", "llvm"):
        return {"kind": "llvm", "mcpu": _llvm_cpu(), "num-cores": cores or len(usable_cores())}
    if name == "cuda" or name.startswith("cuda:"):
        arch = CUDA_DEVICES[device] if device in CUDA_DEVICES else _arch_here()
        return {"kind": "cuda", "arch": arch, **_CUDA_LIMITS}
    if not name.startswith("{"):
        raise TargetError(
            "a target must be 'host', 'cuda', 'cuda:DEVICE' or a JSON object with a 'kind', "
            f"but got {name!r}{did_you_mean(name, ['host', 'cuda'])}"
        )
    try:
        spec = json.loads(name)
    except json.JSONDecodeError as error:
        raise TargetError(f"a target must be valid JSON, but got {name!r}: {error}") from None
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str):
        raise TargetError(f'a target object must have a "kind", but got {name!r}; e.g. "llvm"')
    return spec


def _cuda_device(text: str) -> str:
    """The name after `cuda:`, or what a plain `cuda` finds here; empty for other targets."""
    kind, _, named = text.partition(":")
    if kind != "cuda":
        return ""
    if not named:
        here = import_tvm().cuda(0)
        return _short_name(str(here.device_name)) if here.exist else ""
    key = named.lower().replace("-", "").replace("_", "")
    if key not in CUDA_DEVICES:
        raise TargetError(
            f"unknown CUDA device {named!r}{did_you_mean(key, CUDA_DEVICES)}; "
            f"known: {', '.join(CUDA_DEVICES)}; or give a JSON target with an 'arch'"
        )
    return key


def _short_name(driver_says: str) -> str:
    """`h200` of `NVIDIA H200`; empty for a GPU that the table lacks."""
    words = re.split(r"[^a-z0-9]+", driver_says.lower())
    runs = {"".join(words[i : i + n]) for i in range(len(words)) for n in (1, 2, 3)}
    return max(runs & CUDA_DEVICES.keys(), key=len, default="")


def _arch_here() -> str:
    here = import_tvm().cuda(0)
    if not here.exist:
        raise TargetError(
            "target 'cuda' needs a CUDA device on this machine, but none was found; "
            f"{lacks_cuda_runtime() or 'name the device to compile for, e.g. cuda:h200'}"
        )
    return "sm_" + str(here.compute_version).replace(".", "")


def _explain(spec: dict[str, Any], message: str) -> str:
    unknown = re.search(r"Unknown config option '([^']+)'\. Known options: (.*?)\. Target", message)
    if unknown:
        known = re.findall(r"'([^']+)'", unknown.group(2))
        return (
            f"target kind {spec['kind']!r} has no key {unknown.group(1)!r}"
            f"{did_you_mean(unknown.group(1), known)}; known: {', '.join(known)}"
        )
    if "is not defined" in message:
        hint = did_you_mean(str(spec["kind"]), ["llvm", "cuda", "rocm", "metal", "vulkan"])
        return f"this TVM build has no target kind {spec['kind']!r}{hint}"
    return f"TVM refused the target {canonical_json(spec)}: {message.splitlines()[0][:200]}"


def _check_llvm_cpu(tvm: Any, spec: dict[str, Any]) -> None:
    """LLVM only warns about an unknown CPU and then compiles for a generic one: refuse instead."""
    mcpu = spec.get("mcpu")
    if spec["kind"] != "llvm" or not mcpu or "mtriple" in spec:
        return
    codegen = tvm.target.codegen
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target(spec))]
    if known and mcpu not in known:
        raise TargetError(
            f"LLVM has no CPU named {mcpu!r}{did_you_mean(mcpu, known)}; "
            f"this host is {codegen.llvm_get_system_cpu()!r}"
        )


# LLVM's names of what a CPU does well or badly, and not of what it can do.
_HABITS = ("allow-light-", "false-deps-", "fast", "no-bypass-", "prefer-", "slow-", "tuning-")


def llvm_features(target: Target) -> set[str]:
    """What LLVM takes the target's CPU to be able to do."""
    tvm = import_tvm()
    listed = tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(target.to_dict()))
    return {str(name) for name in listed if not str(name).startswith(_HABITS)}
