"""Chunks cover every row once, and the shortcuts equal what they stand for."""

import pytest
import torch

from nfdist import seeds
from nfdist.attention.chunks import Scratch, chunks, max_over_rows, outer


@pytest.mark.parametrize("chunk_rows", [1, 7, 100, None])
@pytest.mark.parametrize("num_rows", [0, 1, 99, 100, 101, 70_000])
def test_chunks_cover_every_row_once_and_in_order(num_rows: int, chunk_rows: int | None) -> None:
    rows = [row for part in chunks(num_rows, 100, torch.device("cpu"), chunk_rows) for row in range(num_rows)[part]]
    assert rows == list(range(num_rows))


@pytest.mark.parametrize("num_rows", [1, 15, 16, 17, 100])
def test_the_folded_maximum_is_the_maximum(num_rows: int) -> None:
    rows = torch.randn(num_rows, 2, 5, generator=seeds.generator(num_rows, "rows"))
    assert torch.equal(max_over_rows(rows), rows.amax(0))


def test_outer_products_share_a_buffer_that_grows_with_need() -> None:
    scratch = Scratch(torch.empty(0, dtype=torch.float64))
    for num_rows in (3, 9, 4):
        generator = seeds.generator(num_rows, "outer")
        shared = torch.randn(num_rows, 2, 5, generator=generator, dtype=torch.float64)
        own = torch.randn(num_rows, 2, 3, generator=generator, dtype=torch.float64)
        wanted = torch.einsum("nhm,nhk->nhkm", shared, own).flatten(1)
        assert torch.equal(outer(shared, own, scratch), wanted)
