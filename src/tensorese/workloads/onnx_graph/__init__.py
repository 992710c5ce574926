"""An ONNX file made plain for TVM's front end: every shape known, nothing left to decide."""

from __future__ import annotations

from tensorese.workloads.onnx_graph.exact import sigmoids_written_out
from tensorese.workloads.onnx_graph.plain import Plain, plain
from tensorese.workloads.onnx_graph.reading import read
from tensorese.workloads.onnx_graph.shapes import Fixed, Settled, settle

__all__ = ["Fixed", "Plain", "Settled", "plain", "read", "settle", "sigmoids_written_out"]
