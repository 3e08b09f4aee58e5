"""Randomness is a function of names and node ids, and has the right distribution."""

import math

import torch

from nfdist import seeds
from nfdist.attention import ops

IDS = torch.arange(200_000)


def test_noise_belongs_to_the_node_not_to_its_place_or_company() -> None:
    whole = ops.gumbel(7, IDS, 3)
    order = torch.randperm(len(IDS), generator=seeds.generator(0, "order"))[:1000]
    assert torch.allclose(ops.gumbel(7, IDS[order], 3), whole[order], rtol=1e-6)
    assert torch.equal(ops.gumbel(7, IDS[:10], 2), whole[:10, :2])
    mask, _ = ops.keep_mask(7, IDS, 10, 0.3)
    assert torch.equal(ops.keep_mask(7, IDS[order], 10, 0.3)[0], mask[order])


def test_noise_has_the_moments_and_tail_of_a_gumbel_distribution() -> None:
    noise = ops.gumbel(1, IDS, 4, torch.float64)
    assert abs(float(noise.mean()) - 0.5772) < 0.01
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.02
    for quantile in (0.001, 0.01, 0.5, 0.99, 0.999, 0.99999):
        share = float((noise <= -math.log(-math.log(quantile))).double().mean())
        assert abs(share - quantile) < 5 * math.sqrt(quantile * (1 - quantile) / noise.numel())


def test_streams_keys_and_neighbors_are_independent() -> None:
    noise = ops.gumbel(1, IDS, 4)
    series = [*noise.t(), ops.gumbel(2, IDS, 1)[:, 0], noise[:, 0].roll(1), noise[:, 0].roll(64)]
    correlations = torch.corrcoef(torch.stack(series)) - torch.eye(len(series))
    assert correlations.abs().max() < 0.012


def test_float32_noise_is_the_rounded_float64_noise_and_always_finite() -> None:
    single, double = (ops.gumbel(3, IDS, 2, dtype) for dtype in (torch.float32, torch.float64))
    assert torch.isfinite(single).all()
    assert torch.allclose(single.double(), double, atol=0.1)  # the smallest noise is the coarsest, and weighs nothing
    assert torch.allclose(single.double()[double > -2], double[double > -2], atol=1e-4)


def test_masks_keep_the_right_share_and_the_mean() -> None:
    for rate in (0.1, 0.5, 0.9):
        mask, scale = ops.keep_mask(4, IDS, 9, rate)
        assert mask.shape == (len(IDS), 9)
        assert abs(float(mask.double().mean()) - (1 - rate)) < 0.002
        assert abs(scale * (1 - rate) - 1) < 1e-3
        correlations = torch.corrcoef(mask.t().double()) - torch.eye(9)
        assert correlations.abs().max() < 0.012


def test_pairs_are_kept_by_their_ids_in_the_right_share_and_independently() -> None:
    sources, targets = IDS % 449, IDS // 449
    kept = seeds.keep_pairs(5, sources, targets, 0.3)
    order = torch.randperm(len(IDS), generator=seeds.generator(0, "order"))
    assert torch.equal(seeds.keep_pairs(5, sources[order], targets[order], 0.3), kept[order])
    assert abs(float(kept.double().mean()) - 0.7) < 0.005
    series = [kept, seeds.keep_pairs(5, targets, sources, 0.3), seeds.keep_pairs(6, sources, targets, 0.3)]
    series += [kept.roll(1), kept.roll(449)]
    correlations = torch.corrcoef(torch.stack(series).double()) - torch.eye(len(series))
    assert correlations.abs().max() < 0.012


def test_seeds_of_different_purposes_differ_and_repeat() -> None:
    paths = [("noise", 1, 2), ("noise", 12), ("noise", 1, "2"), ("dropout", 1, 2)]
    derived = [seeds.derive(0, *path) for path in paths] + [seeds.derive(1, "noise", 1, 2)]
    assert len(set(derived)) == len(derived)
    assert seeds.derive(0, "noise", 1, 2) == derived[0]
    assert all(0 <= seed < 2**63 for seed in derived)


def mixed(key: int, number: int) -> int:
    """SplitMix64 of a key and a number, in Python's own integers."""
    bits = (key + number * 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def test_a_hash_of_two_numbers_is_that_of_tensors() -> None:
    for key in (0, 7, 2**63 - 1, -5):
        numbers = [0, 1, 2**40 + 3, -(2**62)]
        assert seeds.hash_ids(torch.tensor(key), torch.tensor(numbers)).tolist() == [
            seeds.hash_id(key, number) for number in numbers
        ]


def test_noise_is_what_runs_of_earlier_versions_had() -> None:
    """A run that is resumed by another version must draw the same."""
    noise = ops.gumbel(7, torch.tensor([0, 5, 123_456]), 3, torch.float64)
    for row, node in zip(noise.tolist(), (0, 5, 123_456), strict=True):
        pairs = [mixed(mixed(7, pair), node) for pair in range(2)]
        halves = [half & 0x7FFFFFFF for bits in pairs for half in (bits, bits >> 32)][:3]
        wanted = [-math.log(-math.log1p(-(half + 0.5) * 2**-31)) for half in halves]
        assert all(math.isclose(left, right, rel_tol=1e-12) for left, right in zip(row, wanted, strict=True))
