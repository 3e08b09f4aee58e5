"""TrainedModel: a model with the weights of a checkpoint, ready to evaluate and predict."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfdist import settings
from nfdist.collectives import broadcast_state
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError
from nfdist.files import checksum_of
from nfdist.model.build import MODELS, build_model, model_class
from nfdist.model.gaps import FEATURE_MEANS
from nfdist.model.nodeformer import NodeFormer, evaluation_seed
from nfdist.model.protocol import Model
from nfdist.remote import refuse_uri
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import Run
from nfdist.store.store import Description
from nfdist.world import World


@dataclass(frozen=True)
class TrainedModel:
    """A model in evaluation mode, on the CPU, with the configuration of its run.

    `partition` is the fingerprint of the graph it was trained on, `fingerprint` that of its checkpoint.
    """

    model: Model
    config: Config
    seed: int
    epoch: int
    step: int
    partition: str
    fingerprint: str

    def check_graph(self, store: Description) -> None:
        """Refuse any graph but the one of the training."""
        if store.fingerprint() != self.partition:
            raise CheckpointError(
                f"the model was trained on another graph than {store.directory} holds: "
                "give the partition of its training with --partition"
            )

    @property
    def evaluation_seed(self) -> int:
        """What the directions of an evaluation are drawn from."""
        return evaluation_seed(self.config.attention, self.seed, self.step)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def nodeformer(self, purpose: str) -> NodeFormer:
        """The model, for what no other can do."""
        if not isinstance(self.model, NodeFormer):
            raise ConfigError(f"{purpose} needs a NodeFormer, and the run has model.name = {self.config.model.name}")
        return self.model

    def check_inductive(self) -> None:
        """Refuse a model that cannot answer for new nodes."""
        if not self.model.inductive:
            able = ", ".join(name for name, kind in MODELS.items() if kind.inductive)
            raise ConfigError(
                f"nfdist predict cannot answer by model.name = {self.config.model.name}: train one of {able}"
            )

    def facts(self) -> dict[str, Any]:
        """Which model this is, as plain values for JSON."""
        names = ("seed", "epoch", "step", "partition", "fingerprint")
        return {name: getattr(self, name) for name in names}


def load_model(run_dir: Path | str, checkpoint: Path | str | None = None) -> TrainedModel:
    """The model of a run: of its best checkpoint, else of its last, or of the one given."""
    run = Run.open(run_directory(run_dir))
    found = choose_checkpoint(run) if checkpoint is None else Checkpoint.open(Path(checkpoint))
    return read_model(run.config, found)


def run_directory(named: Path | str) -> Path:
    """The folder of a run; one that is elsewhere must be fetched first."""
    refuse_uri("RUN_DIR", named, "name a folder of this host; nfdist train --resume fetches a run from its run.mirror")
    return Path(named)


def choose_checkpoint(run: Run) -> Checkpoint:
    """The best checkpoint of a run, else its last."""
    found = run.chosen_checkpoint()
    if found is None:
        raise CheckpointError(f"{run.path} holds no checkpoint yet: train it, or name one with --checkpoint")
    return found


def read_model(config: Config, checkpoint: Checkpoint) -> TrainedModel:
    """The model of a checkpoint, built as its run's configuration says; sizes are those of the weights."""
    facts = {**_facts(checkpoint), "fingerprint": fingerprint(checkpoint)}
    return TrainedModel(_built(config, checkpoint.tensors("weights"), str(checkpoint.path)), config, **facts)


def _built(config: Config, weights: Mapping[str, Tensor], source: str) -> Model:
    try:
        kind = model_class(config.model.name)
        sizes, num_nodes = kind.sizes_of(weights), kind.nodes_of(weights)
        dtype = {tensor.dtype for tensor in weights.values() if tensor.dtype in (torch.float32, torch.float64)}.pop()
    except (LookupError, ValueError) as error:
        text = f"{source} has no weights of a {config.model.name} ({error!r}): give a checkpoint of the same run"
        raise CheckpointError(text) from None
    model = build_model(config, *sizes, num_nodes=num_nodes).eval().to(dtype)
    load_weights(model, weights, source)
    return model


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the state of a training says of it."""
    kinds = {"seed": int, "epoch": int, "step": int, "partition": str}
    for name, kind in kinds.items():
        if type(checkpoint.state.get(name)) is not kind:
            raise CheckpointError(f"{checkpoint.path} has no {name}: it is no checkpoint of a training")
    return {name: checkpoint.state[name] for name in kinds}


def broadcast_model(world: World, mine: TrainedModel | None) -> TrainedModel:
    """The model of rank 0 on every rank; only rank 0 gives one. Every rank must call this."""
    state: dict[str, Any] = {} if mine is None else {"facts": mine.facts(), "config": settings.dump(mine.config)}
    weights = {} if mine is None else mine.model.state_dict()
    state, weights = broadcast_state(world, state, weights, 0, "send model")
    if mine is not None:
        return mine
    config = settings.parse(state["config"])
    return TrainedModel(_built(config, weights, "rank 0"), config, **state["facts"])


def load_weights(model: Model, weights: Mapping[str, Tensor], source: str) -> None:
    """Weights by name; the first that does not fit is named."""
    if FEATURE_MEANS in weights and model.feature_means is None:
        model.feature_means = weights[FEATURE_MEANS].new_zeros(model.num_features)
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        theirs, ours = (_described(tensors[name]) if name in tensors else "none" for tensors in (weights, own))
        if theirs != ours:
            raise CheckpointError(
                f"{source} does not fit: its weights {name} are {theirs}, the [model] settings and the graph make "
                f"{ours}; give a checkpoint of the same settings, features and classes"
            )
    model.load_state_dict(dict(weights))


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def fingerprint(checkpoint: Checkpoint) -> str:
    """A name that changes with any byte of the state or the tensors."""
    return checksum_of(json.dumps([checkpoint.state, checkpoint.files], sort_keys=True).encode())
