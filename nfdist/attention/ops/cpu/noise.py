"""Noise and dropout masks by node id, several of them from one 64-bit hash: docs/numerics.md#noise."""

import torch
from torch import Tensor

from nfdist.seeds import hash_ids


def gumbel(key: int, node_ids: Tensor, streams: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """See `definition.gumbel`; it lies in memory as [streams, n], as attention wants it."""
    bits = hash_ids(_stream_keys(key, -(-streams // 2), node_ids.device)[:, None], node_ids[None, :])
    halves = (bits.view(torch.int32) & 0x7FFFFFFF).unflatten(1, (-1, 2)).transpose(1, 2)  # the lower half is the first
    tail = torch.empty(halves.shape, dtype=dtype, device=node_ids.device).copy_(halves)
    return gumbel_of(tail).flatten(0, 1)[:streams].t()


def gumbel_of(halves: Tensor) -> Tensor:
    """The noise of integers below 2^31, in their place: floats already."""
    halves.add_(0.5).mul_(-(2.0**-31)).clamp_(min=torch.finfo(halves.dtype).eps / 2 - 1)
    return halves.log1p_().neg_().log_().neg_()


def keep_mask(key: int, node_ids: Tensor, channels: int, drop: float) -> tuple[Tensor, float]:
    """See `definition.keep_mask`."""
    dropped, streams = round(drop * 65536), -(-channels // 4)
    bits = hash_ids(_stream_keys(key, streams, node_ids.device)[None, :], node_ids[:, None])
    quarters = bits.flatten().view(torch.int16).view(len(node_ids), 4 * streams)
    return quarters[:, :channels] >= dropped - 32768, 65536 / (65536 - dropped)


def _stream_keys(key: int, streams: int, device: torch.device) -> Tensor:
    return hash_ids(torch.tensor(key, device=device), torch.arange(streams, device=device))
