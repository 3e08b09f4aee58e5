"""Attend, in chunks: a softmax over random features that all noise draws share (docs/numerics.md#tilts)."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.ops.chunks import Scratch, chunks, outer, peaks_of, smallest_factor


def attend(
    features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor, *, chunk_rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """See `definition.attend`; neither pass holds anything of size [n, k, m]."""
    noise_free = noise_free[:, None]
    tilts = _tilt(log_mass, noise_free)
    if tilts[2].numel() == 0 or float(tilts[2].min()) > smallest_factor(mean.dtype):
        outputs, log_normalizers = _Attend.apply(features, log_mass, mean, noise_free, tilts, chunk_rows)
        return outputs, log_normalizers
    # The draws are too far apart to share an exponential: one at a time, each is exact at any scale.
    alone = [
        _Attend.apply(features, one, one_mean, one, _tilt(one, one), chunk_rows)[0]
        for one, one_mean in zip(log_mass.split(1, 1), mean.split(1, 1), strict=True)
    ]
    no_values = mean[:, :1, :, :0]
    tilts = _tilt(noise_free, noise_free)
    return torch.stack(alone).mean(0), _Attend.apply(features, noise_free, no_values, noise_free, tilts, chunk_rows)[1]


@torch.no_grad()
def _tilt(log_mass: Tensor, noise_free: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log masses [h, k + 1, m] of all draws and of none, as top [h, m] + level [h, k + 1, 1] + log(tilt).

    A constant of a draw, its level, cancels in its softmax; without it draws differ little, and a tilt is at most 1.
    """
    every = torch.cat([log_mass, noise_free], 1)
    level = every.amax(2, keepdim=True)
    relative = every - level
    top = relative.amax(1)
    return top, level, relative.sub_(top[:, None]).exp_()


class _Attend(torch.autograd.Function):
    """The outputs, and the log normalizers without noise.

    All draws share one exponential of the query, exp(log phi(q)_m + top_m - its peak), and weight it by their tilt.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        log_mass: Tensor,
        mean: Tensor,
        noise_free: Tensor,
        tilts: tuple[Tensor, Tensor, Tensor],
        chunk_rows: int | None,
    ) -> tuple[Tensor, Tensor]:
        features = features.movedim(0, -1)
        (heads, draws, num_features, channels), num_nodes = mean.shape, features.shape[2]
        top, level, tilt = tilts
        tilted = (mean * tilt[:, :-1, :, None]).flatten(0, 2).div_(draws)
        outputs = features.new_empty(num_nodes, channels)
        peaks, inverses = (features.new_empty(heads, width, num_nodes) for width in (1, draws + 1))
        every, scratch = torch.empty_like(features), Scratch.of(features)
        for rows in chunks(num_nodes, heads * draws * num_features, features.device, chunk_rows):
            shared = torch.add(features[..., rows], top[..., None], out=every[..., rows])
            peaks[:, 0, rows] = peaks_of(shared)
            shared.sub_(peaks[..., rows]).exp_()
            inverses[..., rows] = torch.bmm(tilt, shared).reciprocal_()
            torch.mm(outer(shared, inverses[:, :-1, rows], scratch).t(), tilted, out=outputs[rows])
        ctx.save_for_backward(every, inverses, tilt, tilted)
        ctx.chunk_rows = chunk_rows
        return outputs, (peaks[:, 0] + level[:, -1]).sub_(inverses[:, -1].log()).t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_log_normalizers: Tensor) -> tuple[Tensor | None, ...]:
        every, inverses, tilt, tilted = ctx.saved_tensors
        heads, draws, num_features = tilt.shape[0], tilt.shape[1] - 1, tilt.shape[2]
        grad_features = torch.empty_like(every)
        shares, grad_tilted = torch.zeros_like(tilt), torch.zeros_like(tilted)
        scratch = Scratch.of(every)
        for rows in chunks(len(grad), heads * draws * num_features, every.device, ctx.chunk_rows):
            shared = every[..., rows]
            weights = outer(shared, inverses[:, :-1, rows], scratch)
            grad_tilted.addmm_(weights, grad[rows])
            pull = torch.mm(tilted, grad[rows].t(), out=scratch.take("pull", *weights.shape)).mul_(weights)
            pull = pull.view(heads, draws, *shared.shape[1:])
            # A softmax's gradient is its pull less its own share of the whole pull; the share is shared x tilt / sum.
            # A log normalizer's gradient is its share.
            whole = torch.cat([pull.sum(2), -grad_log_normalizers[rows].t()[:, None]], 1).mul_(inverses[..., rows])
            shares.baddbmm_(whole, shared.mT)
            total = torch.bmm(tilt.mT, whole, out=scratch.take("total", *shared.shape))
            torch.addcmul(pull.sum(1), total, shared, value=-1, out=grad_features[..., rows])
        shares *= tilt
        pulled = (tilted * grad_tilted).sum(1).view(heads, draws, num_features)
        grad_mean = (grad_tilted.view(heads, draws, num_features, -1) * tilt[:, :-1, :, None]).div_(draws)
        return grad_features.movedim(-1, 0), pulled.sub_(shares[:, :-1]), grad_mean, shares[:, -1:].neg(), None, None
