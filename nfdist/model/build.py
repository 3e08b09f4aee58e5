"""The model that a configuration names: NodeFormer, or one of the baselines it is compared with."""

from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.memory import host_bytes
from nfdist.model.baselines.baseline import Baseline
from nfdist.model.baselines.gat import GAT
from nfdist.model.baselines.gcn import GCN, SGC, DropEdge, JKNet
from nfdist.model.baselines.idgl import IDGL
from nfdist.model.baselines.mixhop import MixHop
from nfdist.model.baselines.mlp import MLP
from nfdist.model.nodeformer import NodeFormer

Model = NodeFormer | Baseline

KINDS: dict[str, type[Baseline]] = {
    "mlp": MLP,
    "gcn": GCN,
    "sgc": SGC,
    "gat": GAT,
    "mixhop": MixHop,
    "jknet": JKNet,
    "dropedge": DropEdge,
    "idgl": IDGL,
}


def build_model(config: Config, num_features: int, num_outputs: int, seed: int = 0) -> Model:
    """The model of a configuration, its weights drawn from a seed."""
    _refuse_beyond_memory(config, num_features, num_outputs)
    if config.model.name == "nodeformer":
        return NodeFormer(num_features, num_outputs, config.model, config.attention, config.relation, seed=seed)
    return KINDS[config.model.name](num_features, num_outputs, config.model, seed=seed)


def _refuse_beyond_memory(config: Config, num_features: int, num_outputs: int) -> None:
    """Refuse what no allocation would refuse: memory that is promised, and not there when it is used."""
    model = config.model
    layer, summary = model.channels**2, 0
    if model.name == "nodeformer":
        layer *= 4 * model.heads  # queries, keys, values, and the output linear
        summary = model.heads * config.attention.noise_draws * model.random_features * model.channels
    numbers = model.channels * (num_features + num_outputs) + model.layers * (layer + summary)
    needed, there = 16 * numbers, host_bytes()  # weights, gradients and Adam's two means, four bytes each
    if needed > there:
        raise ConfigError(
            f"a model of {model.layers} layers, {model.channels} channels, {model.heads} heads and {num_outputs} "
            f"outputs needs about {needed / 2**30:,.0f} GiB, this host has {there / 2**30:,.0f}: make [model] smaller"
        )
