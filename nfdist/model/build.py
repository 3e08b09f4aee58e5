"""The model that a configuration names: NodeFormer, or one of the baselines it is compared with."""

from nfdist.config import Config
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
    if config.model.name == "nodeformer":
        return NodeFormer(num_features, num_outputs, config.model, config.attention, config.relation, seed=seed)
    return KINDS[config.model.name](num_features, num_outputs, config.model, seed=seed)
