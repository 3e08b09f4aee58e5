"""What a block of code asks of the fake accelerator: launches of kernels, waits of the host, bytes and arithmetic.

    with counted() as counts:
        stepper.add(...)
    counts.launches.total(), counts.syncs.total()
    print(counts.table())

Counted are ATen's operations below autograd and below operations of our own: each is one launch, but views and memory
that is not written are free. Bytes are those of all tensors that an operation reads or writes, once each; arithmetic
(`flops`) is that of products of matrices.
"""

import math
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from tests.accelerator.fake import Operation, observed

# Without a kernel: views (by torch's own schemas, see `_is_view`), sizes, and memory that is not written.
_FREE = re.compile(
    "detach|alias|lift_fresh|_unsafe_view|_reshape_alias|is_same_size|sym_size|crow_indices|col_indices|values|"
    "(new_)?empty(_like|_strided)?|set_|_sparse_(compressed|csr)_tensor_unsafe"
)
# On a GPU these make the host wait for what they find, which sizes their results.
_WAITS = re.compile("_local_scalar_dense|nonzero|masked_select|_?unique(2|_dim)?(_consecutive)?|equal|bincount")
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


class Asked(NamedTuple):
    """Who asked for something: an operation, a line of nfdist, and a thread ("" for all but those nfdist names)."""

    operation: str
    line: str
    thread: str


@dataclass
class Counts:
    """`copies` are transfers between the devices that nothing waits for."""

    launches: Counter[Asked] = field(default_factory=Counter)
    syncs: Counter[Asked] = field(default_factory=Counter)
    copies: Counter[Asked] = field(default_factory=Counter)
    bytes: Counter[Asked] = field(default_factory=Counter)
    flops: Counter[Asked] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, operation: Operation) -> None:
        """Count one operation more, in whatever thread."""
        asked = Asked(operation.name, operation.line, _thread_name())
        with self._lock:
            if _waits(operation):
                self.syncs[asked] += 1
            if operation.crosses:
                self.copies[asked] += not operation.blocking
            elif not _is_free(operation):
                self.launches[asked] += 1
            if operation.crosses or not _is_free(operation):
                self.bytes[asked] += _moved_bytes(operation)
            self.flops[asked] += _flops(operation)

    def of_thread(self, thread: str = "") -> "Counts":
        """What one thread asked for: that of a step, unless another is named."""

        def of(kind: Counter[Asked]) -> Counter[Asked]:
            return Counter({asked: count for asked, count in kind.items() if asked.thread == thread})

        return Counts(of(self.launches), of(self.syncs), of(self.copies), of(self.bytes), of(self.flops))

    def __sub__(self, other: "Counts") -> "Counts":
        """What was asked for beyond what another block did."""

        def beyond(mine: Counter[Asked], theirs: Counter[Asked]) -> Counter[Asked]:
            return Counter({asked: count - theirs[asked] for asked, count in mine.items() if count > theirs[asked]})

        return Counts(
            beyond(self.launches, other.launches),
            beyond(self.syncs, other.syncs),
            beyond(self.copies, other.copies),
            beyond(self.bytes, other.bytes),
            beyond(self.flops, other.flops),
        )

    def table(self, kind: str = "launches", *, by_line: bool = True, most: int = 40) -> str:
        """The largest entries of one kind, a line each."""
        merged: Counter[str] = Counter()
        for asked, count in getattr(self, kind).items():
            merged[f"{asked.operation:32} {asked.line if by_line else ''} {asked.thread}".rstrip()] += count
        lines = [f"{count:12,}  {name}" for name, count in merged.most_common(most)]
        return "\n".join([f"{merged.total():12,}  {kind}", *lines])


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts of all that this process asks of the fake accelerator within the block."""
    counts = Counts()
    with observed(counts.record):
        yield counts


def _thread_name() -> str:
    name = threading.current_thread().name  # a backward pass has threads of its own, which Python does not name
    return name if name.startswith("nfdist") else ""


def _waits(operation: Operation) -> bool:
    if operation.blocking or operation.foreign_index or _WAITS.fullmatch(operation.name):
        return True
    if operation.name in _INDEXING:  # by a mask, which is turned into numbers, unless one number fills it
        fills = operation.name != "index" and operation.arguments[2].numel() == 1
        return not fills and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in operation.arguments[1]
        )
    return operation.name == "repeat_interleave" and operation.keywords.get("output_size") is None


def _is_free(operation: Operation) -> bool:
    return bool(_FREE.fullmatch(operation.name)) or operation.name == "_local_scalar_dense" or _is_view(operation.call)


def _is_view(call: Any) -> bool:
    """Whether the result shares memory with what was given, which is not written."""
    results = [result.alias_info for result in call._schema.returns]
    return bool(results) and all(alias is not None and not alias.is_write for alias in results)


def _moved_bytes(operation: Operation) -> int:
    """The bytes of all tensors of an operation, each once; what is expanded is there once."""
    moved = {}
    for tensor in _dense((operation.arguments, operation.keywords, operation.results)):
        elements = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        moved[tensor.data_ptr(), elements] = elements * tensor.element_size()
    return sum(moved.values())


def _dense(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _dense(one)
    elif isinstance(tree, Tensor):
        parts = (tree,) if tree.layout == torch.strided else (tree.crow_indices(), tree.col_indices(), tree.values())
        yield from parts


def _flops(operation: Operation) -> int:
    """The arithmetic of a product of matrices, by torch's own formulas; 0 for all else."""
    formula = flop_registry.get(operation.call._overloadpacket)
    return formula(*operation.arguments, **operation.keywords, out_val=operation.results) if formula else 0
