import gc
from typing import Any

import pytest
import torch

from nfdist.model import linear
from nfdist.model.linear import sparse_product
from nfdist.sparse.adjacency import Adjacency


def test_products_with_the_same_sparse_rows_transpose_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transposed: list[object] = []
    make = Adjacency._scipy

    def counted(entries: Adjacency, *values: Any) -> Any:
        transposed.append(1)
        return make(entries, *values)

    monkeypatch.setattr(Adjacency, "_scipy", counted)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(20, 7, generator=generator).relu()
    rows = dense.to_sparse_csr()
    for step in range(3):
        table = torch.randn(7, 4, generator=generator, requires_grad=True)
        pull = torch.randn(20, 4, generator=generator)
        product = sparse_product(rows, table)
        torch.testing.assert_close(product, dense @ table)
        (gradient,) = torch.autograd.grad(product, table, pull)
        torch.testing.assert_close(gradient, dense.t() @ pull)
        assert len(transposed) == 1, step
    others = (2 * dense).flip(0).to_sparse_csr()
    torch.testing.assert_close(sparse_product(others, table), (2 * dense).flip(0) @ table)


def test_sparse_rows_are_forgotten_with_their_tensor() -> None:
    rows = torch.eye(5).to_sparse_csr()
    sparse_product(rows, torch.ones(5, 2))
    assert rows in linear._ENTRIES
    before = len(linear._ENTRIES)
    del rows
    gc.collect()
    assert len(linear._ENTRIES) < before
