"""Which nodes are for training, validation and testing, as the source says."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import validation
from nfdist.store.source_graph import SPLIT_NAMES, TEST, TRAIN, UNASSIGNED, VALID

DEFAULT_RANDOM = "random:0.5/0.25/0.25"
DRAWN_NOTE = f"the source has no split: nodes are drawn for {DEFAULT_RANDOM}, or as --split says"
WORDS = {"train": TRAIN, "val": VALID, "valid": VALID, "validation": VALID, "test": TEST}
UNOFFICIAL = ("amazon2m",)  # whose split is random: the sales ranking of ogbn-products, its data, is not its own
CODES_NOTE = "split numbers are read as 0 unassigned, 1 train, 2 valid, 3 test"


def official(members: Mapping[int, NDArray[Any]], num_nodes: int, index: int, name: str) -> NDArray[np.int8]:
    """The split a source lists, as masks [n], [n, s] or [s, n], or as node numbers [m] or [s, m]."""
    split = np.full(num_nodes, UNASSIGNED, np.int8)
    for code, listed in sorted(members.items()):
        rows = _rows_of(listed, num_nodes, index, f"{name}: the {SPLIT_NAMES[code]} split")
        taken = rows[split[rows] != UNASSIGNED]
        if len(taken):
            raise PartitionError(
                f"{name}: {len(taken)} nodes of the {SPLIT_NAMES[code]} split are in another too, the first in row "
                f"{taken[0]} (in {SPLIT_NAMES[split[taken[0]]]}): give each node one split, or choose a random one"
            )
        split[rows] = code
    return split


def from_codes(codes: NDArray[Any], name: str) -> dict[int, NDArray[Any]]:
    """The masks of a column of split numbers, in the order of SPLIT_NAMES."""
    wrong = codes[(codes < UNASSIGNED) | (codes > TEST)]
    if len(wrong):
        raise PartitionError(
            f"{name}: {len(wrong)} split numbers are not 0 to 3, the first is {wrong[0]}; {CODES_NOTE}"
        )
    return {code: codes == code for code in (TRAIN, VALID, TEST)}


def as_mask(values: NDArray[Any], what: str) -> NDArray[np.bool_]:
    """A mask of booleans, or of zeros and ones; others are refused."""
    wrong = values[(values != 0) & (values != 1)] if values.dtype.kind in "biuf" else values
    if values.dtype.kind not in "biuf" or len(wrong):
        raise PartitionError(f"{what} must be true or false, got {wrong[0] if wrong.ndim == 1 else values.dtype}")
    return values.astype(np.bool_, copy=False)


def _rows_of(listed: NDArray[Any], num_nodes: int, index: int, what: str) -> NDArray[np.int64]:
    if listed.ndim not in (1, 2):
        raise PartitionError(f"{what} must be a list, or one for each of several splits, got {list(listed.shape)}")
    if listed.dtype == np.bool_:
        choices = listed if listed.ndim == 2 else listed[:, None]
        if listed.ndim == 2 and listed.shape[0] != num_nodes:
            choices = listed.T
        validation.check_length(f"{what} mask", len(choices), num_nodes)
        choices = choices.T
    else:
        validation.check_integers(what, listed)
        choices = np.atleast_2d(listed)
    if index >= len(choices):
        raise PartitionError(f"{what} number {index} does not exist: split_index must be below {len(choices)}")
    if listed.dtype == np.bool_:
        return np.flatnonzero(choices[index])
    validation.check_range(what, choices[index], num_nodes, "nodes")
    rows: NDArray[np.int64] = choices[index].astype(np.int64)
    return rows
