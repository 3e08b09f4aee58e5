"""What queries get from a summary: a softmax over random features, applied to each feature's mean value.

    out_u = mean over draws k of  Σ_m softmax_m(log phi(q_u)_m + log_mass[k, m])  mean[k, m, :]

This equals the ratio of sums of the definition: the feature's mass moves into the exponent, and the query's own
normalizer is the softmax's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nfdist.attention import ops
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.ops.chunks import chunks
from nfdist.attention.summary import KeySummary, summarize
from nfdist.errors import ConfigError


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    kernel: Kernel,
    noise: Tensor | None = None,
) -> Tensor:
    """Every query attends to every key, a head at a time: [n, h, c] from queries and keys [., h, d], values [., h, c].

    Noise is [., h, k], one Gumbel(0, 1) variable for every key, head and draw; without it there is one draw of zeros.
    """
    shapes = [list(tensor.shape) for tensor in (queries, keys, values)]
    if any(len(shape) != 3 for shape in shapes) or shapes[0][1:] != shapes[1][1:] or shapes[1][:2] != shapes[2][:2]:
        raise ConfigError(
            f"queries, keys and values must be [nodes, heads, channels], got {', '.join(map(str, shapes))}"
        )
    if noise is not None and (noise.ndim != 3 or noise.shape[:2] != keys.shape[:2] or noise.shape[2] == 0):
        raise ConfigError(
            f"noise must be [nodes, heads, draws] for keys of {list(keys.shape[:2])}, got {list(noise.shape)}"
        )
    heads = []
    for head in range(queries.shape[1]):
        only = slice(head, head + 1)
        head_noise = None if noise is None else noise[:, only]
        features = kernel.key_features(keys[:, only])
        summary = summarize(features, values[:, head], kernel, head_noise)
        attended = attend_to(kernel.query_features(queries[:, only]), summary, kernel)
        heads.append(attended.outputs)
    return torch.stack(heads, 1)


class Attended(NamedTuple):
    """What queries got, [n, c], added up over the heads, and the log of each one's noise-free normalizer, [n, h]."""

    outputs: Tensor
    log_normalizers: Tensor


def attend_to(features: Tensor, summary: KeySummary, kernel: Kernel) -> Attended:
    """What queries, by their features [n, h, m], get from the keys behind a summary (zeros if it is empty).

    Differentiable in the features and the summary.
    """
    met = summary.for_queries(kernel)
    return Attended(*ops.attend(features, met.log_mass, met.mean, met.noise_free_log_mass))


def key_logs_met(keys: KeyFeatures, summary: KeySummary, kernel: Kernel) -> Tensor:
    """The keys' log features [n, h, m] as queries meet them: with epsilon, shifted by the peak of all keys in scope."""
    return keys.logs if summary.peak is None else kernel.add_epsilon(keys.logs, summary.peak[:, None])


@torch.no_grad()
def pair_log_weights(
    queries: Tensor,
    key_logs: Tensor,
    log_normalizers: Tensor,
    targets: Tensor,
    sources: Tensor,
    chunk_rows: int | None = None,
) -> Tensor:
    """log pi [e, h] of given pairs of a query and a key, by their features [n, h, m], a few pairs at a time."""
    log_weights = queries.new_empty(len(sources), queries.shape[1])
    for rows in chunks(len(sources), queries.shape[1] * queries.shape[2], queries.device, chunk_rows):
        log_products = queries.index_select(0, targets[rows]).add_(key_logs.index_select(0, sources[rows]))
        log_weights[rows] = log_products.logsumexp(2)
    return log_weights.sub_(log_normalizers.index_select(0, targets))
