"""What a model is to training and evaluation: how it is called, what it answers, and what it can do.

A new one is a file that satisfies `Model` and a line in build.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nfdist import seeds
from nfdist.config import Config, ModelConfig
from nfdist.devices import is_gpu
from nfdist.errors import ConfigError
from nfdist.graph.halo import Halo
from nfdist.graph.relation import Relation
from nfdist.model.epilogue import Dropout
from nfdist.model.linear import InputLinear
from nfdist.world import World


@dataclass(frozen=True)
class Draw:
    """Which randomness a forward pass uses. Noise and dropout belong to node ids, never to rows.

    `step` is the number of the batch; a step of the optimizer may take several, which differ. `labels` are those that a
    model is given as inputs, [n] or [n, questions] with -1 for none, if it takes any. `directions` are those of
    `Model.directions`, where they were drawn ahead of time.
    """

    seed: int
    step: int
    node_ids: Tensor
    labels: Tensor | None = None
    directions: Tensor | None = None


@dataclass(frozen=True)
class Output:
    """Logits [n, outputs] and, where a scale was given, the model's own auxiliary loss times that.

    There may be `earlier` logits, which are to be trained as the last ones.
    """

    logits: Tensor
    auxiliary_loss: Tensor | None
    earlier: tuple[Tensor, ...] = ()


class Model(Protocol):
    """A module in training or evaluation mode.

    `orders` are the numbers of relations it can be given, `needs_graph` says whether it looks at them,
    `crosses_ranks` whether its nodes may depend on those of other ranks, `has_auxiliary_loss` whether it has a loss of
    its own, `heeds_weights` whether edge weights change anything, `takes_labels` whether known labels can be inputs,
    `sweeps` whether a whole graph is evaluated in chunks, so that it need not fit in memory, `divides` whether ranks
    can divide its evaluation, since it depends on other rows by sums over Â_1 alone, `inductive` whether an evaluation
    leaves what new nodes are predicted from, `one_label` whether it answers for one label a node alone, and
    `runs_on_gpu` whether it has code for GPUs. One that `weighs_pairs` has a weight for each pair of nodes. Weight
    decay leaves out parameters that are `undecayed`. `input` is the map that features go through first;
    `feature_means` [f] fill their gaps, None where there are none. A model that sweeps may be told to `recompute` its
    layers in the backward pass, by every rank alike.
    """

    orders: range
    needs_graph: bool
    crosses_ranks: bool
    has_auxiliary_loss: bool
    heeds_weights: bool
    takes_labels: bool
    sweeps: bool
    divides: bool
    inductive: bool
    one_label: bool
    runs_on_gpu: bool
    weighs_pairs: bool
    undecayed: tuple[str, ...]
    training: bool
    recompute: bool
    input: InputLinear
    feature_means: Tensor | None

    @classmethod
    def build(cls, config: Config, num_features: int, num_outputs: int, seed: int, num_nodes: int) -> "Model":
        """The model of a configuration, its weights drawn from a seed, for a graph of so many nodes."""
        ...

    @classmethod
    def check_settings(cls, model: ModelConfig) -> None:
        """Refuse settings that this model cannot have."""
        ...

    @staticmethod
    def sizes_of(weights: Mapping[str, Tensor]) -> tuple[int, int]:
        """How many features it takes and how many outputs it has, by its weights."""
        ...

    @staticmethod
    def nodes_of(weights: Mapping[str, Tensor]) -> int:
        """How many nodes the graph has that it was built for, by its weights; 0 where it does not need to know."""
        ...

    @staticmethod
    def pair_numbers(config: Config, *, training: bool) -> float:
        """How many numbers a step, or an evaluation, holds for every pair of its nodes beside the weights."""
        ...

    @property
    def num_features(self) -> int: ...

    @property
    def num_outputs(self) -> int: ...

    def __call__(
        self,
        features: Tensor,
        relations: Sequence[Relation],
        draw: Draw,
        *,
        auxiliary_scale: float = 0.0,
        world: World | None = None,
        halo: Halo | None = None,
    ) -> Output:
        """Logits of n nodes by their features [n, f], which may be sparse, and Â_1 .. Â_order over them.

        In a world of several ranks every rank must call this.
        """
        ...

    def directions(self, seed: int, step: int) -> Tensor | None:
        """What a batch's attention is drawn from, [layers, m, d] on the CPU; None for a model without."""
        ...

    def auxiliary_scale(self, weight: float, count: int) -> float:
        """What to scale the auxiliary loss by, so that it is a mean over `count` edges or nodes of all ranks."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...

    def buffers(self) -> Iterator[Tensor]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...

    def to(self, *placement: Any) -> "Model": ...

    def cpu(self) -> "Model": ...

    def train(self, mode: bool = True) -> "Model": ...

    def eval(self) -> "Model": ...


def feature_dropout(model: ModelConfig, draw: Draw, training: bool) -> Dropout | None:
    """What drops features in a step, if anything does: the same for all inputs of a model."""
    if not training or model.input_dropout == 0:
        return None
    return Dropout(model.input_dropout, seeds.derive(draw.seed, "dropout", draw.step, "features"), draw.node_ids)


def check_sizes(num_features: int, num_outputs: int) -> None:
    """Refuse a model of nothing."""
    if num_features < 1 or num_outputs < 1:
        raise ConfigError(f"a model needs input features and outputs, got {num_features} and {num_outputs}")


def check_features(features: Tensor, num_features: int, draw: Draw) -> None:
    """Refuse features of another width, with NaN or infinite entries, or not as many as there are node ids.

    On a device other than the CPU the host would wait for the answer: there entries are looked at before they are sent.
    """
    if features.ndim != 2 or features.shape[1] != num_features:
        raise ConfigError(f"features must be [nodes, {num_features}], got {list(features.shape)}")
    if draw.node_ids.shape != features.shape[:1]:
        raise ConfigError(f"node_ids must be [{len(features)}], one for every node, got {list(draw.node_ids.shape)}")
    if not is_gpu(features.device):
        check_finite(features)


def check_finite(features: Tensor) -> None:
    """Refuse NaN or infinite features."""
    values = features.values() if features.layout == torch.sparse_csr else features
    if not torch.isfinite(values.sum()):
        dense = features.to_dense() if features.layout == torch.sparse_csr else features
        broken = (~torch.isfinite(dense)).any(1).nonzero()[:, 0]
        if len(broken):
            raise ConfigError(f"features of {len(broken)} nodes are NaN or infinite, first at row {int(broken[0])}")


def check_relations(name: str, relations: Sequence[Relation], order: int, num_nodes: int, num_sources: int) -> None:
    """Refuse relations that are not one for each hop, among so many nodes."""
    if len(relations) != order:
        raise ConfigError(f"{name} needs {order} relations, one for each hop, got {len(relations)}")
    for hop, relation in enumerate(relations, start=1):
        found = relation.adjacency.num_nodes, relation.adjacency.num_sources
        if found != (num_nodes, num_sources):
            raise ConfigError(
                f"relation {hop} has {found[0]} nodes and {found[1]} sources, given are {num_nodes} and {num_sources}"
            )
