"""Law (a): the kernelized attention is the dense definition on the same features, in outputs and gradients."""

import pytest
import torch

from nfdist.attention.attend import attend, attend_to
from nfdist.attention.dense import dense_attend, dense_log_weights
from nfdist.attention.summary import KeySummary, summarize
from nfdist.errors import ConfigError
from tests.attention.drawing import Problem, draw
from tests.comparing import assert_same, difference


def both(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    return attend(*arguments), dense_attend(*arguments)


@pytest.mark.parametrize("scale", [1, 30])
@pytest.mark.parametrize("temperature", [0.05, 0.25, 1.0, 2.0])
@pytest.mark.parametrize("draws", [0, 1, 5, 10])
@pytest.mark.parametrize("heads", [1, 4])
def test_kernelized_equals_dense_in_float64(heads: int, draws: int, temperature: float, scale: float) -> None:
    problem = draw(heads=heads, draws=draws, temperature=temperature, scale=scale)
    assert_same(*both(problem), problem.inputs, 1e-10)


@pytest.mark.parametrize("draws", [0, 1, 5, 10])
def test_kernelized_equals_dense_in_float32(draws: int) -> None:
    problem = draw(nodes=300, heads=4, channels=32, features=30, draws=draws, dtype=torch.float32)
    assert_same(*both(problem), problem.inputs, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("draws", [0, 5])
@pytest.mark.parametrize("temperature", [0.05, 0.25])
def test_huge_inputs_stay_finite_and_inside_the_range_of_values(
    temperature: float, draws: int, dtype: torch.dtype
) -> None:
    problem = draw(heads=2, draws=draws, temperature=temperature, scale=1e3, dtype=dtype)
    outputs = both(problem)[0]
    assert torch.isfinite(outputs).all()
    low, high = problem.values.amin(0), problem.values.amax(0)
    slack = 1e-5 * problem.values.abs().max()
    assert ((outputs >= low - slack) & (outputs <= high + slack)).all()
    for gradient in torch.autograd.grad(outputs.sum(), problem.inputs):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("draws", [0, 3])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-2])
def test_epsilon_equals_its_dense_definition(epsilon: float, draws: int) -> None:
    problem = draw(heads=2, draws=draws, epsilon=epsilon)
    assert_same(*both(problem), problem.inputs, 1e-10)


def test_a_million_keys_under_noise_do_not_overflow() -> None:
    problem = draw(nodes=1_000_000, channels=4, features=4, draws=2, temperature=0.05, dtype=torch.float32)
    outputs = both_million(problem)
    assert torch.isfinite(outputs).all()
    assert outputs.abs().max() <= problem.values.abs().max() * (1 + 1e-5)


def both_million(problem: Problem) -> torch.Tensor:
    with torch.no_grad():
        return attend(problem.queries[:100], problem.keys, problem.values, problem.kernel, problem.noise)


def test_log_normalizers_are_those_of_the_dense_weights_without_noise() -> None:
    problem = draw(heads=2, draws=3)
    kernel = problem.kernel
    features = kernel.query_features(problem.queries)
    keys = kernel.key_features(problem.keys)
    summary = summarize(keys, problem.values[:, 0], kernel, problem.noise)
    attended = attend_to(features, summary, kernel)
    products = (features[:, None] + keys.logs[None]).logsumexp(3)
    assert_same(attended.log_normalizers, products.logsumexp(1), [problem.queries, problem.keys], 1e-10)
    log_weights = products - attended.log_normalizers[:, None]
    dense = dense_log_weights(problem.queries, problem.keys, kernel)[:, 0].permute(1, 2, 0)
    assert difference(log_weights, dense) < 1e-10


def test_draws_that_cannot_share_an_exponential_are_taken_one_at_a_time() -> None:
    """In float32 the spread of these draws underflows; a sum over all of them would silently lose most."""
    problem = draw(nodes=40, draws=5, temperature=0.02, scale=3, dtype=torch.float32)
    exact = draw(nodes=40, draws=5, temperature=0.02, scale=3)
    assert difference(both(problem)[0].double(), both(exact)[1]) < 1e-3


def test_an_empty_summary_answers_with_zeros() -> None:
    problem = draw(nodes=5)
    kernel = problem.kernel
    summary = KeySummary.empty(summarize(kernel.key_features(problem.keys), problem.values[:, 0], kernel))
    attended = attend_to(kernel.query_features(problem.queries), summary, kernel)
    assert (attended.outputs == 0).all()


def test_the_global_random_state_is_untouched() -> None:
    state = torch.random.get_rng_state()
    problem = draw(draws=2)
    both(problem)[0].sum().backward()
    assert torch.equal(state, torch.random.get_rng_state())


def test_shapes_that_do_not_fit_are_named() -> None:
    problem = draw(heads=2, draws=2)
    with pytest.raises(ConfigError, match=r"queries.*\[61, 2, 7\]"):
        attend(problem.queries[..., :7], problem.keys, problem.values, problem.kernel)
    assert problem.noise is not None
    with pytest.raises(ConfigError, match=r"noise must be .*got \[60, 2, 2\]"):
        attend(problem.queries, problem.keys, problem.values, problem.kernel, problem.noise[:-1])
