"""A trained TLP as the search asks it: one task, one sketch, decisions `[n, d]`, scores `[n]`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch

from tensorese.features.context import context_of
from tensorese.features.matrix import Encoder, Template
from tensorese.models.batch import ProgramBatch, SketchTensors, stack_templates
from tensorese.models.tlp import TLP
from tensorese.records.nouns import Measurement, Sketch, Workload

CHUNK = 256
"""On a CPU: the live rows of so many programs stay in its second cache."""


def bf16_is_faster(device: torch.device) -> bool:
    """On CUDA, and on CPUs whose vector units take bf16 and whose matrix units are out of play.

    Some virtual machines show AMX units and kill the process that uses them; oneDNN then needs
    `ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16` in the environment before torch is imported.
    """
    if device.type == "cuda":
        return True
    vector = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    matrix = getattr(torch.cpu, "_is_amx_tile_supported", bool)()
    limited = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() == "AVX512_CORE_BF16"
    return bool(vector and (limited or not matrix))


def weights_hash(model: TLP) -> str:
    """8 hex digits of the weights: tells which model picked a program."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()[:8]


def encoded_values(
    template: Template, decisions: npt.ArrayLike, *, piece: int = 4096
) -> npt.NDArray[np.float32]:
    """`template.values`; many programs in pieces, on all cores: beside a GPU this is what waits."""
    given = np.asarray(decisions)
    if len(given) < 2 * piece:
        return template.values(given)
    pieces = [given[at : at + piece] for at in range(0, len(given), piece)]
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        return np.concatenate(list(threads.map(template.values, pieces)))


class TLPRanker:
    """Scores are comparable within a task only; higher is faster."""

    needs: str = "decisions"

    def __init__(
        self,
        model: TLP,
        *,
        device: str | torch.device = "cpu",
        bf16: bool | None = None,
        name: str = "",
    ) -> None:
        self.name = name or f"{model.kind}:{weights_hash(model)}"
        self.device = torch.device(device)
        self.bf16 = bf16_is_faster(self.device) if bf16 is None else bf16
        self.dtype = torch.bfloat16 if self.bf16 else torch.float32
        # Weights are kept in the working precision: autocast would convert them every call.
        self.model = model.to(self.device).to(self.dtype).eval()
        self.encoder = Encoder(model.config.spec)
        self._templates: dict[tuple[str, str], tuple[Template, SketchTensors]] = {}

    def _template(self, workload: Workload, sketch: Sketch) -> tuple[Template, SketchTensors]:
        key = (workload.id, sketch.id)
        if key not in self._templates:
            made = self.encoder.template(
                sketch.dialect, sketch.body, sketch.slots, context_of(workload)
            )
            stacked = stack_templates([made]).to(self.device).cast(self.dtype)
            self._templates[key] = (made, stacked)
        return self._templates[key]

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        head = self.model.head_index(platform)
        template, sketches = self._template(workload, sketch)
        exact = torch.from_numpy(encoded_values(template, decisions))
        values = exact.to(self.device, self.dtype)
        parts = []
        with torch.inference_mode():
            for piece in torch.split(values, CHUNK if self.device.type == "cpu" else 65536):
                nobody = torch.zeros(len(piece), dtype=torch.int64, device=self.device)
                batch = ProgramBatch(sketches=sketches, sketch_N=nobody, values_NV=piece)
                parts.append(self.model(batch)[:, head].float())
            if not parts:
                return np.zeros(0, dtype=np.float32)
            outputs_NH = torch.cat(parts)[:, None]
            scores = self.model.rank(outputs_NH, exact.to(self.device), (platform,))[:, 0]
        found: npt.NDArray[np.float32] = scores.cpu().numpy()
        return found

    def update(self, measurements: Sequence[Measurement]) -> None:
        """A trained model stays as it is during a search."""
