"""NodeFormer written to be read: dense attention, dense relations, values and heads spelled out; the tests' oracle."""

import torch
import torch.nn.functional as F
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.dense import dense_attend, dense_log_weights
from nfdist.config import RelationConfig
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.branch import GraphBranch
from nfdist.model.layer import AttentionLayer
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.sparse.adjacency import Adjacency


def dense_forward(model: NodeFormer, features: Tensor, graph: Adjacency, draw: Draw) -> tuple[Tensor, Tensor]:
    """Logits, and Σ over layers, edges and heads of log pi / in-degree."""
    features = thinned(model, features, draw)
    hidden = finish(model, embedded(model, features, draw), 0, draw, True)
    states, likelihood = [hidden], features.new_zeros(())
    reach = adjacency_matrix(graph, features.dtype)
    for index in range(1, model.model.layers + 1):
        layer = model.layer(index)
        kernel, noise = model.randomness(draw, index, features)
        shape = (len(features), model.model.heads, model.model.channels)
        queries, keys, values = (part(hidden).view(shape) for part in (layer.query, layer.key, layer.value))
        heard = dense_attend(queries, keys, values, kernel, noise)
        for hop in range(0 if model.relation.gate == "none" else model.relation.order):
            gate = layer.gates[hop].sigmoid() if model.relation.gate == "sigmoid" else layer.gates[hop]
            relation = related(reach, hop + 1, model.relation)
            heard = heard + gate[:, None] * torch.einsum("ts,shd->thd", relation, values)
        if model.relation.order:
            log_weights = dense_log_weights(queries, keys, kernel)[:, 0]
            edges = (reach > 0).to(features.dtype)
            likelihood = likelihood + (log_weights * edges / edges.sum(1, keepdim=True)).sum()
        output = joined(layer, heard) + (hidden if model.model.residual else 0)
        hidden = finish(model, output, index, draw, model.model.activation == "elu")
        hidden = fed_forward(model, hidden, index, draw)
        states.append(hidden)
    logits = model.output(torch.cat(states, 1) if model.model.jumping_knowledge else hidden)
    return mixed_with_branch(model, logits, features, weighted(reach, True), draw), likelihood


def mixed_with_branch(model: NodeFormer, logits: Tensor, features: Tensor, relation: Tensor, draw: Draw) -> Tensor:
    """(1 - share) logits + share x those of the graph branch, if there is one, over Â_1 [n, n]."""
    branch = model.branch
    if branch is None:
        return logits
    state = embedded(branch, features, draw)
    for index in range(model.model.graph_layers + 1):
        residual = model.model.branch_residual
        if not index and not residual:
            continue
        if index:
            state = relation @ branch.convolutions[index - 1](state) + (state if residual else 0)
        state = branch.norms[index if residual else index - 1](state) if len(branch.norms) else state
        state = dropped(model, F.elu(state), draw, index, "branch")
    share = branch.mixing.sigmoid() if model.model.branch_share == 0 else model.model.branch_share
    branch_logits: Tensor = branch.output(state)
    return (1 - share) * logits + share * branch_logits


def embedded(module: NodeFormer | GraphBranch, features: Tensor, draw: Draw) -> Tensor:
    """The input linear, and what a node's label adds where it is given, a node and an answer at a time."""
    rows: Tensor = module.input(features)
    if module.label_input is None:
        return rows
    assert draw.labels is not None
    table, added = module.label_input.table, []
    for label in draw.labels.tolist():
        row = torch.zeros_like(table[0])
        if isinstance(label, list):
            for question, answer in enumerate(label):
                row = row + {1: 1, 0: -1, -1: 0}[answer] * table[question] / len(label) ** 0.5
        elif label >= 0:
            row = table[label]
        added.append(row)
    return rows + torch.stack(added)


def thinned(model: NodeFormer | Baseline, features: Tensor, draw: Draw) -> Tensor:
    """Features of which a step drops some: these are as their mean among the training nodes."""
    if not model.training or model.model.input_dropout == 0:
        return features
    key = seeds.derive(draw.seed, "dropout", draw.step, "features")
    keep, scale = ops.keep_mask(key, draw.node_ids, features.shape[1], model.model.input_dropout)
    return (features - model.input.center) * keep * scale + model.input.center


def adjacency_matrix(graph: Adjacency, dtype: torch.dtype) -> Tensor:
    """A + I with the target as its row."""
    matrix = torch.eye(graph.num_nodes, dtype=dtype)
    matrix[graph.targets.long(), graph.sources.long()] = 1
    return matrix


def related(reach: Tensor, order: int, relation: RelationConfig) -> Tensor:
    """Â_order of A + I: the weighted pattern of its power, or the power of its weighted pattern."""
    if relation.kind == "pattern":
        return weighted(torch.linalg.matrix_power(reach, order), relation.normalize)
    power: Tensor = torch.linalg.matrix_power(weighted(reach, relation.normalize), order)
    return power


def weighted(paths: Tensor, normalize: bool) -> Tensor:
    pattern = (paths > 0).to(paths.dtype)
    if not normalize:
        return pattern
    return pattern / (pattern.sum(1, keepdim=True) * pattern.sum(0, keepdim=True)).sqrt()


def finish(model: NodeFormer, rows: Tensor, index: int, draw: Draw, elu: bool) -> Tensor:
    rows = model.norms[index](rows) if len(model.norms) else rows
    return dropped(model, F.elu(rows) if elu else rows, draw, index)


def joined(layer: AttentionLayer, heard: Tensor) -> Tensor:
    """What a layer makes of what its heads heard, [n, h, c]: a linear map of all of them, or their mean."""
    return heard.mean(1) if layer.output is None else layer.output(heard.flatten(1))


def fed_forward(model: NodeFormer, rows: Tensor, index: int, draw: Draw) -> Tensor:
    """dropout(norm(h + W2 elu(W1 h))), if layers have such a block."""
    block = model.layer(index).feed_forward
    if block is None:
        return rows
    rows = rows + block.narrow(F.elu(block.widen(rows)))
    return dropped(model, rows if block.norm is None else block.norm(rows), draw, index, "feed_forward")


def dropped(model: NodeFormer, rows: Tensor, draw: Draw, *which: int | str) -> Tensor:
    if model.training and model.model.dropout > 0:
        key = seeds.derive(draw.seed, "dropout", draw.step, *which)
        keep, scale = ops.keep_mask(key, draw.node_ids, rows.shape[1], model.model.dropout)
        rows = rows * keep * scale
    return rows
