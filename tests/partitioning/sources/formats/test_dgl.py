"""DGL's own files: a saved graph, and what partition_graph wrote, put together again."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist import seeds
from nfdist.errors import PartitionError
from nfdist.partitioning.sources import SourceCounts, SourceOptions, counts, load
from nfdist.sparse.dgl_door import dgl
from tests.needs import needs_dgl

pytestmark = needs_dgl  # which writes what is read here without it

NODES, EDGES = 40, 150
LEAVES_FILES_OPEN = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # partition_graph does


def make_graph(**data: Any) -> Any:
    ends = torch.randint(NODES, (2, EDGES), generator=seeds.generator(0, "ends"))
    graph = dgl().graph((ends[0], ends[1]), num_nodes=NODES)
    graph.ndata["feat"] = torch.randn(NODES, 5, generator=seeds.generator(0, "rows"))
    graph.ndata["label"] = torch.arange(NODES) % 4
    for index, word in enumerate(("train", "val", "test")):
        graph.ndata[f"{word}_mask"] = torch.arange(NODES) % 5 == index
    graph.edata["weight"] = torch.ones(EDGES)
    graph.ndata.update(data)
    return graph


def save(folder: Path, *graphs: Any) -> str:
    dgl().save_graphs(str(folder / "toy.bin"), list(graphs))
    return str(folder / "toy.bin")


def edges_by_id(graph: Any) -> list[tuple[int, int]]:
    ids = graph.original_ids
    return sorted(zip(ids[graph.sources].tolist(), ids[graph.targets].tolist(), strict=True))


SPLIT = np.where(np.arange(NODES) % 5 < 3, np.arange(NODES) % 5 + 1, 0)


def test_a_saved_graph_comes_back_exactly(tmp_path: Path) -> None:
    graph = make_graph(year=torch.ones(NODES))
    path = save(tmp_path, graph)
    found = load(path, SourceOptions())
    assert np.array_equal(found.sources, graph.edges()[0])
    assert np.array_equal(found.targets, graph.edges()[1])
    assert np.array_equal(found.features, graph.ndata["feat"])
    assert np.array_equal(found.labels, graph.ndata["label"])
    assert np.array_equal(found.split, SPLIT)
    assert found.weights is not None
    assert np.array_equal(found.weights, graph.edata["weight"])
    assert found.notes[0] == "dropped node data: year"
    assert found.notes[1:] == ("edge weights are stored, and used only where relation.weights=true asks for them",)
    assert counts(path, SourceOptions()) == SourceCounts(NODES, EDGES, 5, None, "float32")


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["coo", "csr", "csc"], ["csr", "csc"]])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_a_graph_comes_back_from_every_format(tmp_path: Path, formats: Any, kind: torch.dtype) -> None:
    graph = make_graph().astype(kind)
    graph.ndata["half"] = torch.arange(NODES).bfloat16()
    dgl().save_graphs(str(tmp_path / "toy.bin"), [graph], {"labels": torch.ones(3)}, formats=formats)
    found = load(str(tmp_path / "toy.bin"), SourceOptions(feature_columns=("feat", "half")))
    assert np.array_equal(found.sources, graph.edges(order="eid")[0])
    assert np.array_equal(found.targets, graph.edges(order="eid")[1])
    assert np.array_equal(found.features[:, :5], graph.ndata["feat"])
    assert found.features[:, 5].tolist() == list(range(NODES))


def test_named_data_and_split_numbers(tmp_path: Path) -> None:
    order = torch.randperm(NODES, generator=seeds.generator(0, "order"))
    graph = make_graph(key=order + 100, split=torch.from_numpy(SPLIT).flip(0), target=torch.ones(NODES, 3).long())
    options = SourceOptions(id_column="key", label_column="target", feature_columns=("feat", "label"))
    found = load(save(tmp_path, graph), options)
    assert np.array_equal(found.original_ids, order + 100)
    assert np.array_equal(found.split, SPLIT[::-1])
    assert (found.task, found.num_classes, found.features.shape) == ("multi", 3, (NODES, 6))


@LEAVES_FILES_OPEN
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("mapping", ["saved", "ndata", "none"])
def test_a_partition_is_put_together_again(tmp_path: Path, parts: int, mapping: str) -> None:
    graph = make_graph()
    if mapping == "ndata":
        graph.ndata["orig_id"] = torch.arange(NODES)
    with contextlib.redirect_stdout(io.StringIO()):
        order, _ = dgl().distributed.partition_graph(
            graph, "toy", parts, str(tmp_path), part_method="random", return_mapping=True
        )
    if mapping == "saved":
        np.save(tmp_path / "orig_nids.npy", order.numpy())
    source = str(tmp_path / "toy.json")
    found = load(source, SourceOptions())
    assert counts(source, SourceOptions()) == SourceCounts(NODES, EDGES, 5, None, "float32")
    if mapping == "none":
        assert np.array_equal(found.original_ids, np.arange(NODES))
        assert "ids are those DGL gave them" in found.notes[-1]
    else:
        assert np.array_equal(found.original_ids, order)
        assert edges_by_id(found) == sorted(zip(*(ends.tolist() for ends in graph.edges()), strict=True))
    assert np.array_equal(found.features, graph.ndata["feat"][order])
    assert np.array_equal(found.labels, graph.ndata["label"][order])
    assert np.array_equal(found.split, SPLIT[order])


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    graph = make_graph()
    with pytest.raises(PartitionError, match="holds 2 graphs"):
        load(save(tmp_path, graph, graph), SourceOptions())
    with pytest.raises(PartitionError, match="no column 'laebl': did you mean 'label'"):
        load(save(tmp_path, graph), SourceOptions(label_column="laebl"))
    several = dgl().heterograph({("a", "to", "b"): ([0], [0]), ("b", "to", "a"): ([0], [0])})
    with pytest.raises(PartitionError, match="several types of nodes or edges"):
        load(save(tmp_path, several), SourceOptions())
    del graph.ndata["feat"]
    with pytest.raises(PartitionError, match="has no features: store them as ndata feat"):
        load(save(tmp_path, graph), SourceOptions())
    (tmp_path / "toy.json").write_text('{"num_nodes": 3}')
    with pytest.raises(PartitionError, match=r"is not the JSON of dgl.distributed.partition_graph"):
        load(str(tmp_path / "toy.json"), SourceOptions())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_damaged_graph_is_refused(tmp_path: Path, share: float) -> None:
    path = Path(save(tmp_path, make_graph()))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(PartitionError, match="cannot be read") as caught:
        load(str(path), SourceOptions())
    assert "\n" not in str(caught.value)


@LEAVES_FILES_OPEN
def test_a_missing_or_wrong_part_is_refused(tmp_path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        dgl().distributed.partition_graph(make_graph(), "toy", 2, str(tmp_path), part_method="random")
    about = (tmp_path / "toy.json").read_text()
    for old, new, message in (
        ('"num_edges": 150', '"num_edges": 9', "edata _ID: .* numbers are out of range, the first is 9; the 9 edges"),
        ('"num_edges": 150', '"num_edges": 151', "1 edges are in no part, the first is 150"),
        ('"num_edges": 150', '"num_edges": 1000000000000', "1,000,000,000,000 edges, more than its parts"),
        ('"num_edges": 150', '"num_edges": "150"', "is not the JSON of"),
        ('"num_edges": 150', '"num_edges": true', "is not the JSON of"),
        ('"num_nodes": 40', '"num_nodes": 41', "has 40 entries, but there are 41 nodes"),
        ('"num_parts": 2', '"num_parts": 1000000000', "does not name the files of part 2"),
        ("part_graph", "graph", "does not name the files of part 0"),
        ("part0/graph.dgl", "part1/graph.dgl", "edges are in no part"),
        ("part0/graph.dgl", "part0/node_feat.dgl", r"node_feat.dgl cannot be read \(no graph of DGL"),
        ("part0/graph.dgl", "part0\\u0000", "cannot be read"),
        ('"toy"', "[" * 100_000, "cannot be read"),
    ):
        assert old in about, old
        (tmp_path / "toy.json").write_text(about.replace(old, new, 1))
        with pytest.raises(PartitionError, match=message):
            load(str(tmp_path / "toy.json"), SourceOptions())
    (tmp_path / "toy.json").write_text(about)
    (tmp_path / "part1" / "graph.dgl").unlink()
    with pytest.raises(PartitionError, match=r"part1/graph.dgl does not exist"):
        load(str(tmp_path / "toy.json"), SourceOptions())
