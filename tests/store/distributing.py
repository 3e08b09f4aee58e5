"""What tests of ranks with different parts share: nodes to ask for, edges to compare, and what is said of mistakes."""

from collections.abc import Callable

import torch
from torch import Tensor

from nfdist.errors import NfdistError
from nfdist.sparse.adjacency import Adjacency

NODES = 90


def some_nodes(count: int, *seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(100**place * number for place, number in enumerate(seed)))
    return torch.randperm(NODES, generator=generator)[:count]


def assert_same_edges(found: Adjacency, expected: Adjacency) -> None:
    assert torch.equal(found.indptr, expected.indptr)
    assert torch.equal(found.sources, expected.sources)
    assert (found.indptr.dtype, found.sources.dtype) == (expected.indptr.dtype, expected.sources.dtype)
    assert found.columns == expected.columns


def complaint(work: Callable[[], object]) -> str:
    try:
        work()
    except NfdistError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
