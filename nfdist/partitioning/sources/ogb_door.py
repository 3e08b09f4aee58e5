"""The one place that imports ogb: its reader of raw files, without the online version check that ogb starts."""

import sys
import warnings
from functools import cache
from typing import Any

from nfdist.errors import ConfigError


@cache
def ogb_reader() -> Any:
    """The module ogb.io.read_graph_raw, imported on first use."""
    had = "outdated" in sys.modules
    previous = sys.modules.get("outdated")
    # ogb starts a thread that asks the network for its latest version unless `outdated` cannot be imported; None in
    # this place makes the import fail.
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ogb.io import read_graph_raw
    except ImportError as error:
        raise ConfigError(f"ogb cannot be imported ({error}): install ogb==1.3.6") from error
    finally:
        del sys.modules["outdated"]
        if had and previous is not None:
            sys.modules["outdated"] = previous
    return read_graph_raw
