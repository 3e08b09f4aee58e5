"""The evaluation of a baseline: one pass over the whole graph, which must fit in memory, or in that of a GPU."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from nfdist.config import RelationConfig
from nfdist.devices import exact_products, placed
from nfdist.evaluation.full import BranchListener, Evaluation, Listener
from nfdist.evaluation.placement import CPU
from nfdist.evaluation.propagation import EDGES, Propagation
from nfdist.evaluation.stored_relation import RecordedRelation
from nfdist.graph.division import divide_among
from nfdist.graph.relation import Relation, degree_factors, source_degrees
from nfdist.log import Progress
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.protocol import Draw, Model
from nfdist.store.hops import Hops
from nfdist.store.store import GraphStore
from nfdist.world import World


class InMemoryGraph:
    """A graph in memory to evaluate baselines on, again and again. Every rank must make one.

    Every rank computes the logits of all nodes and keeps those of its own range. Where each holds some parts of the
    graph, the others' rows and edges come from those that have them.
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
        divided = divide_among(world, store)
        self.nodes = divided[world.rank]
        self._propagation_of = partial(
            Propagation.in_memory, store.local, hops, world=world, divided=divided, dtype=dtype, device=device
        )
        self._dtype, self.device = dtype, device
        self._propagation: Propagation | None = None
        everyone = torch.arange(store.num_nodes)
        self._everyone = everyone.to(device)
        self._features = store.take(everyone).to(dtype).to(device)
        patterns = (hops.induced(hop, everyone) for hop in range(1, relation.order + 1))
        self._relations = [Relation.build(pattern, relation.normalize, dtype).to(device) for pattern in patterns]

    def propagation(self) -> Propagation:
        """The sums over edges that smoothing needs. Every rank must call this."""
        if self._propagation is None:
            self._propagation = self._propagation_of(EDGES)
        return self._propagation

    def source_factors(self) -> Tensor:
        """1 / sqrt(out-degree) of this rank's nodes in every relation, [n, order]."""
        degrees = torch.stack([source_degrees(relation.adjacency) for relation in self._relations], 1)
        return degree_factors(degrees[self.nodes.start : self.nodes.stop], self._dtype)

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
        """Evaluate a model in evaluation mode. Every rank must call this.

        A baseline takes no labels and has no layers to tell of; `listener` is told of the rows before every sum over
        neighbors.
        """
        assert isinstance(model, Baseline)
        assert not model.training
        assert not listeners
        relations: Sequence[Relation] = self._relations
        if listener is not None:
            relations = [self._recorded(relation, listener) for relation in relations]
        model = placed(model, self.device)
        logits = model(self._features, relations, Draw(seed, 0, self._everyone)).logits
        if progress is not None:
            progress.advance((model.model.layers + 1) * len(self.nodes))
        return Evaluation(self.nodes, logits[self.nodes.start : self.nodes.stop], None, ())

    def _recorded(self, relation: Relation, listener: BranchListener) -> Relation:
        given = relation.adjacency, relation.known_weights, relation.total_weights, relation.factors
        return RecordedRelation(*given, nodes=self.nodes, listener=listener)
