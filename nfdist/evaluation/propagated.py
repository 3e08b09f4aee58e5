"""The evaluation of a baseline that is divided among ranks: each has its rows in memory, and sums over their in-edges.

A sum over Â_1 is a `Propagation`: rows are put among copies of other ranks' rows, and summed a chunk at a time. So the
ranks need not see the parts of others, and each holds its share of the graph.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import torch
from torch import Tensor

from nfdist.collectives import together
from nfdist.config import RelationConfig
from nfdist.devices import exact_products, full_precision, placed, sent
from nfdist.evaluation.full import BranchListener, Evaluation, Listener
from nfdist.evaluation.placement import CPU
from nfdist.evaluation.propagation import EDGES, Propagation
from nfdist.graph.division import divide_among
from nfdist.log import Progress
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.gaps import fill_gaps
from nfdist.model.protocol import Draw, Model, check_features
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore
from nfdist.world import World

ROWS_AT_ONCE = 1 << 16  # whose features are there together


@dataclass
class PropagatedRelation:
    """Â_1 around this rank's nodes; its listener is told of the rows before each sum, counted from 1."""

    propagation: Propagation
    listener: BranchListener | None = None
    calls: Iterator[int] = field(default_factory=lambda: count(1))

    def propagate(self, rows: Tensor) -> Tensor:
        """Â_1 of all rows, of which these are this rank's. Every rank must call this."""
        if self.listener is not None:
            self.listener(next(self.calls), rows.__getitem__)
        width, sums = rows.shape[1], torch.empty_like(rows, memory_format=torch.contiguous_format)
        states = self.propagation.states(width)

        def sum_up(some: slice) -> None:
            sums[some] = self.propagation.sums(states, some, width)

        self.propagation.put(states, rows.__getitem__, width)
        self.propagation.each(sum_up, width)
        return sums


class PropagatedGraph:
    """A divided graph to evaluate baselines on, again and again, whose rows depend on others by sums over Â_1 alone.

    Every rank must make one and evaluate together with the others; each has its own range of nodes.
    """

    def __init__(
        self,
        store: GraphStore,
        hops: Hops,
        relation: RelationConfig,
        world: World,
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        assert hops.weighted == relation.weights
        self._store, self._world, self._dtype, self.device = store.local, world, dtype, device
        divided = divide_among(world, store)
        self.nodes = divided[world.rank]
        self._propagation_of = partial(
            Propagation.in_memory, store.local, hops, world=world, divided=divided, dtype=dtype, device=device
        )
        self._relation = self._propagation_of(relation) if relation.order else None
        plain = relation.order == 1 and replace(relation, gate=EDGES.gate, scope=EDGES.scope) == EDGES
        self._propagation = self._relation if plain else None

    def propagation(self) -> Propagation:
        """The sums over edges that smoothing needs, whatever the model's are. Every rank must call this."""
        if self._propagation is None:
            self._propagation = self._propagation_of(EDGES)
        return self._propagation

    def source_factors(self) -> Tensor:
        """1 / sqrt(out-degree) of this rank's nodes, [n, 1]."""
        assert self._relation is not None
        return self._relation.shard.source_factors(slice(0, len(self.nodes)))

    @torch.no_grad()
    @exact_products()  # also beside a training by rounded ones
    def evaluate(
        self,
        model: Model,
        seed: int,
        progress: Progress | None = None,
        listeners: Sequence[Listener] = (),
        listener: BranchListener | None = None,
        split: Tensor | None = None,
    ) -> Evaluation:
        """Evaluate a model in evaluation mode, as `InMemoryGraph` does. Every rank must call this."""
        assert isinstance(model, Baseline)
        assert model.divides
        assert not model.training
        assert not listeners
        model = placed(model, self.device)
        relations = [] if self._relation is None else [PropagatedRelation(self._relation, listener)]
        node_ids = torch.arange(self.nodes.start, self.nodes.stop)
        with full_precision(self.device):
            embedded = together(self._world, lambda: self._embedded(model, node_ids))
            logits = model.logits(embedded, relations, Draw(seed, 0, node_ids.to(self.device)))
        if progress is not None:
            progress.advance((model.model.layers + 1) * len(self.nodes))
        return Evaluation(self.nodes, logits, None, ())

    def _embedded(self, model: Baseline, node_ids: Tensor) -> Tensor:
        """What the input linear makes of the features of this rank's nodes, some of them at a time."""
        made = [model.input.weight.new_empty(0, model.input.out_features)]
        for some in node_ids.split(ROWS_AT_ONCE):
            features = fill_gaps(sent(self._store.take(some).to(self._dtype), self.device), model.feature_means)
            check_features(features, model.num_features, Draw(0, 0, some))
            made.append(model.input(features))
        return torch.cat(made)
