"""What every operation computes, written to be read: any device, any size that fits, gradients by autograd.

Shapes: n nodes, e edges, h heads, d channels of a head, c of a value, m random features, k noise draws. Features are
logarithms throughout, so that nothing overflows.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist.seeds import hash_ids
from nfdist.sparse.adjacency import Adjacency

NORM_EPSILON = 1e-5  # as torch's LayerNorm has it


def key_logs(keys: Tensor, directions: Tensor, half_square: float) -> Tensor:
    """log phi(x)_i = w_i.x - |x|^2 / 2 - log(m) / 2, [n, h, m] of keys [n, h, d].

    The directions w [m, d] have the scale of keys in them; `half_square` times |key|^2 is |x|^2 / 2.
    """
    projected = torch.einsum("nhd,md->nhm", keys, directions)
    return projected - half_square * keys.square().sum(2, keepdim=True) - math.log(len(directions)) / 2


def project(
    hidden: Tensor,
    query_weight: Tensor,
    query_bias: Tensor,
    key_weight: Tensor,
    key_bias: Tensor,
    directions: Tensor,
    half_square: float,
) -> tuple[Tensor, Tensor]:
    """Features of queries and log features of keys, [n, h, m] each, of hidden states [n, c].

    A query's features are linear in it (a constant of a query cancels), so their map [h x m, c] has the directions in
    it; that of keys is [h x d, c].
    """
    queries = (hidden @ query_weight.t() + query_bias).view(len(hidden), -1, len(directions))
    keys = (hidden @ key_weight.t() + key_bias).view(len(hidden), -1, directions.shape[1])
    return queries, key_logs(keys, directions, half_square)


def summarize(logs: Tensor, values: Tensor, noise: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log masses [h, k, m] and mean values [h, k, m, c] under noise [n, h, k], and log masses [h, m] without noise.

    `logs` [n, h, m] are the keys' log features, `values` [n, c] are shared by the heads. No noise is one draw of zeros.
    """
    noise = logs.new_zeros(*logs.shape[:2], 1) if noise is None else noise
    if len(logs) == 0:
        lowest = logs.new_full((*noise.shape[1:], logs.shape[2]), torch.finfo(logs.dtype).min)
        return lowest, values.new_zeros(*lowest.shape, values.shape[1]), lowest[:, 0]
    log_weights = logs[:, :, None] + noise[..., None] / temperature
    mean = torch.einsum("nhkm,nc->hkmc", log_weights.softmax(0), values)
    return log_weights.logsumexp(0), mean, logs.logsumexp(0)


def attend(features: Tensor, log_mass: Tensor, mean: Tensor, noise_free: Tensor) -> tuple[Tensor, Tensor]:
    """What queries get, [n, c], added up over the heads, and the log of each one's noise-free normalizer, [n, h].

    out_u = Σ_h mean over k of Σ_m softmax_m(features[u, h, m] + log_mass[h, k, m]) mean[h, k, m]
    """
    weights = (features[:, :, None] + log_mass).softmax(3)
    outputs = torch.einsum("nhkm,hkmc->nc", weights, mean) / log_mass.shape[1]
    return outputs, (features + noise_free).logsumexp(2)


def edge_log_likelihood(
    queries: Tensor, key_logs: Tensor, log_normalizers: Tensor, graph: Adjacency, target_weights: Tensor
) -> Tensor:
    """Σ over edges and heads of target_weights[t] log pi[e, h]: a scalar of queries [n, h, m], keys [sources, h, m].

    log pi[s -> t] = log Σ_m exp(queries[t, m] + key_logs[s, m]) - log_normalizers[t]
    """
    targets, sources = graph.targets.long(), graph.sources.long()
    log_products = (queries[targets] + key_logs[sources]).logsumexp(2)
    return (target_weights[targets, None] * (log_products - log_normalizers[targets])).sum()


def gumbel(key: int, node_ids: Tensor, streams: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Gumbel(0, 1) noise [n, streams]: entry (i, s) depends on the key, s and node_ids[i] alone.

    One 64-bit hash serves two streams. The fraction has fine steps near 0, where the largest noise comes from.
    """
    columns = []
    for stream in range(streams):
        bits = hash_ids(_stream_key(key, stream // 2, node_ids), node_ids)
        half = (bits >> 32 if stream % 2 else bits) & 0x7FFFFFFF
        tail = ((half.to(dtype) + 0.5) * 2.0**-31).clamp(max=1 - torch.finfo(dtype).eps / 2)
        columns.append(-(-(-tail).log1p()).log())
    return torch.stack(columns, 1)


def keep_mask(key: int, node_ids: Tensor, channels: int, drop: float) -> tuple[Tensor, float]:
    """A boolean dropout mask [n, channels] by node id, and the factor that keeps the mean.

    One 64-bit hash serves four channels, so `drop` is rounded to a multiple of 2^-16.
    """
    dropped = round(drop * 65536)
    columns = []
    for channel in range(channels):
        bits = hash_ids(_stream_key(key, channel // 4, node_ids), node_ids) >> (16 * (channel % 4))
        columns.append(((bits + 32768) & 0xFFFF) >= dropped)
    return torch.stack(columns, 1), 65536 / (65536 - dropped)


def add_norm(
    *terms: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    elu: bool = False,
    dropout: tuple[int, Tensor, float] | None = None,
) -> Tensor:
    """dropout(elu(norm(Σ terms))), [n, c]; dropout is a key, node ids and a rate, as `keep_mask` has them.

    Where no gradient is wanted, an implementation may use up the first term by the sum.
    """
    made = torch.stack(terms).sum(0)
    if scale is not None:
        made = F.layer_norm(made, scale.shape, scale, shift, NORM_EPSILON)
    made = F.elu(made) if elu else made
    if dropout is None:
        return made
    key, node_ids, drop = dropout
    keep, factor = keep_mask(key, node_ids, made.shape[1], drop)
    return made * keep * factor


def _stream_key(key: int, stream: int, like: Tensor) -> Tensor:
    return hash_ids(like.new_tensor(key), like.new_tensor([stream]))
