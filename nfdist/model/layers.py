"""The two ends of a layer, each one pass over the rows, in chunks that stay in cache.

`project` turns a hidden state into the features of queries and keys; `settle` turns what was heard into the next
hidden state. Both draw or compute again in the backward pass what is cheaper than keeping.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from nfdist import seeds
from nfdist.attention.chunks import chunks, rows_last
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.sparse.adjacency import Adjacency

# Of sparse rows that are still in use: steps of a whole graph take the same ones, and turn them around once.
_ENTRIES = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Dropout:
    """Which mask: a function of the key, the channel and the node's id, so it can be drawn again instead of kept."""

    rate: float
    key: int
    node_ids: Tensor

    def mask(self, rows: slice, like: Tensor) -> tuple[Tensor, float]:
        return seeds.keep_mask(self.key, self.node_ids[rows], like.shape[1], self.rate)


class UndrawnLinear(nn.Linear):
    """A linear map whose weights are still to be drawn: torch's own start would use up the global random state."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


def embed(linear: nn.Linear, features: Tensor) -> Tensor:
    """A linear map of features [n, f], in the weights' own type even under autocast; rows may be sparse."""
    if features.layout != torch.sparse_csr:
        embedded: Tensor = linear(features)
        return embedded.to(linear.weight.dtype)
    embedded = sparse_product(features, linear.weight.t())
    return embedded if linear.bias is None else linear.bias + embedded


def sparse_product(rows: Tensor, table: Tensor) -> Tensor:
    """Sparse CSR rows [n, f] times a dense table [f, c]; only the table has a gradient, so none is of size [n, f]."""
    entries: Adjacency | None = _ENTRIES.get(rows)
    if entries is None:
        entries = _ENTRIES[rows] = Adjacency(rows.crow_indices(), rows.col_indices(), rows.shape[1])
    values, table = rows.values().to(table.dtype), table.contiguous()
    if rows.device.type != "cpu":
        return entries.sum_in(table, values)
    product: Tensor = _SparseProduct.apply(table, entries, values)
    return product


class _SparseProduct(torch.autograd.Function):
    """Its gradient is a product with the transposed rows, ten times faster on a CPU than that of torch."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, entries: Adjacency, values: Tensor) -> Tensor:
        ctx.entries, ctx.values = entries, values
        return entries.sum_in(table, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.entries.sum_out(grad.contiguous(), ctx.values), None, None


def project(hidden: Tensor, query: nn.Linear, key: nn.Linear, kernel: Kernel) -> tuple[Tensor, KeyFeatures]:
    """Features of queries and keys, each of a linear map of the hidden state [n, c] to [n, h x d]."""
    if kernel.epsilon > 0:
        return query_map(query, kernel)(hidden), key_features(hidden, key, kernel)
    queries, keys = _Project.apply(hidden, *_feature_map(query, kernel), key.weight, key.bias, kernel)
    return queries, KeyFeatures(keys, None)


def query_map(query: nn.Linear, kernel: Kernel) -> Callable[[Tensor], Tensor]:
    """The queries of `project` alone, [n, h, m], as a function of hidden states."""
    if kernel.epsilon > 0:
        return lambda hidden: kernel.query_features(_by_head(hidden, query.weight, query.bias, kernel.channels))
    weight, bias = _feature_map(query, kernel)
    return lambda hidden: _by_head(hidden, weight, bias, kernel.num_features)


def key_features(hidden: Tensor, key: nn.Linear, kernel: Kernel) -> KeyFeatures:
    """The keys of `project` alone."""
    return kernel.key_features(_by_head(hidden, key.weight, key.bias, kernel.channels))


def _feature_map(query: nn.Linear, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Weight [h x m, c] and bias of query features; without epsilon these are linear in the query, so one map does."""
    weight = torch.matmul(kernel.scaled, query.weight.view(-1, kernel.channels, query.in_features))
    return weight.flatten(0, 1), torch.mm(query.bias.view(-1, kernel.channels), kernel.scaled.t()).flatten()


