"""The random features: what they estimate, how well (law e), and what noise does to the weights (law d)."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from nfdist import seeds
from nfdist.attention import ops
from nfdist.attention.dense import dense_log_weights, exact_log_weights
from nfdist.attention.kernel import Kernel
from nfdist.errors import ConfigError


def unit_rows(count: int, channels: int, seed: int) -> torch.Tensor:
    rows = torch.randn(count, 1, channels, generator=seeds.generator(seed, "rows"), dtype=torch.float64)
    return F.normalize(rows, dim=2)


def kernel_error(num_features: int, temperature: float, repeats: int = 30) -> float:
    """Root mean square of the relative error of phi(q).phi(k) as an estimate of exp(q.k / (temperature sqrt(d)))."""
    queries, keys = unit_rows(20, 16, 1), unit_rows(20, 16, 2)
    exact = torch.einsum("uhd,vhd->uv", queries, keys) / (temperature * 16**0.5)
    errors = []
    for repeat in range(repeats):
        kernel = Kernel.draw(num_features, 16, temperature, seeds.generator(repeat, "law e"), dtype=torch.float64)
        norms = queries.square().sum(2) / (temperature * 16**0.5) / 2 + torch.tensor(num_features).log() / 2
        logs = kernel.query_features(queries) - norms[..., None]
        estimate = (logs[:, None] + kernel.key_features(keys).logs[None]).logsumexp(3)[..., 0]
        errors.append(((estimate - exact).exp() - 1).square().mean())
    return float(torch.stack(errors).mean().sqrt())


def test_the_kernel_error_shrinks_as_one_over_the_root_of_the_features() -> None:
    errors = [kernel_error(num_features, 0.25) for num_features in (16, 64, 256, 1024)]
    for coarse, fine in pairwise(errors):
        assert 1.5 < coarse / fine < 2.7


def test_the_kernel_error_grows_as_the_temperature_falls() -> None:
    errors = [kernel_error(64, temperature) for temperature in (2.0, 1.0, 0.5, 0.25, 0.1)]
    assert errors == sorted(errors)


@pytest.mark.parametrize("temperature", [0.05, 0.25, 1.0, 4.0])
def test_the_noisy_argmax_follows_the_softmax_at_every_temperature(temperature: float) -> None:
    generator = seeds.generator(3, "law d")
    queries, keys = (torch.randn(6, 1, 4, generator=generator, dtype=torch.float64) * 2 for _ in range(2))
    draws = 20_000
    noise = ops.gumbel(9, torch.arange(6), draws, torch.float64).view(6, 1, draws)
    winners = exact_log_weights(queries, keys, temperature, noise)[0].argmax(2)
    wanted = (torch.einsum("uhd,vhd->uv", queries, keys) / 2).softmax(1)
    found = torch.stack([(winners == key).double().mean(0) for key in range(6)], 1)
    assert (found - wanted).abs().max() < 4 * (0.25 / draws) ** 0.5


def test_the_largest_weight_tends_to_one_as_the_temperature_falls() -> None:
    generator = seeds.generator(4, "law d")
    queries, keys = (torch.randn(8, 1, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    noise = ops.gumbel(5, torch.arange(8), 500, torch.float64).view(8, 1, 500)
    largest = [
        float(exact_log_weights(queries, keys, temperature, noise).exp().amax(3).mean())
        for temperature in (1.0, 0.3, 0.1, 0.03, 0.01)
    ]
    assert largest == sorted(largest)
    assert largest[-1] > 0.98


def test_kernelized_weights_approach_the_exact_ones_as_features_grow() -> None:
    queries, keys = unit_rows(10, 8, 6), unit_rows(10, 8, 7)
    noise = ops.gumbel(6, torch.arange(10), 20, torch.float64).view(10, 1, 20)
    exact = exact_log_weights(queries, keys, 0.5, noise).exp()

    def distance(num_features: int) -> float:
        kernels = (
            Kernel.draw(num_features, 8, 0.5, seeds.generator(repeat, "law d"), dtype=torch.float64)
            for repeat in range(10)
        )
        distances = [
            (dense_log_weights(queries, keys, kernel, noise).exp() - exact).abs().sum(3).mean() for kernel in kernels
        ]
        return float(torch.stack(distances).mean())

    distances = [distance(num_features) for num_features in (8, 64, 512)]
    assert distances[0] > 2 * distances[1] > 4 * distances[2]


def test_directions_are_orthogonal_blocks_with_gaussian_norms() -> None:
    directions = Kernel.draw(40, 16, 1.0, seeds.generator(0, "blocks"), dtype=torch.float64).directions
    for block in directions.split(16):
        cosines = torch.nn.functional.normalize(block) @ torch.nn.functional.normalize(block).t()
        assert torch.allclose(cosines, torch.eye(len(block), dtype=torch.float64), atol=1e-12)
    norms = Kernel.draw(4000, 16, 1.0, seeds.generator(1, "norms"), dtype=torch.float64).directions.norm(dim=1)
    assert abs(float(norms.square().mean()) - 16) < 0.5


def test_directions_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = Kernel.draw(30, 8, 0.25, seeds.generator(3, "directions", 5, 1))
    torch.manual_seed(2)
    again = Kernel.draw(30, 8, 0.25, seeds.generator(3, "directions", 5, 1))
    other = Kernel.draw(30, 8, 0.25, seeds.generator(3, "directions", 6, 1))
    assert torch.equal(one.directions, again.directions)
    assert not torch.equal(one.directions, other.directions)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_not_positive_is_named(temperature: float) -> None:
    with pytest.raises(ConfigError, match=f"temperature must be positive.*{temperature}"):
        Kernel(torch.ones(2, 2), temperature)


def test_kernels_without_features_or_with_a_negative_epsilon_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one feature and one channel, got 0 and 8"):
        Kernel.draw(0, 8, 0.25, seeds.generator(0))
    with pytest.raises(ConfigError, match="epsilon must be zero or positive, got -1"):
        Kernel(torch.ones(2, 2), 0.25, -1.0)
    with pytest.raises(ConfigError, match=r"keys must be \[nodes, heads, 2\], got \[3, 2\]"):
        Kernel(torch.ones(2, 2), 0.25).key_features(torch.ones(3, 2))
