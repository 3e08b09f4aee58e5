"""What some tests need and some Pythons cannot have."""

import sys
from importlib.util import find_spec

import pytest

# Where DGL can be had, its absence is a failure and no reason to skip.
HAS_DGL = sys.version_info < (3, 13) or find_spec("dgl") is not None
MODELS_WITH_DGL = frozenset({"gat"})
MODELS_LEFT_OUT = frozenset() if HAS_DGL else MODELS_WITH_DGL
needs_dgl = pytest.mark.skipif(not HAS_DGL, reason="DGL has no release for this Python")
