"""A training step of the paper's Amazon2M model on a device: nfdist's, the plain transcription's, and SGFormer's.

The batch lies on the device already, and has the shape of 100,000 random nodes of Amazon2M: an edge from every node to
itself and 2.1 from others, a label at every second node.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transcription import Transcription

from nfdist import seeds, settings
from nfdist.config import Config
from nfdist.devices import Copies
from nfdist.graph.relation import Relation
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.sparse.adjacency import Adjacency
from nfdist.training.batches import Batch
from nfdist.training.optimization import make_optimizer
from nfdist.training.preparation import Preparation
from nfdist.training.sampling import Position
from nfdist.training.step import Counts, Stepper
from nfdist.world import World

FEATURES, CLASSES, SEED = 100, 47, 0
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"standardize": False, "layers": 2, "channels": 64, "heads": 1, "random_features": 50, "dropout": 0.2}
    | {"activation": "elu", "jumping_knowledge": True},
    "attention": {"noise_draws": 5, "temperature": 0.25},
    "relation": {"order": 1, "gate": "identity"},
    "train": {"learning_rate": 0.01, "edge_loss": 0.01},
}
Step = Callable[[], Any]  # makes one step


@dataclass(frozen=True)
class Problem:
    """A batch of so many nodes on a device, and models that are trained on it."""

    nodes: int
    device: torch.device
    overrides: tuple[str, ...] = ()

    @cached_property
    def config(self) -> Config:
        return settings.parse(SETTINGS, ["data.partition=none", *self.overrides])

    @cached_property
    def relation(self) -> Relation:
        ends = torch.randint(self.nodes, (2, int(2.1 * self.nodes)), generator=seeds.generator(SEED, "edges"))
        sources, targets = torch.cat([ends, torch.arange(self.nodes).expand(2, -1)], 1)
        return Relation.build(Adjacency.from_edges(sources, targets, self.nodes))

    @cached_property
    def batch(self) -> Batch:
        generator = seeds.generator(SEED, "batch")
        features = torch.randn(self.nodes, FEATURES, generator=generator)
        labels, labeled = torch.randint(CLASSES, (self.nodes,), generator=generator), torch.arange(0, self.nodes, 2)
        node_ids, relations = torch.arange(self.nodes), [self.relation]
        made = Batch(node_ids, features, labeled, labels[labeled], relations, None, Position(1))
        copies = Copies(self.device)
        sent = Preparation(self.model(), self.task, SEED, 0.0, self.device)(made).moved(copies)
        copies.arrival().precede()
        return sent

    @property
    def batch_bytes(self) -> int:
        """What of the batch comes from the host."""
        batch, sizes = self.batch, list[int]()

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        for relation in batch.relations:
            relation.each(note)
        for tensor in (batch.node_ids, batch.features, batch.labeled, batch.labels, batch.directions):
            note(tensor if tensor is not None else torch.empty(0))
        return sum(sizes)

    @property
    def task(self) -> Task:
        return Task("single", CLASSES)

    @cached_property
    def labels(self) -> Tensor:
        """Of all nodes, -1 where there is none."""
        labels = torch.full((self.nodes,), -1, device=self.device)
        return labels.index_copy(0, self.batch.labeled, self.batch.labels)

    @property
    def draw(self) -> Draw:
        """What nfdist's step on the batch draws."""
        return Draw(SEED, self.batch.number, self.batch.node_ids)

    def model(self) -> NodeFormer:
        return NodeFormer.build(self.config, FEATURES, CLASSES, SEED).to(self.device)

    def nfdist(self, *, compiled: bool = False) -> Step:
        """A step as training makes it, losses and norm read."""
        model = self.model()
        optimizer = make_optimizer(model, self.config.train)
        called: Any = torch.compile(model) if compiled else model
        stepper = Stepper(model, called, optimizer, self.task, self.config.train, World(), SEED)
        counts = Counts(len(self.batch.labeled), self.batch.num_edges, self.nodes)

        def step() -> float:
            stepper.add(self.batch, self.batch.number, counts, last=True)
            return stepper.move(self.batch.number, self.config.train.learning_rate).total

        return step

    def transcription(self, draw: Draw | None = None) -> Step:
        """The published formulation; with a draw, of nfdist's own randomness."""
        model = self.model().train()
        optimizer = make_optimizer(model, self.config.train)
        transcription = Transcription(model, self.batch.relations[0])

        def step() -> Tensor:
            loss = transcription.loss(self.batch.features, self.labels, self.config.train.edge_loss, draw)
            return _descended(loss, optimizer)

        return step

    def sgformer_model(self) -> Any:
        """PyG's, with one layer of attention and as many convolutions as we have layers; None without PyG."""
        try:
            kind = importlib.import_module("torch_geometric.nn.models").SGFormer
        except (ImportError, AttributeError):
            return None
        layers, channels, dropout = (getattr(self.config.model, name) for name in ("layers", "channels", "dropout"))
        attention = {"trans_num_layers": 1, "trans_dropout": dropout}
        convolutions = {"gnn_num_layers": layers, "gnn_dropout": dropout}
        return kind(FEATURES, channels, CLASSES, **attention, **convolutions).to(self.device)

    def sgformer(self) -> Step | None:
        model = self.sgformer_model()
        if model is None:
            return None
        optimizer = torch.optim.Adam(model.parameters(), lr=self.config.train.learning_rate, fused=True)
        graph = self.batch.relations[0].adjacency
        edge_index = torch.stack([graph.sources, graph.targets]).long()
        one_graph = edge_index.new_zeros(self.nodes)

        def step() -> Tensor:
            logits = model(self.batch.features, edge_index, one_graph)
            return _descended(F.nll_loss(logits, self.labels, ignore_index=-1), optimizer)

        return step

    def cuda_graph(self) -> Step:
        """Forward and backward passes, recorded once and played again, with the draw that they were recorded with."""
        model, batch = self.model().train(), self.batch
        scale = model.auxiliary_scale(self.config.train.edge_loss, batch.num_edges)
        draw = Draw(SEED, batch.number, batch.node_ids, directions=batch.directions)

        def passes() -> None:
            output = model(batch.features, batch.relations, draw, auxiliary_scale=scale)
            (F.cross_entropy(output.logits, self.labels, ignore_index=-1) + output.auxiliary_loss).backward()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                passes()
        side.synchronize()
        model.zero_grad(set_to_none=True)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            passes()
        return recorded.replay


def _descended(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def apart(problem: Problem) -> float:
    """How far the losses of nfdist's first step and of the transcription's, with the same draw, are from each other."""
    ours, theirs = float(problem.nfdist()()), float(problem.transcription(problem.draw)())
    return abs(ours - theirs) / abs(theirs)
