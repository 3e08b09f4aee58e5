import gc
from typing import Any

import pytest
import scipy.sparse
import torch
from torch import Tensor

from nfdist import seeds
from nfdist.attention import ops
from nfdist.model import linear
from nfdist.model.epilogue import Dropout
from nfdist.model.linear import InputLinear, sparse_product
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.csr import sparse_csr


def sparse_rows(dense: Tensor) -> Tensor:
    matrix = scipy.sparse.csr_array(dense.numpy())
    indptr, indices, values = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return sparse_csr(indptr, indices, values, (len(dense), dense.shape[1]))


def test_products_with_the_same_sparse_rows_transpose_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transposed: list[object] = []
    make = Adjacency._scipy

    def counted(entries: Adjacency, *values: Any) -> Any:
        transposed.append(1)
        return make(entries, *values)

    monkeypatch.setattr(Adjacency, "_scipy", counted)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(20, 7, generator=generator).relu()
    rows = sparse_rows(dense)
    for step in range(3):
        table = torch.randn(7, 4, generator=generator, requires_grad=True)
        pull = torch.randn(20, 4, generator=generator)
        product = sparse_product(rows, table)
        torch.testing.assert_close(product, dense @ table)
        (gradient,) = torch.autograd.grad(product, table, pull)
        torch.testing.assert_close(gradient, dense.t() @ pull)
        assert len(transposed) == 1, step
    others = sparse_rows((2 * dense).flip(0))
    torch.testing.assert_close(sparse_product(others, table), (2 * dense).flip(0) @ table)


def test_sparse_rows_are_forgotten_with_their_tensor() -> None:
    rows = sparse_rows(torch.eye(5))
    sparse_product(rows, torch.ones(5, 2))
    assert rows in linear._ENTRIES
    before = len(linear._ENTRIES)
    del rows
    gc.collect()
    assert len(linear._ENTRIES) < before


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_an_input_is_standardized_before_its_linear_map(sparse: bool, bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 6, generator=generator, dtype=torch.float64).relu() * 5 + 3 * torch.eye(6).repeat(5, 1)
    features[:, 4] = 7  # does not vary
    mean, deviation = features[:20].mean(0), features[:20].std(0, correction=0)
    layer = InputLinear(6, 3, bias=bias, standardize=True).double()
    for parameter in layer.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    layer.set_statistics(mean, deviation)
    standardized = torch.where(deviation > 0, (features - mean) / deviation, 0.0)
    assert torch.equal(standardized[:, 4], torch.zeros(30, dtype=torch.float64))
    weights = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    wanted = standardized @ weights[0].t() + (weights[1] if bias else 0)
    found = layer(sparse_rows(features) if sparse else features)
    torch.testing.assert_close(found, wanted)
    pull = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, list(layer.parameters()), pull), torch.autograd.grad(wanted, weights, pull)
    )


@pytest.mark.parametrize("sparse", [True, False])
def test_dropped_features_are_a_function_of_node_and_feature(sparse: bool) -> None:
    """By the dense definition in outputs and gradients, in any order and any subset of the rows; the mean stays."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 6, generator=generator, dtype=torch.float64).relu()
    node_ids, rate, key = torch.arange(1000, 1400), 0.4, 77
    layer = InputLinear(6, 3, standardize=True).double()
    for parameter in layer.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    layer.set_statistics(features.mean(0), features.std(0, correction=0))
    if sparse:
        entry = torch.arange(6).expand(400, 6)
        keep = seeds.keep_pairs(key, node_ids[:, None].expand(400, 6), entry, rate)
        kept = features * keep / (1 - rate) - layer.center
    else:
        kept = (features - layer.center) * ops.keep_mask(key, node_ids, 6, rate)[0] / (1 - rate)
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in layer.parameters())
    wanted = (kept * layer.scale) @ weight.t() + bias

    def found(rows: Tensor) -> Tensor:
        some = sparse_rows(features[rows]) if sparse else features[rows]
        out: Tensor = layer(some, Dropout(rate, key, node_ids[rows]))
        return out

    everyone, some = torch.arange(400), torch.tensor([7, 300, 4])
    torch.testing.assert_close(found(everyone), wanted, rtol=1e-4, atol=1e-4)  # the rate is a multiple of 2^-16
    torch.testing.assert_close(found(some), found(everyone)[some], rtol=1e-10, atol=1e-10)
    pull = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    gradients = torch.autograd.grad(found(everyone), list(layer.parameters()), pull)
    for one, other in zip(gradients, torch.autograd.grad(wanted, [weight, bias], pull), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    assert abs(float(kept.mean() - (features - layer.center).mean())) < 0.05


def test_without_statistics_an_input_is_taken_to_the_bit_as_it_is() -> None:
    features = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    plain, standardizing = InputLinear(5, 4), InputLinear(5, 4, standardize=True)
    for layer in (plain, standardizing):
        for parameter in layer.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(plain(features), standardizing(features))
    assert sorted(plain.state_dict()) == ["bias", "weight"]
