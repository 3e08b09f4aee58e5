"""Arrays that do not fit each other, or what their headers say: refused before they take memory."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.partitioning.sources import load
from tests.partitioning.sources.npz_files import OPTIONS, save

CSR = {
    "feat_indptr": np.arange(13),
    "feat_indices": np.zeros(12, int),
    "feat_data": np.ones(12),
    "feat_shape": np.array([12, 40]),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feat_shape": np.array([12, 10**12])}, "features have 1,000,000,000,000 columns"),
        ({"feat_shape": np.array([10**12, 40])}, "do not fit: give rows [+] 1 offsets"),
        ({"feat_shape": np.array(12)}, "feat_shape must be two numbers"),
        ({"feat_shape": np.array([12, -1])}, "feat_shape must be two numbers"),
        ({"feat_data": np.array(1.0)}, r"feat_data must be a list, got shape \[\]"),
        ({"feat_indptr": np.arange(13)[::-1]}, "feat_indptr must ascend from 0 to the 12 feat_indices"),
        ({"feat_indptr": np.r_[0, 2**40, 2:13]}, "feat_indptr must ascend"),
        ({"feat_indptr": np.arange(13.0)}, "feat_indptr must be integers, got float64"),
        ({"feat_indices": np.full(12, 40)}, r"feat_indices\[0\] is 40, outside the 40 columns"),
    ],
)
def test_csr_parts_are_checked_against_each_other(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        load(save(tmp_path, feat=None, **{**CSR, **changes}), OPTIONS)


def test_a_few_bytes_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2), }"
    start = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("feat.npy", start + bytes(96))
    with pytest.raises(PartitionError, match=r"feat of shape \[1000000000000, 2\] .* does not fit its 96 bytes"):
        load(str(path), OPTIONS)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("feat.npy", start + bytes(96))
        archive.infolist()[0].file_size = 8 * 10**12 + len(start)
    with pytest.raises(PartitionError, match=r"would take 7,450.6 GiB of memory"):
        load(str(path), OPTIONS)


def test_two_arrays_of_the_same_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(save(tmp_path), "a") as archive:
        archive.writestr("feat", archive.read("feat.npy"))
    with pytest.raises(PartitionError, match="holds 2 arrays called 'feat'"):
        load(str(tmp_path / "toy.npz"), OPTIONS)


def test_sparse_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    parts = {"feat_indptr": np.arange(13), "feat_data": np.ones(12), "feat_shape": np.array([12, 4])}
    for indices in (np.full(12, 9), np.zeros(11, int)):
        with pytest.raises(PartitionError, match=r"toy.npz"):
            load(save(tmp_path, feat=None, feat_indices=indices, **parts), OPTIONS)
    sparse = {**parts, "feat_indices": np.zeros(12, int), "feat_shape": np.array([12, 40])}
    sparse["feat_data"] = np.where(np.arange(12) == 7, np.inf, 1)
    with pytest.raises(PartitionError, match=r"1 feature values .* the first at node 7 in column 0 \(inf\)"):
        load(save(tmp_path, feat=None, **sparse), OPTIONS)
