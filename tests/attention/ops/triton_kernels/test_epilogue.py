"""The epilogue equals the definition, with and without each of its parts."""

from itertools import product

import pytest
import torch

from nfdist.attention.ops import definition
from tests.attention.ops.triton_kernels.running import DEVICE, KERNELS, TOLERANCES, random
from tests.comparing import assert_same

pytestmark = pytest.mark.accelerator


@pytest.mark.parametrize(("norm", "elu", "drop"), list(product([True, False], [True, False], [0.0, 0.3])))
@pytest.mark.parametrize(("nodes", "channels", "terms"), [(0, 7, 2), (1, 7, 1), (130, 64, 3), (9, 100, 5)])
def test_equal_to_the_definition(nodes: int, channels: int, terms: int, norm: bool, elu: bool, drop: float) -> None:
    dtype = torch.float32 if channels == 100 else torch.float64
    rows = [random(nodes, channels, seed=seed, dtype=dtype) for seed in range(terms)]
    scale, shift = (random(channels, seed=seed, dtype=dtype) if norm else None for seed in (8, 9))
    dropout = (1 << 60, torch.arange(nodes, device=DEVICE) * 7, drop) if drop else None
    found, wanted = (
        module.add_norm(*rows, scale=scale, shift=shift, elu=elu, dropout=dropout).cpu()
        for module in (KERNELS, definition)
    )
    inputs = [*rows, *(tensor for tensor in (scale, shift) if tensor is not None)]
    if nodes:
        assert_same(found, wanted, inputs, TOLERANCES[dtype])
    else:
        assert [grad.abs().sum() for grad in torch.autograd.grad(found.sum(), inputs)] == [0] * len(inputs)
