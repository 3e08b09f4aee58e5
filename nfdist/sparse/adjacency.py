"""Adjacency: which nodes send to which, as the in-edges of every node, its powers and its transpose.

Built on the CPU, usable on any device.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nfdist.errors import ConfigError
from nfdist.sparse.dgl_door import dgl

MAX_EDGES = 1 << 31
EDGES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Adjacency:
    """A 0/1 pattern: sources[indptr[t] : indptr[t + 1]] are the nodes with an edge to t, each once, ascending.

    Targets and sources are the same nodes, unless `columns` says how many nodes the sources are numbered among. The
    edges of a weighted graph have `weights` [e]; degrees are numbers of edges all the same. Of a pattern that is known
    to be `symmetric` each edge is there in both directions.
    """

    indptr: Tensor
    sources: Tensor
    columns: int | None = None
    weights: Tensor | None = None
    symmetric: bool = False

    @staticmethod
    def from_edges(sources: Tensor, targets: Tensor, num_nodes: int) -> "Adjacency":
        """The pattern of a list of edges sources[e] -> targets[e]; an edge listed twice counts once."""
        if sources.shape != targets.shape or sources.ndim != 1:
            raise ConfigError(f"edges must be two equal lists, got {list(sources.shape)} and {list(targets.shape)}")
        for name, ends in (("source", sources), ("target", targets)):
            outside = ends[(ends < 0) | (ends >= num_nodes)]
            if len(outside):
                raise ConfigError(f"an edge has {name} {int(outside[0])}, outside the {num_nodes} nodes of the graph")
        import scipy.sparse  # here and below, since it takes a tenth of a second, and some commands make no graph

        ones = np.ones(len(sources), dtype=bool)
        shape = (num_nodes, num_nodes)
        return _from_scipy(scipy.sparse.csr_array((ones, (targets.numpy(), sources.numpy())), shape=shape))

    @property
    def num_nodes(self) -> int:
        """The number of targets."""
        return len(self.indptr) - 1

    @property
    def num_sources(self) -> int:
        return self.num_nodes if self.columns is None else self.columns

    @property
    def num_edges(self) -> int:
        return len(self.sources)

    @cached_property
    def in_degrees(self) -> Tensor:
        return self.indptr.diff().long()

    @cached_property
    def out_degrees(self) -> Tensor:
        return torch.bincount(self.sources, minlength=self.num_sources)

    @cached_property
    def targets(self) -> Tensor:
        """The target of every edge, in the order of `sources`."""
        nodes = torch.arange(self.num_nodes, dtype=self.sources.dtype, device=self.sources.device)
        return nodes.repeat_interleave(self.in_degrees, output_size=self.num_edges)

    @property
    def is_large(self) -> bool:
        """Whether what is worked out of every edge is better not there of all edges at once."""
        return self.num_edges > EDGES_AT_ONCE

    def pieces(self) -> Iterator[slice]:
        """Consecutive targets with at most EDGES_AT_ONCE edges together, or one target where it alone has more."""
        start = 0
        while start < self.num_nodes:
            last = int(torch.searchsorted(self.indptr, int(self.indptr[start]) + EDGES_AT_ONCE, right=True)) - 1
            stop = min(max(start + 1, last), self.num_nodes)
            yield slice(start, stop)
            start = stop

    def to_targets(self, rows: slice) -> "Adjacency":
        """The edges to consecutive targets, which are numbered from 0; the sources are a view."""
        ends = self.indptr[rows.start : rows.stop + 1]
        edges = slice(int(ends[0]), int(ends[-1]))
        weights = None if self.weights is None else self.weights[edges]
        return Adjacency(ends - ends[0], self.sources[edges], self.num_sources, weights)

    @cached_property
    def dgl_graph(self) -> Any:
        """The same as a graph of DGL, on the CPU, with all its formats from the start: sums then have one order."""
        numbers = torch.arange(self.num_edges, dtype=self.sources.dtype)  # a product in float32 fails without them
        graph = dgl().graph(("csc", (self.indptr, self.sources, numbers)), num_nodes=self.num_nodes)
        graph.create_formats_()
        return graph

    def only(self, kept: Tensor) -> "Adjacency":
        """The edges for which `kept` [edges] is true."""
        ends = torch.cat([kept.new_zeros(1, dtype=self.indptr.dtype), kept.cumsum(0, dtype=self.indptr.dtype)])
        weights = None if self.weights is None else self.weights[kept]
        return Adjacency(ends[self.indptr.long()], self.sources[kept], self.columns, weights)

    def symmetrized(self) -> "Adjacency":
        """Every edge in both directions."""
        self._check_square()
        matrix = self._scipy()
        return _from_scipy(matrix + matrix.T)

    def power(self, order: int, max_edges: int = MAX_EDGES) -> "Adjacency":
        """The pattern of (A + I)^order: who reaches whom in at most `order` steps. Refused beyond `max_edges`."""
        if order < 1:
            raise ConfigError(f"a power of the adjacency needs an order of at least 1, got {order}")
        import scipy.sparse

        self._check_square()
        step = _from_scipy(self._scipy() + scipy.sparse.eye_array(self.num_nodes, dtype=bool, format="csr"))
        reached = step
        for hop in range(2, order + 1):
            refuse_beyond(max_edges, reached.paths_after(step), order, hop)
            reached = reached.after(step)
        return reached

    def after(self, step: "Adjacency") -> "Adjacency":
        """Who reaches whom by an edge of `step` and then one of this adjacency."""
        return _from_scipy(self._scipy() @ step._scipy())

    def paths_after(self, step: "Adjacency") -> int:
        """How many pairs of such edges there are: `after` has at most as many edges."""
        return int(step.in_degrees[self.sources].sum())

    @cached_property
    def transposed(self) -> tuple["Adjacency", Tensor]:
        """Every edge the other way around, and the position in this adjacency that each of its edges came from."""
        columns = None if self.columns is None else self.num_nodes
        if self.sources.device.type == "cpu":  # several times faster than a sort
            matrix = self._scipy(np.arange(self.num_edges, dtype=np.int64)).tocsc()
            ends, sources, positions = map(torch.from_numpy, (matrix.indptr, matrix.indices, matrix.data))
            return Adjacency(ends, sources, columns), positions
        positions = self.sources.argsort(stable=True)
        ends = F.pad(self.out_degrees.cumsum(0), (1, 0)).to(self.indptr.dtype)
        return Adjacency(ends, self.targets.index_select(0, positions), columns), positions

    @cached_property
    def reversed(self) -> "Adjacency":
        """Every edge the other way around: in less memory than `transposed`, and in none if it is symmetric."""
        if self.symmetric:
            return self
        if "transposed" in self.__dict__ or self.sources.device.type != "cpu":
            return self.transposed[0]
        matrix = self._scipy().tocsc()
        columns = None if self.columns is None else self.num_nodes
        return Adjacency(torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices), columns)

    def block_diagonal(self, count: int) -> "Adjacency":
        """So many of this adjacency side by side, the nodes of the second numbered after those of the first."""
        if count == 1:
            return self
        made: dict[int, Adjacency] = self.__dict__.setdefault("block diagonals", {})
        if count not in made:
            transposed, positions = self.transposed
            made[count] = self._side_by_side(count)
            both = transposed._side_by_side(count), _numbered_on(positions, count, self.num_edges)
            made[count].__dict__["transposed"] = both
        return made[count]

    def _side_by_side(self, count: int) -> "Adjacency":
        starts = torch.cat([self.indptr[:1].long(), _numbered_on(self.indptr[1:], count, self.num_edges)])
        sources = _numbered_on(self.sources, count, self.num_sources)
        kind = index_type(count * max(self.num_edges, self.num_nodes, self.num_sources))
        return Adjacency(starts.to(kind), sources.to(kind), None if self.columns is None else count * self.columns)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Adjacency":
        """The same with each of its tensors changed, as by a copy to a device."""
        weights = None if self.weights is None else change(self.weights)
        changed = Adjacency(change(self.indptr), change(self.sources), self.columns, weights, self.symmetric)
        if "transposed" in self.__dict__:  # it was made on the CPU, with the batch
            transposed, positions = self.transposed
            changed.__dict__["transposed"] = transposed.each(change), change(positions)
        return changed

    def to(self, device: torch.device | str) -> "Adjacency":
        return self.each(lambda tensor: tensor.to(device))

    def _check_square(self) -> None:
        if self.num_sources != self.num_nodes:
            raise ConfigError(
                f"an adjacency of {self.num_nodes} targets and {self.num_sources} sources has no powers and no "
                "symmetric form: give one whose targets and sources are the same nodes"
            )

    def _scipy(self, values: NDArray[Any] | None = None) -> Any:
        """Row t of the matrix holds the sources of t, with a value of each edge or True."""
        import scipy.sparse

        values = np.ones(self.num_edges, dtype=bool) if values is None else values
        shape = (self.num_nodes, self.num_sources)
        return scipy.sparse.csr_array((values, self.sources.numpy(), self.indptr.numpy()), shape=shape)


def _numbered_on(numbers: Tensor, count: int, each: int) -> Tensor:
    """The numbers once for every copy, those of the next copy greater by `each`."""
    return (each * torch.arange(count, device=numbers.device)[:, None] + numbers).flatten()


def index_type(largest: int) -> torch.dtype:
    """The smaller type of index that such a number fits."""
    return torch.int32 if largest < 2**31 else torch.int64


def refuse_beyond(max_edges: int, bound: int, order: int, hop: int) -> None:
    """Refuse the power that a relation needs when it may have too many edges."""
    if bound > max_edges:
        raise ConfigError(
            f"relation.order = {order} needs up to {bound:,} edges ({bound * 8 / 2**30:.1f} GiB) at hop {hop}, "
            f"more than the limit of {max_edges:,}: use a lower order, such as relation.order={hop - 1}, "
            "or relation.kind=power"
        )


def _from_scipy(matrix: Any) -> Adjacency:
    """The pattern of such a matrix; int32 where it fits."""
    matrix.sum_duplicates()
    num_targets, num_sources = matrix.shape
    kind = index_type(max(matrix.nnz, *matrix.shape))
    return Adjacency(
        torch.from_numpy(matrix.indptr).to(kind),
        torch.from_numpy(matrix.indices).to(kind),
        None if num_targets == num_sources else num_sources,
    )
