"""The public list is what the documentation says, loads lazily, and works for a user of the library alone."""

import subprocess
import sys

import pytest
import torch

import nfdist
from nfdist import api


def test_every_public_name_is_importable_and_nothing_is_left_off_the_list() -> None:
    offered = {name for name in vars(api) if not name.startswith("_")}
    assert offered == set(nfdist.__all__) - {"__version__"}
    assert all(getattr(nfdist, name) is getattr(api, name) for name in offered)
    with pytest.raises(AttributeError, match="no attribute 'Nodeformer'"):
        _ = nfdist.Nodeformer


def test_importing_the_package_loads_neither_torch_nor_dgl() -> None:
    code = "import nfdist, sys; sys.exit('torch' in sys.modules or 'dgl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_operator_works_without_the_rest() -> None:
    code = "import nfdist, sys; nfdist.attend; sys.exit('dgl' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    kernel = nfdist.Kernel.draw(30, 16, 0.25, torch.Generator().manual_seed(0))
    queries, keys, values = torch.randn(3, 100, 2, 16, generator=torch.Generator().manual_seed(1))
    assert nfdist.attend(queries, keys, values, kernel).shape == (100, 2, 16)
