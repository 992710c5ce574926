"""Whether a library can run on this machine; in doubt it is not tried, for it would crash."""

from __future__ import annotations

from tensorese.targets import Target, llvm_features
from tensorese.tvm_env import import_tvm


def why_not_here(target: Target) -> str:
    """Empty where it can; else the reason."""
    if not target.is_cpu:
        exists = import_tvm().device(target.kind, 0).exist
        return "" if exists else f"no {target.kind} device is on this machine"
    host = Target.parse("host")
    if target.mcpu == host.mcpu and not target.attributes:
        return ""
    triple = dict(target.attributes).get("mtriple")
    if triple:
        return f"it is for {triple}, and only programs without a triple are known to run here"
    missing = sorted(llvm_features(target) - llvm_features(host))
    if not missing:
        return ""
    shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
    return f"this machine, a {host.mcpu}, lacks {shown} of {target.mcpu or 'the target'}"
