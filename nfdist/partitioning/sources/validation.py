"""Everything a source can get wrong, each refused in one line that names the thing, its value and the next move."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources.first_wrong import first_wrong
from nfdist.store.columns import check_unique
from nfdist.store.table_files import told_columns
from nfdist.world import World

ALONE = World()
_ROWS_AT_ONCE = 1 << 16
_EDGES_AT_ONCE = 1 << 22
_LEAST_CLASSES = 1000


def check_not_empty(name: str, num_nodes: int) -> None:
    """Refuse a graph without nodes."""
    if num_nodes == 0:
        raise PartitionError(f"{name} has no nodes: there is nothing to partition")


def check_length(what: str, got: int, wanted: int) -> None:
    """Refuse an array that has not one entry a node."""
    if got != wanted:
        raise PartitionError(f"{what} has {got} entries, but there are {wanted} nodes: give one for each node")


def check_integers(what: str, values: NDArray[Any]) -> None:
    """Refuse numbers that are not integers."""
    if values.dtype.kind not in "iu":
        raise PartitionError(f"{what} must be integers, got {values.dtype}")


def check_range(what: str, values: NDArray[Any], limit: int, of: str, world: World = ALONE) -> None:
    """Refuse numbers that are not in 0 .. limit - 1, of which the ranks of a world may have a share each."""
    count, first = 0, ""
    if len(values) and (values.min() < 0 or values.max() >= limit):
        wrong = values[(values < 0) | (values >= limit)]
        count, first = len(wrong), str(wrong[0])
    count, first = first_wrong(world, count, first)
    if count:
        raise PartitionError(
            f"{what}: {count} numbers are out of range, the first is {first}; the {limit} {of} are 0 to {limit - 1}"
        )


def check_edges(name: str, sources: NDArray[Any], targets: NDArray[Any], num_nodes: int, world: World = ALONE) -> None:
    """Refuse edges whose ends are not nodes."""
    if sources.ndim != 1 or sources.shape != targets.shape:
        raise PartitionError(f"{name}: edges need as many sources as targets, got {sources.shape} and {targets.shape}")
    for what, ends in (("sources", sources), ("targets", targets)):
        check_integers(f"{name}: edge {what}", ends)
        check_range(f"{name}: edge {what}", ends, num_nodes, "nodes", world)


def check_weights(
    name: str, weights: NDArray[Any], ends: tuple[Any, Any], original_ids: NDArray[Any], world: World = ALONE
) -> None:
    """Refuse weights of edges that are not one finite number from 0 on for each."""
    if weights.shape != ends[0].shape:
        got = list(weights.shape)
        raise PartitionError(
            f"{name}: edge weights have the shape {got}, there are {len(ends[0])} edges: give one each"
        )
    if weights.dtype.kind not in "iufb":
        raise PartitionError(f"{name}: edge weights must be numbers, got {weights.dtype}")
    count, first = 0, -1
    for start in range(0, len(weights), _EDGES_AT_ONCE):
        some = weights[start : start + _EDGES_AT_ONCE]
        wrong = np.flatnonzero(~((some >= 0) & (some <= np.finfo(np.float32).max)))  # NaN is neither
        first = start + int(wrong[0]) if len(wrong) and first < 0 else first
        count += len(wrong)
    told = ""
    if count:
        source, target = (original_ids[rows[first]] for rows in ends)
        told = f"{weights[first]} of the edge {source!s:.100} -> {target!s:.100}"
    count, told = first_wrong(world, count, told)
    if count:
        text = f"{name}: {count} edge weights are negative, missing or not finite, the first is {told}"
        raise PartitionError(f"{text}: repair or drop these edges")


def check_ids(name: str, original_ids: Any) -> None:
    """Refuse node ids that are not one integer or text a node, or occur twice."""
    if isinstance(original_ids, pa.Array):
        return check_unique(name, original_ids)
    if original_ids.ndim != 1:
        raise PartitionError(f"{name}: node ids must be a list, got shape {list(original_ids.shape)}")
    if original_ids.dtype.kind not in "iuUO":
        raise PartitionError(f"{name}: node ids must be integers or text, got {original_ids.dtype}")
    return check_unique(name, pa.array(original_ids))


def check_known(name: str, unknown: str, count: int, id_column: str, others: Sequence[str]) -> None:
    """Refuse edges that name nodes that do not exist, which may be in another column of the nodes."""
    if count:
        text = f"{name}: {count} ends of edges name no node, the first is {unknown}: every id must be in the nodes' "
        text += f"column {id_column!r}" if id_column else "row numbers, from 0 on"
        raise PartitionError(f"{text}, or name another column by --id-column; {told_columns(others, 'the nodes have')}")


def check_features(name: str, features: Any, original_ids: NDArray[Any], world: World = ALONE) -> None:
    """Refuse features that are NaN or infinite in their type."""
    count, first = 0, ""
    for start in range(0, features.shape[0], _ROWS_AT_ONCE):
        rows = features[start : start + _ROWS_AT_ONCE]
        sparse = scipy.sparse.issparse(rows)
        values = rows.data if sparse else rows
        finite = np.isfinite(values)
        if finite.all():
            continue
        if not first:
            place = int(np.argmin(finite))
            if sparse:
                row, column = int(np.searchsorted(rows.indptr, place, side="right")) - 1, rows.indices[place]
            else:
                row, column = divmod(place, rows.shape[1])
            first = f"node {original_ids[start + row]!s:.100} in column {column} ({values.flat[place]})"
        count += int(finite.size - np.count_nonzero(finite))
    count, first = first_wrong(world, count, first)
    if count:
        raise PartitionError(
            f"{name}: {count} feature values are NaN or infinite in {features.dtype}, the first at {first}: repair or "
            "drop them"
        )


def check_labels(name: str, labels: NDArray[Any], classes: int, original_ids: NDArray[Any]) -> None:
    """Refuse labels that are not -1 (none) or a class, of which there are at most so many; 0: as the nodes allow.

    Memory is taken for every class up to the largest, and no more of them than labeled nodes can be learned.
    """
    limit = classes or max(_LEAST_CLASSES, int(np.count_nonzero(labels >= 0)))
    wrong = np.argwhere((labels < -1) | (labels >= limit))
    if len(wrong):
        raise PartitionError(
            f"{name}: {len(wrong)} labels are outside -1 (none) to {limit - 1}, the first is {labels[tuple(wrong[0])]} "
            f"at node {original_ids[wrong[0][0]]!s}: number the classes from 0"
        )
