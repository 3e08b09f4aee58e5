"""The baselines written to be read, with dense matrices; the tests' oracle."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfdist import seeds
from nfdist.attention import ops
from nfdist.model.baselines.baseline import Baseline, Convolution
from nfdist.model.baselines.batch_norm import BatchNorm
from nfdist.model.baselines.gat import GAT
from nfdist.model.baselines.gcn import GCN, SGC, DropEdge, JKNet
from nfdist.model.baselines.glcn import GLCN
from nfdist.model.baselines.mixhop import MixHop
from nfdist.model.baselines.mlp import MLP
from nfdist.model.baselines.vgcn import VGCN
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency
from tests.model.reference import adjacency_matrix, thinned, weighted


def dense_logits(model: Baseline, features: Tensor, graph: Adjacency, draw: Draw) -> Tensor:
    """The logits of any baseline that has a definition here."""
    pattern = adjacency_matrix(graph, features.dtype)
    logits: Tensor = globals()[model.model.name](model, thinned(model, features, draw), pattern, draw)
    return logits


def mlp(model: MLP, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    hidden = model.input(hidden)
    for index, linear in enumerate(model.linears):
        hidden = linear(finish(model, hidden, index, draw))
    return hidden


def gcn(model: GCN, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    return convolved(model, hidden, weighted(pattern, True), draw)[-1]


def dropedge(model: DropEdge, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    if model.training:
        key, ids = seeds.derive(draw.seed, "edges", draw.step), draw.node_ids
        for target, source in (pattern - torch.eye(len(ids), dtype=pattern.dtype)).clamp(min=0).nonzero().tolist():
            ends = ids[source : source + 1], ids[target : target + 1]
            pattern[target, source] = seeds.keep_pairs(key, *ends, model.model.dropedge.edge_dropout)
    return gcn(model, hidden, pattern, draw)


def sgc(model: SGC, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    smoothed = torch.linalg.matrix_power(weighted(pattern, True), model.model.layers) @ hidden
    return F.linear(smoothed, model.input.weight, convolutions_of(model)[-1].bias)


def jknet(model: JKNet, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    *states, last = convolved(model, hidden, weighted(pattern, True), draw)
    states.append(finish(model, last, len(states), draw))
    joined = torch.cat(states, 1) if model.model.jumping_knowledge else torch.stack(states).amax(0)
    logits: Tensor = model.output(joined)
    return logits


def convolved(model: GCN, hidden: Tensor, relation: Tensor, draw: Draw) -> list[Tensor]:
    """The finished states of a stack of convolutions, the last of them unfinished."""
    states: list[Tensor] = []
    for index, (linear, layer) in enumerate(zip(linears_of(model), convolutions_of(model), strict=True)):
        assert layer.bias is not None
        hidden = relation @ hidden @ linear.weight.t() + layer.bias
        if index < len(model.linears):
            hidden = finish(model, hidden, index, draw)
        states.append(hidden)
    return states


def mixhop(model: MixHop, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    relation = weighted(pattern, True)
    for index, (linear, bias) in enumerate(zip(linears_of(model), model.biases, strict=True)):
        powers = [torch.linalg.matrix_power(relation, power) for power in range(3)]
        blocks = linear.weight.chunk(3)
        mixed = [power @ hidden @ block.t() for power, block in zip(powers, blocks, strict=True)]
        hidden = finish(model, torch.cat(mixed, 1) + bias, index, draw)
    logits: Tensor = model.output(hidden)
    return logits


def gat(model: GAT, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    attentions: Iterable[Any] = model.attentions  # DGL's, which have no types
    for index, (linear, layer) in enumerate(zip(linears_of(model), attentions, strict=True)):
        heads, width = layer.attn_l.shape[1:]
        rows = linear(hidden).view(-1, heads, width)
        sent, received = (rows * layer.attn_l).sum(2), (rows * layer.attn_r).sum(2)
        scores = F.leaky_relu(received[:, None] + sent[None, :], 0.2)  # [t, s, h]
        weights = scores.masked_fill(pattern[:, :, None] == 0, -torch.inf).softmax(1)
        hidden = torch.einsum("tsh,shd->thd", weights, rows).flatten(1) + layer.bias
        if index < len(model.linears):
            hidden = finish(model, hidden, index, draw)
    return hidden


def glcn(model: GLCN, hidden: Tensor, pattern: Tensor | None, draw: Draw) -> Tensor:
    learned, _ = glcn_graph(model, hidden, pattern)
    state = finish(model, learned @ F.linear(hidden, model.input.weight[model.model.glcn.width :]), 0, draw)
    return learned @ F.linear(state, model.output.weight)


def glcn_graph(model: GLCN, features: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor]:
    """The learned graph [n, n], over a pattern or all pairs, and its loss, a node."""
    rows = F.linear(features, model.input.weight[: model.model.glcn.width])
    differences = rows[:, None] - rows[None]
    scores = (differences.abs() * model.comparison.weight[0]).sum(2).clamp(min=0)
    scores = scores if pattern is None else scores.masked_fill(pattern == 0, -torch.inf)
    learned = scores.exp() / scores.exp().sum(1, keepdim=True)
    loss = (learned * differences.square().sum(2)).sum() + model.model.glcn.sparsity * learned.square().sum()
    return learned, loss / len(features)


def vgcn(model: VGCN, hidden: Tensor, pattern: Tensor, draw: Draw) -> Tensor:
    answers, _ = vgcn_answers(model, hidden, pattern, draw)
    if model.training:
        return answers[-1]
    log = torch.stack([rows.softmax(1) for rows in answers]).mean(0).log()
    return log - log.mean(1, keepdim=True)


def vgcn_answers(model: VGCN, features: Tensor, pattern: Tensor, draw: Draw) -> tuple[list[Tensor], Tensor]:
    """The logits of every drawn graph, and the mean over draws of log q - log p, a node."""
    config, answers, costs = model.model.vgcn, list[Tensor](), list[Tensor]()
    joined = ((pattern + pattern.t()) > 0).to(pattern.dtype)
    prior = (joined * config.edge_prior + (1 - joined) * config.other_prior).logit()
    ids = draw.node_ids.tolist()
    pairs = [[sorted((one, other), reverse=True) for other in ids] for one in ids]
    places = torch.tensor([[larger * (larger - 1) // 2 + smaller for larger, smaller in row] for row in pairs])
    logits = prior + model.shifts[places.clamp(max=len(model.shifts) - 1)]  # what loops take counts for nothing
    for sample in range(config.samples if model.training else config.eval_samples):
        own = replace(draw, seed=seeds.derive(draw.seed, "draw", sample))
        key = seeds.derive(own.seed, "graph", draw.step if model.training else "evaluation")
        noise = torch.tensor([[logistic_noise(key, *pair) for pair in row] for row in pairs], dtype=pattern.dtype)
        drawn = (logits + noise) / config.draw_temperature
        cost = logistic_log_density(drawn, logits / config.draw_temperature, 1 / config.draw_temperature)
        cost = cost - logistic_log_density(drawn, prior / config.prior_temperature, 1 / config.prior_temperature)
        costs.append(cost.tril(-1).sum())
        graph = drawn.sigmoid().tril(-1) + drawn.sigmoid().triu(1) + torch.eye(len(ids), dtype=pattern.dtype)
        degrees = graph.sum(1)
        answers.append(convolved(model, features, graph / (degrees[:, None] * degrees).sqrt(), own)[-1])
    return answers, torch.stack(costs).mean() / len(pattern)


def logistic_noise(key: int, larger: int, smaller: int) -> float:
    bits = seeds.hash_id(seeds.hash_id(key, larger), smaller)
    tail = ((bits & 0x7FFFFFFF) + 0.5) / 2**32
    quantile = math.log(tail / (1 - tail))
    return quantile if bits < 0 else -quantile


def logistic_log_density(value: Tensor, mean: Tensor, scale: float) -> Tensor:
    centered = (value - mean) / scale
    return -centered - 2 * (1 + (-centered).exp()).log() - math.log(scale)


def linears_of(model: GCN | MixHop | GAT) -> list[nn.Linear]:
    """The linear map of every layer, the first one's is the input."""
    return [model.input, *(linear for linear in model.linears if isinstance(linear, nn.Linear))]


def convolutions_of(model: GCN | SGC) -> list[Convolution]:
    return [layer for layer in model.convolutions if isinstance(layer, Convolution)]


def finish(model: Baseline, rows: Tensor, index: int, draw: Draw) -> Tensor:
    if model.model.norm == "layer":
        norm = model.norms[index]
        assert isinstance(norm, nn.LayerNorm)
        rows = F.layer_norm(rows, rows.shape[1:], norm.weight, norm.bias)
    if model.model.norm == "batch":
        batch_norm = model.norms[index]
        assert isinstance(batch_norm, BatchNorm)
        mean, variance = batch_norm.running_mean, batch_norm.running_variance
        if model.training:
            mean, variance = rows.mean(0), rows.var(0, correction=0)
        rows = (rows - mean) / (variance + 1e-5).sqrt() * batch_norm.weight + batch_norm.bias
    rows = torch.where(rows > 0, rows, rows.exp() - 1 if model.model.activation == "elu" else 0.0)
    if model.training and model.model.dropout > 0:
        key = seeds.derive(draw.seed, "dropout", draw.step, index)
        keep, scale = ops.keep_mask(key, draw.node_ids, rows.shape[1], model.model.dropout)
        rows = rows * keep * scale
    return rows
