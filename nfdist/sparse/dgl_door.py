"""The one place that imports DGL, so that losing it touches one place.

Releases 1.1.3 and 2.1.0 are tested. Both ask for things that nothing here uses, which are settled before the import:
1.1.3 for `setuptools.extern`, which setuptools dropped, 2.1.0 for the library of `dgl.graphbolt`, which torch after
2.2.1 has none of, and each for a choice of backend that it would otherwise write to the user's home.
"""

import os
import sys
import types
import warnings
from functools import cache
from typing import Any

from nfdist.errors import ConfigError

REMEDY = (
    "pip install 'dgl>=1.1.3,<3'"
    if sys.version_info < (3, 13)
    else "it has no release for Python 3.13 or newer, use Python 3.10 to 3.12"
)


@cache
def dgl() -> Any:
    """The DGL module, imported on first use."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    stand_ins = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl as module
    except (ImportError, OSError) as error:
        for name in stand_ins:
            del sys.modules[name]
        raise ConfigError(f"DGL cannot be imported ({' '.join(str(error).split())}): {REMEDY}") from error
    return module


@cache
def dgl_layers() -> Any:
    """DGL's layers for torch, imported on first use."""
    dgl()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dgl.nn.pytorch as layers
    return layers


def _stand_ins() -> dict[str, types.ModuleType]:
    """Modules, by name, that DGL imports and that cannot be had."""
    try:
        import packaging.version
    except ImportError:  # as where DGL is not installed, which needs it
        return {}
    extern, graphbolt = types.ModuleType("setuptools.extern"), types.ModuleType("dgl.graphbolt")
    extern.packaging = packaging  # type: ignore[attr-defined]
    graphbolt.__getattr__ = _no_graphbolt  # type: ignore[method-assign]
    return {"setuptools.extern": extern, "setuptools.extern.packaging": packaging, "dgl.graphbolt": graphbolt}


def _no_graphbolt(name: str) -> Any:
    raise AttributeError(f"dgl.graphbolt.{name} cannot be used beside nfdist: its library needs torch 2.2.1 or older")
