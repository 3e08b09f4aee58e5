"""Features equal the definition in values and gradients, whatever lies how in memory."""

import math

import pytest
import torch

from tests.attention.ops.triton_kernels.running import assert_defined, random

pytestmark = pytest.mark.accelerator


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("nodes", "heads", "channels", "features"), [(0, 1, 4, 3), (1, 1, 7, 5), (130, 2, 40, 70)])
def test_features_of_keys(nodes: int, heads: int, channels: int, features: int, dtype: torch.dtype) -> None:
    keys = random(nodes, heads, channels, seed=1, dtype=dtype)
    directions = random(features, channels, seed=2, dtype=dtype).detach()
    tolerance = 2e-2 if dtype == torch.bfloat16 else None
    assert_defined("key_logs", [keys], directions, 0.7, tolerance=tolerance)


def test_keys_may_lie_in_memory_node_last() -> None:
    keys = random(3, 7, 20, seed=1, dtype=torch.float64).detach().movedim(-1, 0).requires_grad_()
    assert_defined("key_logs", [keys], random(5, 7, seed=2, dtype=torch.float64).detach(), 0.7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("nodes", "heads"), [(1, 1), (70, 3)])
def test_queries_and_keys_of_hidden_states(nodes: int, heads: int, dtype: torch.dtype) -> None:
    channels, features = 7, 30
    shapes = ((nodes, channels), *((heads * width, *inner) for width in (features, channels) for inner in ((7,), ())))
    inputs = [
        random(*shape, seed=index, dtype=dtype, scale=1 / math.sqrt(channels)) for index, shape in enumerate(shapes)
    ]
    assert_defined("project", inputs, random(features, channels, seed=9, dtype=dtype).detach(), 0.7)