def _by_head(hidden: Tensor, weight: Tensor, bias: Tensor, width: int) -> Tensor:
    """A linear map of hidden states, as [n, h, width] that lies in memory as [h, width, n]."""
    rows = torch.addmm(bias[:, None], weight, hidden.t())
    return rows.view(len(weight) // width, width, len(hidden)).movedim(-1, 0)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        query_weight: Tensor,
        query_bias: Tensor,
        key_weight: Tensor,
        key_bias: Tensor,
        kernel: Kernel,
    ) -> tuple[Tensor, Tensor]:
        heads = len(key_weight) // kernel.channels
        shape = (len(hidden), heads, kernel.num_features)
        queries, keys = (rows_last(*shape, like=hidden) for _ in range(2))
        for rows in chunks(len(hidden), 2 * len(key_weight), hidden.device):
            torch.addmm(query_bias, hidden[rows], query_weight.t(), out=queries[rows].flatten(1))
            kernel.key_logs(_by_head(hidden[rows], key_weight, key_bias, kernel.channels), out=keys[rows])
        ctx.save_for_backward(hidden, query_weight, key_weight, key_bias)
        ctx.kernel = kernel
        return queries, keys

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_queries: Tensor, grad_key_logs: Tensor) -> tuple[Tensor | None, ...]:
        hidden, query_weight, key_weight, key_bias = ctx.saved_tensors
        kernel: Kernel = ctx.kernel
        grad_hidden = torch.empty_like(hidden)
        grads = [torch.zeros_like(weight) for weight in (query_weight, query_weight[:, 0], key_weight, key_bias)]
        for rows in chunks(len(hidden), 2 * len(key_weight), hidden.device):
            keys = _by_head(hidden[rows], key_weight, key_bias, kernel.channels)
            grad_query = grad_queries[rows].flatten(1)
            grad_key = kernel.key_logs_backward(keys, grad_key_logs[rows]).flatten(1)
            torch.mm(grad_query, query_weight, out=grad_hidden[rows]).addmm_(grad_key, key_weight)
            for index, grad in ((0, grad_query), (2, grad_key)):
                grads[index].addmm_(grad.t(), hidden[rows])
                grads[index + 1] += grad.sum(0)
        return grad_hidden, *grads, None


@dataclass(frozen=True)
class Finish:
    """What makes a hidden state of a sum: a norm, an activation and dropout, each optional."""

    norm: nn.LayerNorm | None
    elu: bool
    dropout: Dropout | None


def settle(added: Sequence[Tensor], finish: Finish) -> Tensor:
    """dropout(elu(norm(Σ added))), [n, c]."""
    scale, shift = (None, None) if finish.norm is None else (finish.norm.weight, finish.norm.bias)
    out: Tensor = _Settle.apply(finish, scale, shift, *added)
    return out


class _Settle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, finish: Finish, scale: Tensor | None, shift: Tensor | None, *added: Tensor) -> Tensor:
        out = torch.empty_like(added[0])
        sums = added[0] if len(added) == 1 else torch.empty_like(out)
        statistics = out.new_empty(2, len(out), 1)
        for rows in chunks(len(out), 2 * out.shape[1], out.device):
            total = sums[rows]
            if len(added) > 1:
                torch.add(added[0][rows], added[1][rows], out=total)
            for tensor in added[2:]:
                total += tensor[rows]
            if scale is not None:
                total, mean, rstd = torch.native_layer_norm(total, list(scale.shape), scale, shift, 1e-5)
                statistics[0, rows], statistics[1, rows] = mean, rstd
            if finish.elu:
                _elu(total, out[rows])
            else:
                out[rows] = total
            if finish.dropout is not None:
                keep, factor = finish.dropout.mask(rows, out)
                out[rows].mul_(keep).mul_(factor)
        ctx.save_for_backward(scale, shift, None if scale is None else sums, statistics, out)
        ctx.finish, ctx.num_added = finish, len(added)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale, shift, sums, statistics, out = ctx.saved_tensors
        finish: Finish = ctx.finish
        grad_sums = torch.empty_like(out)
        grad_scale, grad_shift = (None, None) if scale is None else torch.zeros(2, *scale.shape).to(scale)
        for rows in chunks(len(out), 2 * out.shape[1], out.device):
            pull, settled = grad[rows], out[rows]
            if finish.dropout is not None:
                keep, factor = finish.dropout.mask(rows, out)
                pull, settled = (pull * keep).mul_(factor), settled / factor
            if finish.elu:  # the slope of ELU is 1, plus its output where that is negative
                pull = settled.clamp(max=0).add_(1).mul_(pull)
            if scale is not None:
                pull, by_scale, by_shift = torch.ops.aten.native_layer_norm_backward(
                    pull, sums[rows], scale.shape, *statistics[:, rows], scale, shift, [True, True, True]
                )
                grad_scale += by_scale
                grad_shift += by_shift
            grad_sums[rows] = pull
        return None, grad_scale, grad_shift, *[grad_sums] * ctx.num_added


def _elu(rows: Tensor, out: Tensor) -> None:
    """ELU of rows into out, max(x, exp(min(x, 0)) - 1); torch's own takes twice as long on a CPU."""
    torch.maximum(rows, torch.clamp(rows, max=0, out=out).exp_().sub_(1), out=out)
