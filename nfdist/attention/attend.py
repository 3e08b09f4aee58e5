"""What queries get from a summary: a softmax over random features, applied to each feature's mean value.

    out_u = mean over draws k of  Σ_m softmax_m(log phi(q_u)_m + log_mass[k, m])  mean[k, m, :]

This equals the ratio of sums of the definition: the feature's mass moves into the exponent, and the query's own
normalizer is the softmax's.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.attention.chunks import Scratch, chunks, outer, peaks_of
from nfdist.attention.kernel import Kernel
from nfdist.attention.summary import KeySummary, smallest_factor, summarize
from nfdist.errors import ConfigError


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    kernel: Kernel,
    noise: Tensor | None = None,
    *,
    chunk_rows: int | None = None,
) -> Tensor:
    """Every query attends to every key, a head at a time: [n, h, c] from queries and keys [., h, d], values [., h, c].

    Noise is [., h, k], one Gumbel(0, 1) variable for every key, head and draw; without it there is one draw of zeros.
    """
    if (
        queries.ndim != 3
        or queries.shape[1:] != keys.shape[1:]
        or keys.shape[:2] != values.shape[:2]
        or values.ndim != 3
    ):
        shapes = [list(tensor.shape) for tensor in (queries, keys, values)]
        raise ConfigError(
            f"queries, keys and values must be [nodes, heads, channels], got {', '.join(map(str, shapes))}"
        )
    heads = []
    for head in range(queries.shape[1]):
        only = slice(head, head + 1)
        head_noise = None if noise is None else noise[:, only]
        features = kernel.key_features(keys[:, only])
        summary = summarize(features, values[:, head], kernel, head_noise, chunk_rows=chunk_rows)
        attended = attend_to(kernel.query_features(queries[:, only]), summary, kernel, chunk_rows=chunk_rows)
        heads.append(attended.outputs)
    return torch.stack(heads, 1)


@dataclass(frozen=True)
class Attended:
    """What queries got, [n, c], added up over the heads, and the log of each one's noise-free normalizer, [n, h]."""

    outputs: Tensor
    log_normalizers: Tensor


def attend_to(features: Tensor, summary: KeySummary, kernel: Kernel, *, chunk_rows: int | None = None) -> Attended:
    """What queries, by their features [n, h, m], get from the keys behind a summary (zeros if it is empty).

    Differentiable in the features and the summary; neither pass holds anything of size [n, k, m].
    """
    summary = summary.for_queries(kernel)
    log_mass, mean, quiet = summary.log_mass, summary.mean, summary.quiet_log_mass[:, None]
    if features.ndim != 3 or features.shape[1:] != (log_mass.shape[0], log_mass.shape[2]):
        raise ConfigError(
            f"query features must be [nodes, {log_mass.shape[0]}, {log_mass.shape[2]}] for this summary, "
            f"got {list(features.shape)}"
        )
    tilts = _tilt(log_mass, quiet)
    if tilts[2].numel() == 0 or float(tilts[2].min()) > smallest_factor(mean.dtype):
        return Attended(*_AttendTo.apply(features, log_mass, mean, quiet, tilts, chunk_rows))
    # The draws are too far apart to share an exponential: one at a time, each is exact at any scale.
    alone = [
        _AttendTo.apply(features, one, one_mean, one, _tilt(one, one), chunk_rows)[0]
        for one, one_mean in zip(log_mass.split(1, 1), mean.split(1, 1), strict=True)
    ]
    no_values = mean[:, :1, :, :0]
    log_normalizers = _AttendTo.apply(features, quiet, no_values, quiet, _tilt(quiet, quiet), chunk_rows)[1]
    return Attended(torch.stack(alone).mean(0), log_normalizers)


@torch.no_grad()
def _tilt(log_mass: Tensor, quiet: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log masses [h, k + 1, m] of all draws and of none, as top [h, m] + level [h, k + 1, 1] + log(tilt).

    A constant of a draw, its level, cancels in its softmax; without it draws differ little, and a tilt is at most 1.
    """
    every = torch.cat([log_mass, quiet], 1)
    level = every.amax(2, keepdim=True)
    relative = every - level
    top = relative.amax(1)
    return top, level, relative.sub_(top[:, None]).exp_()


class _AttendTo(torch.autograd.Function):
    """The outputs, and the log normalizers without noise.

    All draws share one exponential of the query, exp(log phi(q)_m + top_m - its peak), and weight it by their tilt.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        log_mass: Tensor,
        mean: Tensor,
        quiet: Tensor,
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
