"""Law (b): the summary of a whole is the merge of the summaries of its parts."""

from functools import reduce
from itertools import pairwise

import pytest
import torch

from nfdist.attention.attend import attend_to
from nfdist.attention.kernel import KeyFeatures
from nfdist.attention.summary import KeySummary, summarize
from nfdist.errors import ConfigError
from tests.attention.drawing import Problem, draw
from tests.comparing import assert_same, difference


def parts_of(problem: Problem, cuts: list[int]) -> list[KeySummary]:
    """One summary for every part between two cuts."""
    features = problem.kernel.key_features(problem.keys)
    bounds = [0, *cuts, len(problem.keys)]
    return [
        summarize(
            KeyFeatures(features.logs[start:stop], None)
            if problem.kernel.epsilon == 0
            else problem.kernel.key_features(problem.keys[start:stop]),
            problem.values[start:stop, 0],
            problem.kernel,
            None if problem.noise is None else problem.noise[start:stop],
        )
        for start, stop in pairwise(bounds)
    ]


def outputs(problem: Problem, summary: KeySummary) -> torch.Tensor:
    return attend_to(problem.kernel.query_features(problem.queries), summary, problem.kernel).outputs


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
@pytest.mark.parametrize("scale", [1, 30])
@pytest.mark.parametrize("draws", [0, 5])
@pytest.mark.parametrize("cuts", [[], [1], [0, 7], [3, 3, 60], [61], list(range(61))])
def test_summary_of_whole_equals_merge_of_parts(cuts: list[int], draws: int, scale: float, epsilon: float) -> None:
    problem = draw(heads=2, draws=draws, scale=scale, epsilon=epsilon)
    whole = parts_of(problem, [])[0]
    merged = reduce(KeySummary.merge, parts_of(problem, cuts), KeySummary.empty(whole))
    assert difference(merged.noise_free_log_mass, whole.noise_free_log_mass) < 1e-12
    if epsilon == 0 or scale == 1:  # beyond that, epsilon drowns every feature and gradients are rounding noise
        assert_same(outputs(problem, merged), outputs(problem, whole), problem.inputs, 1e-10)


def test_thousands_of_parts() -> None:
    problem = draw(nodes=4000, draws=2, dtype=torch.float32)
    merged = reduce(KeySummary.merge, parts_of(problem, list(range(1, 4000))))
    whole = parts_of(problem, [])[0]
    assert_same(outputs(problem, merged), outputs(problem, whole), problem.inputs, 1e-4)


def test_merging_is_associative_and_commutative_with_the_empty_summary_as_identity() -> None:
    one, two, three = parts_of(draw(heads=2, draws=3), [11, 40])
    left, right = one.merge(two).merge(three), one.merge(two.merge(three))
    assert difference(left.mean, right.mean) < 1e-12
    assert difference(left.log_mass, right.log_mass) < 1e-12
    assert difference(one.merge(two).mean, two.merge(one).mean) < 1e-12
    for merged in (one.merge(KeySummary.empty(one)), KeySummary.empty(one).merge(one)):
        assert torch.equal(merged.mean, one.mean)
        assert torch.equal(merged.log_mass, one.log_mass)
    nothing = KeySummary.empty(one).merge(KeySummary.empty(one))
    assert torch.equal(nothing.log_mass, KeySummary.empty(one).log_mass)
    assert (nothing.mean == 0).all()


def test_mapping_the_means_is_mapping_the_values() -> None:
    problem = draw(draws=3)
    weight, bias = torch.randn(5, 8, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    features = problem.kernel.key_features(problem.keys)
    before = summarize(features, problem.values[:, 0] @ weight.t() + bias, problem.kernel, problem.noise)
    after = summarize(features, problem.values[:, 0], problem.kernel, problem.noise).mapped(weight[None], bias[None])
    assert difference(after.mean, before.mean) < 1e-12


def test_a_summary_has_no_node_axis() -> None:
    few, many = (parts_of(draw(nodes=nodes, draws=5), [])[0] for nodes in (1, 999))
    assert few.mean.shape == many.mean.shape == (1, 5, 12, 8)
    assert few.log_mass.shape == many.log_mass.shape == (1, 5, 12)


def test_summaries_that_do_not_fit_are_named() -> None:
    one, other = parts_of(draw(draws=2), [])[0], parts_of(draw(draws=3), [])[0]
    with pytest.raises(ConfigError, match=r"\[1, 2, 12, 8\] and \[1, 3, 12, 8\]"):
        one.merge(other)
