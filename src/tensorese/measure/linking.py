"""Objects to shared libraries: by this machine's linker, or by the target's cross compiler."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from tensorese.measure.faults import MachineFault


def link(library: Any, path: str, target: str) -> None:
    """A shared object of a compiled module for a target, which is JSON."""
    link_objects = functools.partial(_link_objects, linker_for(target))
    if library.imports:  # device code travels inside the host library
        library.export_library(path, fcompile=link_objects)
        return
    library.write_to_file(path + ".o", "o")
    try:
        link_objects(path, [path + ".o"])
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path + ".o")


def foreign_triple(target: str) -> str:
    """Empty where the target is of this machine's architecture."""
    triple = str(json.loads(target).get("mtriple", ""))
    return "" if triple.partition("-")[0] == os.uname().machine else triple


def linker_for(target: str) -> list[str]:
    """A program that links for the target, and what it is told after the objects."""
    triple = foreign_triple(target)
    if not triple:
        # Without the gcc driver: 5 ms through ld instead of 87 ms.
        linker = shutil.which("ld") or shutil.which("gcc")
        if linker is None:
            raise MachineFault(
                "linking needs ld or gcc, but PATH names neither; install binutils or gcc"
            )
        return [linker]
    debian = triple.replace("-unknown-", "-")
    linker = shutil.which(f"{debian}-gcc")
    if linker is None:
        raise MachineFault(
            f"linking for {triple} needs {debian}-gcc, but PATH does not name it; "
            f"apt-get install gcc-{debian.replace('_', '-')}"
        )
    # The device has a C library; what the compiler itself calls travels along.
    return [linker, "-nostdlib", "-lgcc"]


def _link_objects(linker: Sequence[str], output: str, objects: Sequence[str], **_: Any) -> None:
    program, *last = linker
    command = [program, "-shared", "-o", output, *objects, *last]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        raise MachineFault(f"{program} was killed by signal {-done.returncode}; is memory short?")
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr.strip()[:500]}")
