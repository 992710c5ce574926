"""The ten networks, where their runs lie, and what is built of a run besides its library."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import environment

NETWORKS = (
    *("resnet18", "mobilenet_v2", "bert_tiny", "deit_tiny", "efficientnet_b0"),
    *("light_resnet50", "light_squeezenet", "light_inception_v1", "light_shufflenet"),
    "light_densenet121",
)
"""Of the zoo; and ONNX files of a public wheel."""
UNPACKED = "unpacked.so"
INPUTS = "inputs.npz"
KERNELS = "kernels.json"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One network tuned once."""

    work: Path
    network: str
    minutes: float
    seed: int = 0
    prepack: bool = True
    cache: str = "rotated"
    winograd: bool = True

    @property
    def run(self) -> Path:
        ending = "" if self.prepack else "-unpacked"
        ending += "" if self.cache == "rotated" else f"-{self.cache}"
        ending += "" if self.winograd else "-direct"
        return self.work / f"{self.network}-{self.minutes:g}min-{self.seed}{ending}"

    @property
    def unpacked(self) -> Place:
        """The same network tuned with its weights left in their own order."""
        return replace(self, prepack=False)

    @property
    def hot(self) -> Place:
        """The same network tuned with weights in the near caches: what that costs end to end."""
        return replace(self, cache="hot")

    @property
    def direct(self) -> Place:
        """The same network tuned without Winograd's algorithm."""
        return replace(self, winograd=False)

    @property
    def is_built(self) -> bool:
        return all((self.run / name).exists() for name in ("library.so", UNPACKED, KERNELS))

    @property
    def model(self) -> str:
        if not self.network.startswith("light_"):
            return f"zoo:{self.network}"
        path = self.work / f"{self.network}.onnx"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with_random_weights(self.network, path)
        return os.path.relpath(path)

    def tune(self) -> None:
        """Goes on where it stopped; a run that is finished and compiled is left as it is."""
        if (self.run / "certificate.json").exists() and (self.run / "library.so").exists():
            return
        command = [sys.executable, "-m", "tensorese", "tune", self.model]
        command += ["--minutes", f"{self.minutes:g}", "--seed", str(self.seed)]
        command += ["--out", str(self.run), *([] if self.prepack else ["--no-prepack"])]
        command += ["--cache", self.cache, *([] if self.winograd else ["--no-winograd"])]
        print("+", " ".join(command), flush=True)
        subprocess.run(command, check=True, env=environment())

    def build(self) -> None:
        """The same programs on weights as they came, the input, and whose kernel is whose."""
        if not self.prepack or not self.winograd or self.cache != "rotated" or self.is_built:
            return
        deploy: Any = importlib.import_module("tensorese.deploy.prepare")
        build: Any = importlib.import_module("tensorese.deploy.build")
        folder: Any = importlib.import_module("tensorese.deploy.folder")
        from tensorese.workloads import tasks_of

        tuned = folder.read_run(self.run)
        built = deploy.prepare_run(tuned, lambda _: None, prepack=False)
        build.build_library(built.applied.module, tuned.target, self.run / UNPACKED)
        named: dict[str, Any] = {f"in{i}": a for i, a in enumerate(built.network.example(0))}
        np.savez(self.run / INPUTS, **named)
        kernels: dict[str, Any] = {"tuned": built.applied.tuned, "untuned": built.applied.untuned}
        kernels["flops"] = sum(t.flops * t.weight for t in tasks_of(built.network, tuned.target))
        (self.run / KERNELS).write_text(json.dumps(kernels))


def with_random_weights(network: str, path: Path) -> None:
    """The graph as it is, each weight filled from a seed so that activations keep their size."""
    import onnx

    stored = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(stored / f"{network}.onnx"))
    random = np.random.default_rng(0)
    shapes = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(extent) for extent in shapes[node.input[0]]]
        array = random.standard_normal(shape).astype(np.float32)
        if len(shape) > 1:
            array *= np.sqrt(2 / np.prod(shape[1:]))
        else:
            array = np.abs(array) * np.float32(0.1) + np.float32(0.5)  # scales and variances: > 0
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    unread = [one for one in model.graph.initializer if one.name not in read]
    for one in unread:
        model.graph.initializer.remove(one)
    names = {one.name for one in unread}
    for one in [one for one in model.graph.input if one.name in names]:
        model.graph.input.remove(one)
    onnx.save(model, str(path))
