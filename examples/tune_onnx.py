"""From an ONNX file to a faster library.

python examples/tune_onnx.py [MODEL.onnx] [--minutes 5] [--out runs/onnx]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tensorese


def small_network(path: Path) -> Path:
    """Two convolutions and a dense layer, where no file is named."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    weights = [weight("w1", 32, 3, 3, 3), weight("w2", 64, 32, 3, 3), weight("w3", 64, 10)]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w3"], ["logits"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "small", [image], [logits], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", help="A .onnx file; a small one is made if absent.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path("runs/onnx"))
    options = parser.parse_args()
    model = options.model or small_network(options.out.with_suffix(".onnx"))

    run = tensorese.tune(str(model), minutes=options.minutes, out=options.out)

    times = {name: row["latency"] * 1e3 for name, row in run.certificate["latency"].items()}
    for name, ms in sorted(times.items(), key=lambda item: item[1]):
        print(f"{name:12} {ms:8.3f} ms")
    print(f"open {run.path / 'report.html'}")


if __name__ == "__main__":
    main()
