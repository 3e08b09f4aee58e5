"""Graphs in .npz files: what is in them comes back exactly, and what is wrong is named in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from nfdist.errors import ConfigError, PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load
from nfdist.partitioning.sources.splits import DRAWN_NOTE
from nfdist.store.source_graph import TEST, TRAIN, UNASSIGNED, VALID, draw_split
from tests.partitioning.sources.npz_files import NODES, OPTIONS, arrays, save


def test_everything_comes_back_as_listed(tmp_path: Path) -> None:
    graph = load(save(tmp_path, train_idx=np.array([0, 2]), valid_idx=np.array([1]), test_idx=np.array([5])), OPTIONS)
    wanted = arrays()
    assert np.array_equal(np.stack([graph.sources, graph.targets]), wanted["edge_index"])
    assert np.array_equal(graph.features, wanted["feat"])
    assert graph.features.dtype == np.float32
    assert np.array_equal(graph.labels, wanted["label"])
    assert np.array_equal(graph.original_ids, np.arange(NODES))
    assert (graph.name, graph.task, graph.num_classes, graph.notes) == ("toy", "single", 3, ())
    assert [np.flatnonzero(graph.split == code).tolist() for code in (TRAIN, VALID, TEST)] == [[0, 2], [1], [5]]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("valid", ["val", "valid"])
@pytest.mark.parametrize("prefix", ["", "geomgcn_"])
def test_masks_of_several_splits_are_chosen_by_index(tmp_path: Path, transposed: bool, valid: str, prefix: str) -> None:
    codes = np.random.default_rng(1).integers(0, 4, (NODES, 5))
    masks = {f"{prefix}{word}_masks": codes == code for word, code in (("train", 1), (valid, 2), ("test", 3))}
    path = save(tmp_path, **{key: mask.T if transposed else mask for key, mask in masks.items()})
    for index in range(5):
        assert np.array_equal(load(path, SourceOptions(split_index=index)).split, codes[:, index])
    with pytest.raises(PartitionError, match="number 5 does not exist: split_index must be below 5"):
        load(path, SourceOptions(split_index=5))


def test_rows_of_node_numbers_are_chosen_by_index(tmp_path: Path) -> None:
    order = np.stack([np.random.default_rng(seed).permutation(NODES) for seed in range(3)])
    path = save(tmp_path, cuai_split_train=order[:, :6], cuai_split_valid=order[:, 6:9], cuai_split_test=order[:, 9:])
    graph = load(path, SourceOptions(split_index=2, split="official"))
    assert np.array_equal(graph.split[order[2]], np.repeat([TRAIN, VALID, TEST], [6, 3, 3]))


def test_a_node_in_two_splits_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, train_idx=np.array([0, 4]), valid_idx=np.array([4]), test_idx=np.array([1]))
    with pytest.raises(PartitionError, match="1 nodes of the valid split are in another too, the first in row 4"):
        load(path, OPTIONS)


def test_random_splits_leave_out_the_unlabeled_and_repeat_by_seed(tmp_path: Path) -> None:
    path = save(tmp_path, train_idx=np.array([0]), valid_idx=np.array([1]), test_idx=np.array([2]))
    options = SourceOptions(split="random:0.5/0.25/0.25", seed=3)
    split = load(path, options).split
    assert np.array_equal(split, load(path, options).split)
    assert (split[arrays()["label"] < 0] == UNASSIGNED).all()
    assert (split[arrays()["label"] >= 0] != UNASSIGNED).all()
    many = np.ones(1000, np.bool_)
    assert np.bincount(draw_split(many, (0.5, 0.2, 0.1), 0), minlength=4).tolist() == [200, 500, 200, 100]
    assert not np.array_equal(draw_split(many, (0.5, 0.2, 0.1), 0), draw_split(many, (0.5, 0.2, 0.1), 1))


@pytest.mark.parametrize(("density", "sparse"), [(0.02, True), (0.4, False)])
def test_sparse_rows_stay_sparse_when_they_are(tmp_path: Path, density: float, sparse: bool) -> None:
    rows = scipy.sparse.random_array((NODES, 50), density=density, format="csr", rng=np.random.default_rng(0))
    parts = {"feat_indptr": rows.indptr, "feat_indices": rows.indices, "feat_data": rows.data, "feat_shape": rows.shape}
    path = save(tmp_path, feat=None, **parts)
    graph = load(path, OPTIONS)
    assert scipy.sparse.issparse(graph.features) == sparse
    assert graph.features.dtype == np.float32
    dense = graph.features.toarray() if sparse else graph.features
    assert np.array_equal(dense, rows.toarray().astype(np.float32))
    assert counts(path, OPTIONS) == SourceCounts(NODES, 5, 50, rows.nnz if sparse else None, "float32")


@pytest.mark.parametrize(("given", "kept"), [("f8", "f4"), ("f2", "f2"), ("u1", "f4"), ("i8", "f4"), ("?", "f4")])
def test_features_become_float32_or_stay_float16(tmp_path: Path, given: str, kept: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, (NODES, 3)).astype(given)
    path = save(tmp_path, feat=values)
    features = load(path, OPTIONS).features
    assert features.dtype == np.dtype(kept)
    assert np.array_equal(features, values.astype(kept))
    assert counts(path, OPTIONS) == SourceCounts(NODES, 5, 3, None, features.dtype.name)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_normalized_and_zeros_stay(tmp_path: Path, sparse: bool) -> None:
    values = np.zeros((NODES, 40), np.float32)
    values[1:, :3] = np.random.default_rng(0).standard_normal((NODES - 1, 3))
    rows = scipy.sparse.csr_array(values)
    parts = {"feat_indptr": rows.indptr, "feat_indices": rows.indices, "feat_data": rows.data, "feat_shape": rows.shape}
    path = save(tmp_path, **({"feat": None, **parts} if sparse else {"feat": values}))
    found = load(path, SourceOptions(normalize_features="row")).features
    sums = np.abs(found.toarray() if sparse else found).sum(axis=1)
    assert np.allclose(sums, [0] + [1] * (NODES - 1))


@pytest.mark.parametrize("sparse", [False, True])
def test_nearest_neighbors_replace_the_edges(tmp_path: Path, sparse: bool) -> None:
    values = np.zeros((NODES, 200), np.float32)
    values[:, :3] = np.random.default_rng(0).standard_normal((NODES, 3))
    rows = scipy.sparse.csr_array(values)
    parts = {"feat_indptr": rows.indptr, "feat_indices": rows.indices, "feat_data": rows.data, "feat_shape": rows.shape}
    path = save(tmp_path, **({"feat": None, **parts} if sparse else {"feat": values}))
    graph = load(path, SourceOptions(knn=3))
    distances = ((values[:, None] - values[None]) ** 2).sum(-1)
    near = np.zeros((NODES, NODES), np.bool_)
    np.put_along_axis(near, np.argsort(distances, axis=1)[:, :3], True, axis=1)
    assert set(zip(graph.sources, graph.targets, strict=True)) == set(zip(*np.nonzero(near | near.T), strict=True))
    assert sorted(graph.notes) == ["5 edges are replaced by a 3-nearest-neighbor graph", DRAWN_NOTE]
    assert counts(path, SourceOptions(knn=3)).edges == 3 * NODES


def test_tasks(tmp_path: Path) -> None:
    answers = np.random.default_rng(0).integers(-1, 2, (NODES, 7))
    graph = load(save(tmp_path, label=answers), OPTIONS)
    assert (graph.task, graph.num_classes) == ("multi", 7)
    assert np.array_equal(graph.labels, answers)
    graph = load(save(tmp_path, label=np.array([0, 1, -1] * 4)), SourceOptions(task="binary"))
    assert (graph.task, graph.num_classes) == ("binary", 2)
    graph = load(save(tmp_path, label=np.array([[0.0, 1.0, np.nan] * 4]).T), OPTIONS)  # as OGB and pandas write them
    assert (graph.task, graph.labels.tolist()) == ("single", [0, 1, -1] * 4)
    graph = load(save(tmp_path, label=None), OPTIONS)
    assert graph.notes == ("the source has no labels", DRAWN_NOTE)
    assert not graph.split.any()


def test_ids_and_labels_may_be_other_arrays(tmp_path: Path) -> None:
    path = save(tmp_path, key=np.arange(NODES) * 10, other=np.arange(NODES) % 4)
    graph = load(path, SourceOptions(id_column="key", label_column="other"))
    assert graph.original_ids[graph.sources].tolist() == [0, 10, 20, 20, 50]
    assert graph.num_classes == 4
    assert graph.notes == ("ignored arrays: label", DRAWN_NOTE)
    with pytest.raises(PartitionError, match="has no column 'kye': did you mean 'key'"):
        load(path, SourceOptions(id_column="kye"))


def test_options_that_would_be_ignored_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path)
    with pytest.raises(PartitionError, match=r"scale 0.5 is for amazon2m-like, papers100m-like alone"):
        load(path, SourceOptions(scale=0.5))
    with pytest.raises(PartitionError, match="source_column does not apply to toy"):
        load(path, SourceOptions(source_column="from"))


def test_other_arrays_are_ignored_with_a_note(tmp_path: Path) -> None:
    graph = load(save(tmp_path, edge_attr=np.ones(5), year=np.ones(NODES)), OPTIONS)
    assert graph.notes == ("ignored arrays: edge_attr, year", DRAWN_NOTE)


BAD = [
    ({"edge_index": np.array([[0, 12, -1], [1, 1, 40]])}, "edge sources: 2 numbers are out of range, the first is 12"),
    ({"edge_index": np.zeros((5, 2), int)}, r"edge_index must be \[2, edges\]"),
    ({"edge_index": np.zeros((2, 5))}, "edge sources must be integers, got float64"),
    (
        {"feat": np.where(np.arange(36) % 10 == 4, np.nan, 1).reshape(12, 3)},
        r"4 feature values .* first at node 1 in column 1 \(nan\)",
    ),
    ({"feat": np.full((12, 3), 1e300)}, "36 feature values are NaN or infinite in float32, the first at node 0"),
    ({"feat": np.ones(12)}, "features must be a table"),
    ({"feat": np.array([["a"]] * 12)}, "features must be numbers"),
    ({"feat": np.ones((12, 0))}, "features have no columns"),
    ({"feat": np.ones((0, 3)), "label": np.ones(0, int), "edge_index": np.zeros((2, 0), int)}, "has no nodes"),
    ({"feat": None}, "has no features: add feat"),
    ({"label": np.ones(11, int)}, "list of labels has 11 entries, but there are 12 nodes"),
    ({"label": np.full(12, -2)}, r"12 labels are outside -1 \(none\)"),
    ({"label": np.full(12, 0.5)}, "labels must be integers, got 0.5"),
    ({"label": np.full((12, 2), 3)}, "24 labels are outside"),
    ({"label": np.array([{}] * 12)}, "label is of type object"),
    ({"label": np.where(np.arange(12) == 5, 2**30, 0)}, "1 labels .* to 999, the first is 1073741824 at node 5"),
    ({"label": np.where(np.arange(12) == 5, 1e300, 0)}, "labels must be integers, got 1e[+]300 at node 5"),
    ({"label": np.array(3)}, r"labels must be \[n\] or \[n, questions\], got \[\]"),
    ({"label": np.ones((12, 2, 2), int)}, r"got \[12, 2, 2\]"),
    ({"edge_index": np.zeros((2, 5), "m8[s]")}, "edge_index is of type timedelta64"),
    (
        {"train_mask": np.full(12, 2), "val_mask": np.zeros(12), "test_mask": np.zeros(12)},
        "must be true or false, got 2",
    ),
    ({"train_idx": np.array(1), "valid_idx": np.array([1]), "test_idx": np.array([2])}, r"must be a list.* got \[\]"),
    ({"train_idx": np.array([99]), "valid_idx": np.array([1]), "test_idx": np.array([2])}, "first is 99; the 12 nodes"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_arrays_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = save(tmp_path, **changes)
    with pytest.raises(PartitionError, match=message) as caught:
        load(path, OPTIONS)
    assert "\n" not in str(caught.value)


def test_labels_and_edges_of_few_bits(tmp_path: Path) -> None:
    nodes = 300
    path = save(tmp_path, feat=np.ones((nodes, 1)), label=np.zeros(nodes, "u1"), edge_index=np.eye(2, dtype="i1"))
    graph = load(path, OPTIONS)
    assert (graph.num_classes, graph.sources.tolist(), graph.sources.dtype.str) == (1, [1, 0], "<i8")
    assert load(save(tmp_path, label=np.arange(NODES, dtype="f2")), OPTIONS).num_classes == NODES
    swapped = save(tmp_path, edge_index=np.eye(2, dtype=">i8"), feat=np.ones((NODES, 1), ">f4"))
    assert load(swapped, OPTIONS).sources.dtype.isnative


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((NODES, 2), int), r"node ids must be a list, got shape \[12, 2\]"),
        (np.array(7), r"node ids must be a list, got shape \[\]"),
        (np.arange(NODES) / 2, "node ids must be integers or text, got float64"),
        (np.arange(NODES).astype("M8[s]"), "key is of type datetime64"),
        (np.arange(NODES) // 2, "6 node ids occur more than once, the first is 0"),
    ],
)
def test_ids_that_are_no_names_are_refused(tmp_path: Path, ids: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        load(save(tmp_path, key=ids), SourceOptions(id_column="key"))


def test_rows_that_cannot_be_normalized_are_refused(tmp_path: Path) -> None:
    for value in (3e38, 1e-45):
        path = save(tmp_path, feat=np.full((NODES, 3), value, np.float32))
        with pytest.raises(PartitionError, match="with normalized rows: 36 feature values"):
            load(path, SourceOptions(normalize_features="row"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_damaged_file_is_refused(tmp_path: Path, share: float) -> None:
    path = Path(save(tmp_path))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    for read in (load, counts):
        with pytest.raises(PartitionError, match="cannot be read"):
            read(str(path), OPTIONS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "random:0.5/0.5"}, "split must be official or random:train/valid/test"),
        ({"split": "best"}, "split must be"),
        ({"split": "random:0.6/0.3/0.2"}, "must sum to at most 1, got 1.1"),
        ({"split": "random:-1/1/1"}, "split must be"),
        ({"knn": -1}, "knn must be between 0 and 1000, got -1"),
        ({"split_index": -1}, "split_index must be between 0 and"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"task": "regression"}, "task must be single, binary or multi"),
        ({"normalize_features": "column"}, "normalize_features must be none or row"),
        ({"feature_columns": "x"}, 'feature_columns must be a list of strings in double quotes, got "x"'),
    ],
)
def test_bad_options_are_refused_at_construction(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions(**changes)


@pytest.mark.parametrize(("labels", "told"), [([3, 3, -1], True), ([3, 3, 3], True), ([3, 0, -1], False)])
def test_labels_that_are_all_alike_are_told_of(labels: list[int], told: bool, tmp_path: Path) -> None:
    graph = load(save(tmp_path, label=np.array(labels * 4)), OPTIONS)
    assert any("all labels are 3" in note for note in graph.notes) is told
