"""Keys that are not heavy under noise may be left out: outputs and gradients are those of the dense definition."""

import pytest
import torch

from nfdist.attention import ops
from nfdist.attention.attend import attend
from nfdist.attention.dense import dense_attend
from nfdist.attention.ops.cpu.heavy_keys import HeavyKeys, few_are_heavy, find_heavy_keys, reach
from nfdist.attention.summary import KeySummary, summarize
from tests.attention.drawing import Problem, draw
from tests.comparing import assert_same, difference

SUMMARIES = "nfdist.attention.ops.cpu.summaries"


@pytest.fixture
def only_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no noisy summary be made of all keys."""

    def find(logs: torch.Tensor, noise: torch.Tensor, temperature: float) -> HeavyKeys:
        found = find_heavy_keys(logs, noise, temperature)
        assert found is not None
        assert found.counts.sum() < found.counts.numel() * noise.shape[2] / 3
        return found

    monkeypatch.setattr(f"{SUMMARIES}.find_heavy_keys", find)
    monkeypatch.setattr(f"{SUMMARIES}.few_are_heavy", lambda *_: True)


def summarized(problem: Problem) -> KeySummary:
    features = problem.kernel.key_features(problem.keys)
    return summarize(features, problem.values[:, 0], problem.kernel, problem.noise)


@pytest.mark.usefixtures("only_heavy")
@pytest.mark.parametrize("epsilon", [0.0, 1e-2])
@pytest.mark.parametrize(("heads", "draws"), [(1, 1), (1, 5), (3, 4)])
def test_equal_to_the_dense_definition_in_float64(heads: int, draws: int, epsilon: float) -> None:
    problem = draw(nodes=500, heads=heads, draws=draws, temperature=0.05, scale=0.3, epsilon=epsilon)
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    assert_same(attend(*arguments), dense_attend(*arguments), problem.inputs, 1e-10)


@pytest.mark.usefixtures("only_heavy")
def test_equal_to_the_dense_definition_in_float32() -> None:
    problem = draw(
        nodes=700, heads=2, channels=32, features=30, draws=2, temperature=0.1, scale=0.3, dtype=torch.float32
    )
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    assert_same(attend(*arguments), dense_attend(*arguments), problem.inputs, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masses_with_and_without_noise_are_those_of_all_keys(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = draw(nodes=20_000, heads=2, draws=3, temperature=0.1, dtype=dtype)
    assert few_are_heavy(20_000, 0.1, dtype)
    few = summarized(problem)
    monkeypatch.setattr(f"{SUMMARIES}.few_are_heavy", lambda *_: False)
    every = summarized(problem)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    for name in ("log_mass", "mean", "noise_free_log_mass"):
        assert difference(getattr(few, name), getattr(every, name)) < tolerance, name
    inputs = [problem.keys, problem.values]
    for name in ("log_mass", "mean", "noise_free_log_mass"):
        assert_same(getattr(few, name), getattr(every, name), inputs if name == "mean" else inputs[:1], 100 * tolerance)


@pytest.mark.parametrize("temperature", [0.05, 0.25, 0.3])
def test_what_is_left_out_is_below_rounding(temperature: float) -> None:
    log_weights = ops.gumbel(3, torch.arange(1_000_000), 4, torch.float64) / temperature
    shares = (log_weights - log_weights.amax(0)).softmax(0)
    left_out = (shares * (log_weights < log_weights.amax(0) - reach(temperature, torch.float32))).sum(0)
    assert left_out.max() < 2 * torch.finfo(torch.float32).eps
    assert few_are_heavy(1_000_000, temperature, torch.float32)


@pytest.mark.parametrize("scale", [30, 1e3])
def test_keys_far_apart_are_summed_up_whole_or_stay_exact(scale: float) -> None:
    problem = draw(nodes=500, heads=2, draws=3, temperature=0.05, scale=scale)
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    outputs = attend(*arguments)
    assert torch.isfinite(outputs).all()
    if scale == 30:
        assert_same(outputs, dense_attend(*arguments), problem.inputs, 1e-10)


def test_where_many_keys_are_heavy_there_is_nothing_to_leave_out() -> None:
    problem = draw(nodes=900, draws=3, temperature=1.0)
    logs = problem.kernel.key_features(problem.keys).logs.movedim(0, -1)
    assert problem.noise is not None
    assert find_heavy_keys(logs, problem.noise.movedim(0, -1), 1.0) is None
    assert not few_are_heavy(10**9, 1.0, torch.float32)
    assert not few_are_heavy(10**9, 1.5, torch.float32)
    assert few_are_heavy(10**6, 0.25, torch.float32)
    assert not few_are_heavy(0, 0.01, torch.float32)


def test_a_heavy_key_that_no_noise_favors_still_counts() -> None:
    problem = draw(nodes=900, draws=2, temperature=0.05, scale=0.3)
    assert problem.noise is not None
    with torch.no_grad():
        problem.noise[17] = -3.0
        problem.keys[17] *= 12
    arguments = (problem.queries, problem.keys, problem.values, problem.kernel, problem.noise)
    assert_same(attend(*arguments), dense_attend(*arguments), problem.inputs, 1e-10)
