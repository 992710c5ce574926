"""Attention as every language model here computes it: two batched matmuls around a softmax."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[n, s, h * d] -> [n, h, s, d]"""
    n, s, width = x.shape
    return x.reshape(n, s, heads, width // heads).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, heads merged again: [n, h, s, d] thrice -> [n, s, h * d]"""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # [n, h, s, s]
    if causal:
        s = q.shape[-2]
        mask = torch.full((s, s), -1e9, device=scores.device).triu(1)
        scores = scores + (mask if scores.dtype == mask.dtype else mask.to(scores.dtype))
    mixed = torch.softmax(scores, -1) @ v  # [n, h, s, d]
    return mixed.transpose(1, 2).flatten(2)
