"""The model that a configuration names: NodeFormer, or one of the baselines it is compared with."""

import math
from operator import attrgetter

import torch

from nfdist.config import Config, ModelConfig
from nfdist.errors import ConfigError
from nfdist.fields import each_setting
from nfdist.memory import host_bytes
from nfdist.model.baselines.gat import GAT
from nfdist.model.baselines.gcn import GCN, SGC, DropEdge, JKNet
from nfdist.model.baselines.glcn import GLCN
from nfdist.model.baselines.idgl import IDGL
from nfdist.model.baselines.mixhop import MixHop
from nfdist.model.baselines.mlp import MLP
from nfdist.model.baselines.vgcn import VGCN
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Model

MODELS: dict[str, type[Model]] = {
    "nodeformer": NodeFormer,
    "mlp": MLP,
    "gcn": GCN,
    "sgc": SGC,
    "gat": GAT,
    "mixhop": MixHop,
    "jknet": JKNet,
    "dropedge": DropEdge,
    "idgl": IDGL,
    "glcn": GLCN,
    "vgcn": VGCN,
}


def model_class(name: str) -> type[Model]:
    """The model of a name."""
    if name not in MODELS:
        raise ConfigError(f"model.name must be one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name]


def check_settings(config: Config) -> None:
    """Refuse what the model cannot do, and settings of another model, which would do nothing."""
    name, relation, train = config.model.name, config.relation, config.train
    kind = model_class(name)
    wrong = {
        f"relation.order={kind.orders.start}": relation.order if relation.order not in kind.orders else None,
        "relation.normalize=true": None if relation.normalize or kind.sweeps else "false",
        "relation.kind=pattern": None if relation.kind == "pattern" or kind.sweeps else relation.kind,
        "relation.weights=false": "true" if relation.weights and not kind.heeds_weights else None,
        "train.label_inputs=0": None if kind.takes_labels or train.label_inputs == 0 else train.label_inputs,
        "train.recompute=auto": None if kind.sweeps or train.recompute != "always" else "always",
        "model.norm=layer": "batch" if kind.sweeps and config.model.norm == "batch" else None,
        "model.join_heads=linear": None if kind.sweeps or config.model.join_heads == "linear" else "mean",
        "model.feed_forward=0": None if kind.sweeps else config.model.feed_forward or None,
        "run.device=cpu": None if kind.runs_on_gpu or config.run.device != "cuda" else "cuda",
        "train.edge_loss=0": None if kind.has_auxiliary_loss or train.edge_loss == 0 else train.edge_loss,
    }
    cures = [f"{cure} (is {value})" for cure, value in wrong.items() if value is not None]
    if cures:
        raise ConfigError(f"model.name = {name} needs other settings: set {' and '.join(cures)}")
    for full_name, field in each_setting(ModelConfig, "model."):
        owner, value = full_name.split(".")[1], attrgetter(full_name)(config)
        if owner in MODELS and owner != name and value != field.default:
            raise ConfigError(f"{full_name} = {value} is for {owner}: set it to {field.default} for {name}")
    kind.check_settings(config.model)


def model_device(name: str, device: torch.device) -> torch.device:
    """A device, or the CPU for a model that has no code for it."""
    return device if model_class(name).runs_on_gpu else torch.device("cpu")


def check_task(name: str, task: str) -> None:
    """Refuse a kind of task that a model has no answers for."""
    if task == "multi" and model_class(name).one_label:
        able = ", ".join(other for other, kind in MODELS.items() if not kind.one_label)
        raise ConfigError(
            f"model.name = {name} answers for one label a node, and these are several: take one of {able}"
        )


def build_model(config: Config, num_features: int, num_outputs: int, seed: int = 0, *, num_nodes: int = 0) -> Model:
    """The model of a configuration, its weights drawn from a seed, for a graph of so many nodes."""
    kind = model_class(config.model.name)
    _refuse_beyond_memory(config, num_features, num_outputs)
    _refuse_pairs_beyond_memory(config, num_nodes)
    return kind.build(config, num_features, num_outputs, seed, num_nodes)


def weights_dtype(config: Config) -> torch.dtype:
    """The type of a model's weights and states."""
    return torch.float64 if config.train.precision == "float64" else torch.float32


def count_weights(config: Config, num_features: int, num_outputs: int, num_nodes: int = 0) -> int:
    """About how many numbers the weights of a model have, for a graph of so many nodes."""
    model = config.model
    of_pairs = num_nodes**2 // 2 if model_class(model.name).weighs_pairs else 0
    layer = model.channels**2
    if model_class(model.name).sweeps:
        # Queries, keys, values and the output linear, if any, and both maps of a feed-forward block.
        layer *= (3 + (model.join_heads == "linear")) * model.heads + 2 * model.feed_forward
    return model.channels * (num_features + num_outputs) + model.layers * layer + of_pairs


def _refuse_beyond_memory(config: Config, num_features: int, num_outputs: int) -> None:
    """Refuse what no allocation would refuse: memory that is promised, and not there when it is used."""
    model, summary = config.model, 0
    if model_class(model.name).sweeps:
        summary = model.heads * config.attention.noise_draws * model.random_features * model.channels
    numbers = count_weights(config, num_features, num_outputs) + model.layers * summary
    needed, there = 16 * numbers, host_bytes()  # weights, gradients and Adam's two means, four bytes each
    if needed > there:
        raise ConfigError(
            f"a model of {model.layers} layers, {model.channels} channels, {model.heads} heads and {num_outputs} "
            f"outputs needs about {needed / 2**30:,.0f} GiB, this host has {there / 2**30:,.0f}: make [model] smaller"
        )


def _refuse_pairs_beyond_memory(config: Config, num_nodes: int) -> None:
    """Refuse a graph whose pairs of nodes take more than there is."""
    kind, item, there = model_class(config.model.name), weights_dtype(config).itemsize, host_bytes()
    held = max(kind.pair_numbers(config, training=True), kind.pair_numbers(config, training=False))
    pair_bytes = item * (held + (2 if kind.weighs_pairs else 0))  # with gradients and Adam's two means
    if pair_bytes * num_nodes**2 > there:
        raise ConfigError(
            f"model.name = {config.model.name} holds {pair_bytes:.0f} bytes for every pair of {num_nodes:,} nodes, "
            f"about {pair_bytes * num_nodes**2 / 2**30:,.0f} GiB, and this host has {there / 2**30:,.0f}, enough for "
            f"{math.isqrt(int(there / pair_bytes)):,} nodes: take a smaller graph, or another model.name"
        )
