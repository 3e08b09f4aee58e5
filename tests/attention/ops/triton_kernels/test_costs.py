"""The calculated bytes of a kernel are those of the tensors that its launch is given."""

import importlib
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed: pip install nfdist[gpu]")

from tests.attention.ops.triton_kernels.compiling import DRAWS, HEADS, NODES, launches
from tests.docs.pages import ROOT


@pytest.mark.parametrize(("dtype", "channels", "features"), [(torch.float32, 64, 50), (torch.bfloat16, 32, 70)])
def test_bytes_are_those_of_the_tensors(
    dtype: torch.dtype, channels: int, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])
    model: Any = importlib.import_module("kernel_costs")
    found = {}
    for kernel, arguments, _ in launches(dtype, channels, features):
        tensors = {argument.data_ptr(): argument.nbytes for argument in arguments if isinstance(argument, Tensor)}
        found[kernel.__name__.removeprefix("_").removesuffix("_kernel")] = sum(tensors.values())
    width = torch.finfo(dtype).bits // 8
    sizes = model.Sizes(NODES, HEADS, channels, features, DRAWS, NODES, width)
    calculated = {name: cost.bytes for name, cost in model.costs(sizes).items()}
    edges = {name for name in calculated if name.startswith(("log_product", "pull"))}  # gather, an edge at a time
    assert {name: found[name] for name in calculated.keys() - edges} == pytest.approx(
        {name: calculated[name] for name in calculated.keys() - edges}, rel=0.03
    )
