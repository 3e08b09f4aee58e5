"""DGL's own files, read byte by byte: its library trusts every length in a file, and a damaged one ends the process.

A graph file is what dgl.save_graphs writes since DGL 0.5, a tensor file what dgl.distributed.partition_graph writes for
the data of a part. All numbers are little-endian; a vector is its length and its items, text its length and its bytes.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from nfdist.errors import PartitionError

_GRAPH_FILE, _TENSOR_FILE = 0xDD2E4FF046B4A13F, 0xDD5A9FBE3FA2443F
_HETEROGRAPH, _META_GRAPH, _UNIT_GRAPH = 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127
_COO, _CSR, _ARRAY = 0xDD61FFD305DFF127, 0xDD6CD31205DFF127, 0xDD5E40F096B4A13F
_HEADER_BYTES = 4096
_FORMATS = ("coo", "csr", "csc")  # bits of the code, in the order in which they follow
_KINDS = {0: "i", 1: "u", 2: "f"}
_BFLOAT = 4

Item = TypeVar("Item")
Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DglGraph:
    """A graph of one type of nodes and edges: its edges in the order of their numbers, and what they and nodes have."""

    num_nodes: int
    sources: NDArray[Any]
    targets: NDArray[Any]
    node_data: Tensors
    edge_data: Tensors


def read_graph(path: Path) -> DglGraph:
    """The one graph of a file; ValueError, EOFError or OSError if the file holds no such thing."""
    with path.open("rb") as stream:
        words = _Words(stream, path.stat().st_size)
        words.expect(_GRAPH_FILE, "no graph of DGL")
        version, kind, num_graphs = words.unsigned(), words.unsigned(), words.unsigned()
        if (version, kind) != (2, 2):
            raise PartitionError(f"{path} has format {version} of DGL, not 2: load and save it with DGL 0.5 or newer")
        if num_graphs != 1:
            raise PartitionError(f"{path} holds {num_graphs:,} graphs: save the one to partition alone")
        words.seek(_HEADER_BYTES)
        words.seek(words.unsigned())  # past the labels of whole graphs
        return _read_graph(words, path)


def read_tensors(path: Path) -> Tensors:
    """The tensors of a file by name; ValueError, EOFError or OSError if the file holds no such thing."""
    with path.open("rb") as stream:
        words = _Words(stream, path.stat().st_size)
        words.expect(_TENSOR_FILE, "no tensors of DGL")
        words.unsigned()  # how many, which is said again
        return dict(words.vector(_named_array))


class _Words:
    """A file that gives what is asked for in order, and nothing beyond its end."""

    def __init__(self, stream: BinaryIO, num_bytes: int) -> None:
        self._stream, self._num_bytes = stream, num_bytes

    def seek(self, place: int) -> None:
        self._check(place <= self._num_bytes)
        self._stream.seek(place)

    def take(self, num_bytes: int) -> bytes:
        self._check(num_bytes <= self.remaining)
        return self._stream.read(num_bytes)

    def unpack(self, form: str) -> Any:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))
        return value

    def unsigned(self) -> int:
        return int(self.unpack("Q"))

    def expect(self, magic: int, what: str) -> None:
        if self.unsigned() != magic:
            raise ValueError(what)

    def vector(self, read: Callable[["_Words"], Item]) -> list[Item]:
        count = self.unsigned()
        self._check(count <= self.remaining)  # every item has a byte at least
        return [read(self) for _ in range(count)]

    def text(self) -> str:
        return self.take(self.unsigned()).decode()

    def array(self) -> NDArray[Any]:
        self.expect(_ARRAY, "an array without its mark")
        self.take(16)  # reserved, and the device
        ndim = self.unpack("i")
        code, bits, lanes = self.unpack("B"), self.unpack("B"), self.unpack("H")
        self._check(0 <= ndim <= 32)
        shape = [int(self.unpack("q")) for _ in range(ndim)]
        num_bytes = self.unpack("q")
        bfloat = (code, bits) == (_BFLOAT, 16)
        kinds = {**_KINDS, _BFLOAT: "u"} if bfloat else _KINDS
        if code not in kinds or bits not in (8, 16, 32, 64) or lanes != 1 or (code, bits) == (2, 8):
            raise ValueError(f"an array of type {code}, {bits} bits, which is neither integers nor floats")
        dtype = np.dtype(f"<{kinds[code]}{bits // 8}")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != num_bytes:
            raise ValueError(f"an array of shape {shape} in {num_bytes} bytes")
        self._check(num_bytes <= self.remaining)
        values = np.fromfile(self._stream, dtype, math.prod(shape)).reshape(shape)
        # numpy has no bfloat16, whose bits are the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32) if bfloat else values

    @property
    def remaining(self) -> int:
        return self._num_bytes - self._stream.tell()

    def _check(self, holds: bool) -> None:
        if not holds:
            raise EOFError("it ends before what it announces")


def _named_array(words: _Words) -> tuple[str, NDArray[Any]]:
    return words.text(), words.array()


def _read_graph(words: _Words, path: Path) -> DglGraph:
    words.expect(_HETEROGRAPH, "a graph without its mark")
    _read_meta_graph(words)
    found = words.vector(_read_unit_graph)
    num_nodes = words.vector(lambda words: int(words.unpack("q")))
    node_data, edge_data = (words.vector(lambda words: dict(words.vector(_named_array))) for _ in range(2))
    if not len(found) == len(num_nodes) == len(node_data) == len(edge_data) == 1:
        raise PartitionError(
            f"{path} has several types of nodes or edges: make it homogeneous first (dgl.to_homogeneous)"
        )
    (shape, sources, targets), count, data = found[0], num_nodes[0], (node_data[0], edge_data[0])
    if shape != (count, count):
        raise ValueError(f"edges among {shape[0]:,} and {shape[1]:,} of {count:,} nodes")
    for what, tensors, rows in (("nodes", data[0], count), ("edges", data[1], len(sources))):
        for name, values in tensors.items():
            if values.ndim == 0 or len(values) != rows:
                raise ValueError(f"data {name!r} of shape {list(values.shape)} for {rows:,} {what}")
    return DglGraph(count, sources, targets, *data)


def _read_meta_graph(words: _Words) -> None:
    """Which types of edges there are between which types of nodes: one, which need not be kept."""
    words.expect(_META_GRAPH, "a graph of types without its mark")
    _read_csr(words)


def _read_unit_graph(words: _Words) -> tuple[tuple[int, int], NDArray[Any], NDArray[Any]]:
    """How many nodes are at either end, and the ends of the edges by number, from the first format that is there."""
    words.expect(_UNIT_GRAPH, "edges without their mark")
    code, _ = words.unsigned(), words.unsigned()
    if not code >> 32:  # as before DGL 0.7: the number of one format, not a bit for each
        code = 1 << (code - 1) if 1 <= code <= 3 else 0
    formats = [name for bit, name in enumerate(_FORMATS) if code >> bit & 1]
    if not formats:
        raise ValueError("edges in no known format")
    found = [_read_edges(words, name) for name in formats]
    return found[0]


def _read_edges(words: _Words, name: str) -> tuple[tuple[int, int], NDArray[Any], NDArray[Any]]:
    _read_meta_graph(words)
    shape, rows, columns, numbers = _read_coo(words) if name == "coo" else _read_csr(words)
    if len(numbers):
        if len(numbers) != len(rows) or numbers.min() < 0 or numbers.max() >= len(rows):
            raise ValueError(f"{len(numbers):,} numbers of {len(rows):,} edges")
        if np.bincount(numbers, minlength=len(rows)).max() > 1:
            raise ValueError("two of its edges have the same number")
        ordered = np.empty((2, len(rows)), np.result_type(rows, columns))
        ordered[0, numbers], ordered[1, numbers] = rows, columns
        rows, columns = ordered
    return (shape, columns, rows) if name == "csc" else (shape, rows, columns)


def _read_coo(words: _Words) -> tuple[tuple[int, int], NDArray[Any], NDArray[Any], NDArray[Any]]:
    words.expect(_COO, "a list of edges without its mark")
    shape = _read_shape(words)
    rows, columns, numbers = (_integers(words) for _ in range(3))
    words.take(2)  # whether they are sorted
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows):,} sources and {len(columns):,} targets of edges")
    return shape, rows, columns, numbers


def _read_csr(words: _Words) -> tuple[tuple[int, int], NDArray[Any], NDArray[Any], NDArray[Any]]:
    words.expect(_CSR, "a matrix of edges without its mark")
    shape = _read_shape(words)
    indptr, columns, numbers = (_integers(words) for _ in range(3))
    words.take(1)  # whether they are sorted
    fits = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(columns)
    if not fits or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"offsets that do not fit {shape[0]:,} nodes and {len(columns):,} edges")
    return shape, np.repeat(np.arange(shape[0], dtype=indptr.dtype), np.diff(indptr)), columns, numbers


def _read_shape(words: _Words) -> tuple[int, int]:
    num_columns, num_rows = int(words.unpack("q")), int(words.unpack("q"))
    if min(num_rows, num_columns) < 0:
        raise ValueError(f"edges among {num_rows} and {num_columns} nodes")
    return num_rows, num_columns


def _integers(words: _Words) -> NDArray[Any]:
    values = words.array()
    if values.ndim != 1 or values.dtype.kind != "i":
        raise ValueError(f"ends of edges of type {values.dtype} and shape {list(values.shape)}")
    return values
