"""Encoded programs to scores, any sketches mixed."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorese.models.batch import ProgramBatch, stack_templates
from tensorese.models.programs import Encoded
from tensorese.models.tlp import TLP


def as_batch(encoded: Encoded) -> ProgramBatch:
    return ProgramBatch(
        sketches=stack_templates(encoded.templates),
        sketch_N=torch.from_numpy(encoded.pair),
        values_NV=torch.from_numpy(encoded.values),
    )


def predict(
    model: TLP, batch: ProgramBatch, index: Tensor, *, chunk: int = 8192, bf16: bool = False
) -> Tensor:
    """Scores `[len(index), platforms]` in float32."""
    model.eval()
    device = batch.sketch_N.device
    parts = []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for piece in torch.split(index, chunk):
            parts.append(model.score(model(batch.select(piece).compact()).float()))
    return torch.cat(parts) if parts else torch.zeros(0, 1)
