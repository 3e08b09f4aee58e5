"""Chunks cover every row once, and the shortcuts equal what they stand for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from nfdist import seeds
from nfdist.attention.ops.chunks import Scratch, chunks, outer, peaks_of, rows_last


@pytest.mark.parametrize("chunk_rows", [1, 7, 100, None])
@pytest.mark.parametrize("num_rows", [0, 1, 99, 100, 101, 70_000])
def test_chunks_cover_every_row_once_and_in_order(num_rows: int, chunk_rows: int | None) -> None:
    rows = [row for part in chunks(num_rows, 100, torch.device("cpu"), chunk_rows) for row in range(num_rows)[part]]
    assert rows == list(range(num_rows))


@pytest.mark.parametrize("num_features", [1, 2, 3, 30, 31])
def test_the_maximum_of_halves_is_the_maximum(num_features: int) -> None:
    exponents = torch.randn(2, num_features, 9, generator=seeds.generator(num_features, "exponents"))
    assert torch.equal(peaks_of(exponents), exponents.amax(1))


def test_rows_last_lies_in_memory_with_its_rows_last() -> None:
    rows = rows_last(7, 2, 5, like=torch.empty(0, dtype=torch.float64))
    assert rows.shape == (7, 2, 5)
    assert rows.dtype == torch.float64
    assert rows.movedim(0, -1).is_contiguous()


def test_outer_products_share_a_buffer_that_grows_with_need() -> None:
    scratch = Scratch(torch.empty(0, dtype=torch.float64))
    for num_rows in (3, 9, 4):
        generator = seeds.generator(num_rows, "outer")
        shared = torch.randn(2, 5, num_rows, generator=generator, dtype=torch.float64)
        own = torch.randn(2, 3, num_rows, generator=generator, dtype=torch.float64)
        wanted = torch.einsum("hmn,hkn->hkmn", shared, own).flatten(0, 2)
        assert torch.equal(outer(shared, own, scratch), wanted)


def test_a_thread_keeps_its_buffers_and_shares_them_with_no_other_thread() -> None:
    like = torch.empty(0, dtype=torch.float64)
    assert Scratch.of(like) is Scratch.of(torch.ones(3, dtype=torch.float64))
    assert Scratch.of(like) is not Scratch.of(like.float())
    assert Scratch.of(like.float()).take("outer", 2).dtype == torch.float32
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(Scratch.of, like).result() is not Scratch.of(like)


def test_buffers_that_were_made_in_inference_mode_serve_training_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scratch, "_of_thread", threading.local())
    with torch.inference_mode():
        Scratch.of(torch.empty(0)).take("outer", 3)
    assert not Scratch.of(torch.empty(0)).take("outer", 3).zero_().is_inference()
