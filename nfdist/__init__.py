"""nfdist: NodeFormer for large graphs, all-pair attention at a cost linear in the number of nodes.

The public names load on first use, so that the command line starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nfdist.api import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Attended",
    "AttentionConfig",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DistributedStore",
    "Draw",
    "Kernel",
    "KeyFeatures",
    "KeySummary",
    "Loss",
    "ModelConfig",
    "NfdistError",
    "NodeFormer",
    "Output",
    "PartitionError",
    "Relation",
    "RelationConfig",
    "Run",
    "Store",
    "Task",
    "TrainedModel",
    "World",
    "WorldError",
    "__version__",
    "attend",
    "attend_to",
    "build_relations",
    "knn_graph",
    "load_model",
    "summarize",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("nfdist.api"), name)
    raise AttributeError(f"module 'nfdist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
