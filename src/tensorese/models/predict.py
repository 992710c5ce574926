"""Encoded programs to scores, any sketches mixed."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorese.features.programs import Encoded
from tensorese.models.batch import ProgramBatch, stack_templates
from tensorese.models.tlp import TLP


def as_batch(encoded: Encoded) -> ProgramBatch:
    return ProgramBatch(
        sketches=stack_templates(encoded.templates),
        sketch_N=torch.from_numpy(encoded.pair),
        values_NV=torch.from_numpy(encoded.values),
    )


def predict(model: TLP, batch: ProgramBatch, index: Tensor, *, bf16: bool = False) -> Tensor:
    """Scores `[len(index), platforms]` in float32."""
    outputs = predict_outputs(model, batch, index, bf16=bf16)
    return model.rank(outputs, batch.values_NV[index], model.platforms)


def predict_outputs(
    model: TLP, batch: ProgramBatch, index: Tensor, *, chunk: int = 8192, bf16: bool = False
) -> Tensor:
    """What the model's networks say, `[len(index), platforms, 2 * members]` in float32."""
    model.eval()
    device = batch.sketch_N.device
    parts = []
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for piece in torch.split(index, chunk):
            if len(piece):
                parts.append(model(batch.select(piece).compact()).float())
    if not parts:
        return torch.zeros(0, len(model.platforms), 2 * len(model.members), device=device)
    return torch.cat(parts)
