"""Learning a schedule's language without a label: some of a program's decisions are hidden, and the
rest of the program is to say what they are.

Every program counts, measured on this platform, on another or on none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.features.programs import DataError, Encoded, ProgramSet
from tensorese.models.network import ProgramBatch, as_batch, live_numbers
from tensorese.models.tlp import LiveTrunk, TLPMember, TLPNetwork


@dataclass(frozen=True, kw_only=True)
class HiddenConfig:
    steps: int = 1000
    programs: int = 1024
    """In a batch."""
    share: float = 0.3
    """Of a program's values that are hidden."""
    lr: float = 1e-3
    seed: int = 0


def learn_hidden(
    network: TLPNetwork,
    programs: ProgramSet,
    encoded: Encoded,
    tasks: Sequence[int],
    config: HiddenConfig,
    device: str | torch.device = "cpu",
) -> list[float]:
    """Teaches the trunks in place; heads stay as they are. The loss of every step comes back."""
    usable = np.flatnonzero(np.isin(programs.task, np.asarray(tasks)))
    if not len(usable) or network.config.style != "live" or network.config.spec.physics:
        raise DataError(
            f"hidden numbers are learnt by the default network from the language alone, but got "
            f"{len(usable)} programs, style {network.config.style}, physics "
            f"{network.config.spec.physics}; leave pretrain out"
        )
    network.to(device).train()
    batch = as_batch(encoded).to(device)
    columns = batch.sketches.live_source_SRC.shape[-1]
    trunks = [m.trunk for m in network.members if isinstance(m, TLPMember)]
    says = nn.ModuleList(nn.Linear(network.config.width, columns) for _ in trunks).to(device)
    parameters = [p for part in (*trunks, says) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, config.steps))
    rng = np.random.default_rng(config.seed)
    history = []
    for _ in range(config.steps):
        index = torch.from_numpy(rng.choice(usable, config.programs)).to(device)
        some = batch.select(index).compact()
        loss = torch.stack(
            [_loss(t, s, some, config.share) for t, s in zip(trunks, says, strict=True)]
        ).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        history.append(loss.detach())
    return torch.stack(history).tolist() if history else []


def _loss(trunk: nn.Module, says: nn.Module, batch: ProgramBatch, share: float) -> Tensor:
    """Of the numbers (logarithms) that hidden values stand for, where they stand."""
    assert isinstance(trunk, LiveTrunk)
    hidden_NV = torch.rand_like(batch.values_NV) < share
    shown = replace(batch, values_NV=batch.values_NV.masked_fill(hidden_NV, 0.0))
    states_NRD = trunk.states(shown)[1]
    source = batch.sketches.live_source_SRC[batch.sketch_N]  # [N, R, C], counted from 1
    asked = F.pad(hidden_NV, (1, 0)).gather(1, source.flatten(1)).view(source.shape)
    error = F.smooth_l1_loss(says(states_NRD), live_numbers(batch), reduction="none")
    return (error * asked).sum() / asked.sum().clamp(min=1)
