"""nfdist: NodeFormer for large graphs, all-pair attention at a cost linear in the number of nodes.

The public names are those of nfdist.public. They load on first use, so that the command line starts without torch.
"""

from importlib import import_module

TYPE_CHECKING = False  # without typing, whose import a Ctrl-C could interrupt before anybody tells of it (__main__.py)
if TYPE_CHECKING:
    from typing import Any

    from nfdist.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    from importlib.util import find_spec

    if name == "__all__":
        return __dir__()
    if not name.startswith("_") and find_spec(f"nfdist.{name}") is None:  # a module is imported as such
        public = vars(import_module("nfdist.public"))
        if name in public:
            return public[name]
    raise AttributeError(f"module 'nfdist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*(name for name in vars(import_module("nfdist.public")) if not name.startswith("_")), "__version__"]
