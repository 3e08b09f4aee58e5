"""The one place that imports DGL, so that losing it touches one place.

DGL 1.1.3 asks for `setuptools.extern`, which setuptools dropped, and for a backend choice it would otherwise write to
the user's home; both are settled here before the import.
"""

import os
import sys
import types
import warnings
from functools import cache
from typing import Any

from nfdist.errors import ConfigError


@cache
def dgl() -> Any:
    """The DGL module, imported on first use."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if "setuptools.extern" not in sys.modules:
        import packaging.version

        extern = types.ModuleType("setuptools.extern")
        extern.packaging = packaging  # type: ignore[attr-defined]
        sys.modules["setuptools.extern"] = extern
        sys.modules["setuptools.extern.packaging"] = packaging
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl as module
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"DGL cannot be imported ({error}): install dgl==1.1.3, its last release for any torch"
        ) from error
    return module


@cache
def dgl_layers() -> Any:
    """DGL's layers for torch, imported on first use."""
    dgl()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dgl.nn.pytorch as layers
    return layers
