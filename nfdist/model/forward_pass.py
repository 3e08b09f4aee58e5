"""A training's pass through NodeFormer: every layer of all rows, at once or with little kept for the backward pass.

In the second way each layer keeps the states that it starts from. The backward pass makes the layer again: its keys and
their summary of all rows, and then, some rows at a time, what they get from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nfdist.attention.all_reduce import all_reduce_summary
from nfdist.attention.kernel import Kernel, KeyFeatures
from nfdist.attention.summary import KeySummary, summarize
from nfdist.devices import exact_products, full_precision, is_mixed_precision, mixed_precision
from nfdist.graph.halo import Halo
from nfdist.graph.neighbors import BatchNeighbors, Neighbors, PowerNeighbors, RelatedRows
from nfdist.graph.relation import Relation
from nfdist.model.branch import GraphBranch
from nfdist.model.epilogue import Dropout, add_norm
from nfdist.model.gaps import fill_gaps
from nfdist.model.label_input import label_terms
from nfdist.model.linear import PreparedRows
from nfdist.model.protocol import Draw, Output, feature_dropout
from nfdist.model.recomputed import recomputed, recomputed_by_rows
from nfdist.world import World

if TYPE_CHECKING:
    from nfdist.model.nodeformer import NodeFormer


@dataclass(frozen=True)
class ForwardPass:
    """What `NodeFormer.forward` was called with; features still have their gaps if layers are to be `recomputed`."""

    model: "NodeFormer"
    features: Tensor
    relations: Sequence[Relation]
    draw: Draw
    scale: float
    world: World
    halo: Halo | None
    recomputed: bool

    def output(self) -> Output:
        """The logits, and the edge loss if there is a scale. Every rank must call this."""
        return self._output_by_parts() if self.recomputed else self._output()

    def _output(self) -> Output:
        model, draw, branch = self.model, self.draw, self.model.branch
        rows = model.input.prepare(self.features, self._feature_dropout(draw))  # the branch's, too
        embedded = self._embedded(rows, draw)
        with full_precision(self.features.device):  # exponents and sums need their digits
            output = self._attend(add_norm(embedded, model.epilogue(0, draw)))
            if branch is None:
                return output
            first = branch.first_state(rows, model.branch_epilogue(branch, 0, draw), draw.labels)
            return Output(branch.mix(output.logits, self._convolve(branch, first)), output.auxiliary_loss)

    def _output_by_parts(self) -> Output:
        """The same, with first states by rows: a model's features may be more than its states."""
        model, branch, device = self.model, self.model.branch, self.features.device
        rounded = is_mixed_precision(device)

        def first(rows: slice) -> tuple[Tensor]:
            prepared, draw = self._prepared(rows), self._draw_of(rows)
            with mixed_precision(device, enabled=rounded):
                embedded = self._embedded(prepared, draw)
            with full_precision(device):
                return (add_norm(embedded, model.epilogue(0, draw)),)

        def first_of_branch(rows: slice) -> tuple[Tensor]:
            assert branch is not None
            draw = self._draw_of(rows)
            with full_precision(device):
                return (branch.first_state(self._prepared(rows), model.branch_epilogue(branch, 0, draw), draw.labels),)

        count, sparse = len(self.features), self.features.layout == torch.sparse_csr
        at_once = max(count, 1) if sparse else None
        given = parameters_of(model.input, model.label_input, *model.norms[:1])
        hidden = recomputed_by_rows(first, count, [], [], given, at_once)[0]
        with full_precision(device):
            output = self._attend(hidden)
        del hidden
        if branch is None:
            return output
        given = parameters_of(branch.input, branch.label_input, branch.norm(0))
        hidden = recomputed_by_rows(first_of_branch, count, [], [], given, at_once)[0]
        with full_precision(device):
            return Output(branch.mix(output.logits, self._convolve(branch, hidden)), output.auxiliary_loss)

    def _attend(self, hidden: Tensor) -> Output:
        """The logits of the layers, and their edge loss."""
        model = self.model
        logits = model.logits(hidden, 0)
        loss = hidden.new_zeros(()) if self.scale != 0 else None
        for index in range(1, model.model.layers + 1):
            if self.recomputed:
                given = parameters_of(model.layer(index), *model.norms[index : index + 1])
                hidden, *more = recomputed(partial(self._layer_by_rows, index), [hidden], given)
            else:
                hidden, *more = self._layer(index, hidden)
            for likelihood in more:
                assert loss is not None
                loss = loss + likelihood
            logits = model.logits(hidden, index, logits)
        assert logits is not None
        return Output(logits, loss)

    def _layer(self, index: int, hidden: Tensor) -> tuple[Tensor, ...]:
        """State `index` and, with a scale, the layer's part of the edge loss."""
        kernel, states, queries, keys, summary = self._seen(index, hidden)
        bound = self.model.bind(index, kernel, summary, self.draw)
        outputs, log_normalizers = bound.attend(queries)
        # Before the rest: it takes the most memory, for a moment.
        loss = self._edge_loss(index, states, queries, keys, summary, log_normalizers, kernel)
        return bound.update(hidden, outputs, self._neighbors(states)), *loss

    def _layer_by_rows(self, index: int, hidden: Tensor) -> tuple[Tensor, ...]:
        """The same, without anything of all rows but features, sums over edges and states."""
        model = self.model
        kernel, states, queries, keys, summary = self._seen(index, hidden)
        bound = model.bind(index, kernel, summary, self.draw)
        related = [self._neighbors(states).related(hidden, bound.maps, bound.offsets)] if len(bound.maps) else []

        def update(rows: slice, own: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
            *sums, log_mass, mean, noise_free = more
            seen = KeySummary(log_mass, mean, noise_free, summary.peak)
            bound = model.bind(index, kernel, seen, self._draw_of(rows))
            with exact_products():
                features = bound.queries(own)
            attended = bound.attend(features)
            return bound.update(own, attended.outputs, RelatedRows(sums[0] if sums else own)), attended.log_normalizers

        shared = summary.log_mass, summary.mean, summary.noise_free_log_mass
        given = parameters_of(model.layer(index), *model.norms[index : index + 1])
        made, log_normalizers = recomputed_by_rows(update, len(hidden), [hidden, *related], shared, given)
        return made, *self._edge_loss(index, states, queries, keys, summary, log_normalizers, kernel)

    def _seen(self, index: int, hidden: Tensor) -> tuple[Kernel, Tensor, Tensor, KeyFeatures, KeySummary]:
        """What a layer has before it looks at a row: states with copies, features of queries and keys, all keys."""
        model, layer = self.model, self.model.layer(index)
        # An evaluation is always of the whole graph, whatever training could afford.
        reach = self.world if model.attention.scope == "world" or not model.training else World()
        kernel, noise = model.randomness(self.draw, index, hidden)
        states = hidden if self.halo is None else self.halo.extend(hidden, self.world)
        queries, keys = layer.project(hidden, kernel)
        summary = all_reduce_summary(summarize(keys, hidden, kernel, noise), reach)
        return kernel, states, queries, keys, summary

    def _edge_loss(
        self,
        index: int,
        states: Tensor,
        queries: Tensor,
        keys: KeyFeatures,
        summary: KeySummary,
        log_normalizers: Tensor,
        kernel: Kernel,
    ) -> list[Tensor]:
        if self.scale == 0:
            return []
        graph, copies = self.relations[0].adjacency, states[len(queries) :]
        layer = self.model.layer(index)
        return [layer.edge_log_likelihood(queries, keys, copies, summary, log_normalizers, graph, kernel, self.scale)]

    def _neighbors(self, states: Tensor) -> Neighbors:
        """The neighbors of a batch; between two sums of a power, ranks exchange the rows of their halos."""
        neighbors = BatchNeighbors(self.relations, states)
        if not self.model.relation.num_partials:
            return neighbors

        def propagate(_power: int, rows: Tensor) -> Tensor:
            extended = rows if self.halo is None else self.halo.extend(rows, self.world)
            return self.relations[0].propagate(extended)

        return PowerNeighbors(neighbors, propagate)

    def _convolve(self, branch: GraphBranch, hidden: Tensor) -> Tensor:
        """The logits of the graph branch, of its first state."""
        for index in range(1, branch.num_layers + 1):
            if self.recomputed:
                given = parameters_of(branch.convolutions[index - 1], branch.norm(index))
                hidden = recomputed(partial(self._convolution_by_rows, branch, index), [hidden], given)[0]
                continue
            epilogue = self.model.branch_epilogue(branch, index, self.draw)
            hidden = branch.next_state(index, hidden, self._first_neighbors(hidden), epilogue)
        logits: Tensor = branch.output(hidden)
        return logits

    def _convolution_by_rows(self, branch: GraphBranch, index: int, hidden: Tensor) -> tuple[Tensor, ...]:
        related = branch.related(index, hidden, self._first_neighbors(hidden))

        def update(rows: slice, own: Tensor, sums: Tensor) -> tuple[Tensor]:
            epilogue = self.model.branch_epilogue(branch, index, self._draw_of(rows))
            own_sums = RelatedRows(sums.clone())  # the first term, which a sum that is not recorded uses up
            return (branch.next_state(index, own, own_sums, epilogue),)

        return recomputed_by_rows(update, len(hidden), [hidden, related], [], parameters_of(branch.norm(index)))

    def _first_neighbors(self, hidden: Tensor) -> BatchNeighbors:
        states = hidden if self.halo is None else self.halo.extend(hidden, self.world)
        return BatchNeighbors(self.relations[:1], states)

    def _embedded(self, rows: PreparedRows, draw: Draw) -> list[Tensor]:
        model = self.model
        return [model.input.product(rows), *label_terms(model.label_input, draw.labels, len(draw.node_ids))]

    def _prepared(self, rows: slice) -> PreparedRows:
        """Some rows' features; sparse ones are there whole or not at all."""
        own = self.features if self.features.layout == torch.sparse_csr else self.features[rows]
        filled = fill_gaps(own, self.model.feature_means)
        return self.model.input.prepare(filled, self._feature_dropout(self._draw_of(rows)))

    def _feature_dropout(self, draw: Draw) -> Dropout | None:
        return feature_dropout(self.model.model, draw, self.model.training)

    def _draw_of(self, rows: slice) -> Draw:
        """The randomness and the labels of some rows: masks and noise belong to node ids."""
        labels = self.draw.labels
        return replace(self.draw, node_ids=self.draw.node_ids[rows], labels=None if labels is None else labels[rows])


def parameters_of(*modules: nn.Module | None) -> list[nn.Parameter]:
    """All parameters of some modules."""
    return [parameter for module in modules if module is not None for parameter in module.parameters()]
