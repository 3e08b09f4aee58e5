import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.store.manifest import Manifest
from tests.store.building import RECIPE, build_graph, dense, write


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write(tmp_path / "p", build_graph())
    return tmp_path / "p"


def change(partition: Path, **values: Any) -> None:
    path = partition / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refusal(partition: Path) -> str:
    with pytest.raises(PartitionError) as caught:
        Manifest.read(partition)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    written = write(tmp_path / "p", build_graph(questions=3))
    read = Manifest.read(tmp_path / "p")
    assert read == written
    assert read.label_shape == (3,)
    assert read.recipe == RECIPE


def test_counts_are_those_of_the_graph(tmp_path: Path) -> None:
    graph = build_graph()
    assignment = [row % 3 for row in range(60)]
    manifest = write(tmp_path / "p", graph, assignment=np.array(assignment))
    truth = dense(graph)
    for number, part in enumerate(manifest.parts):
        rows = [row for row in range(60) if assignment[row] == number]
        foreign = [row for row in range(60) if assignment[row] != number]
        assert part.stop - part.start == part.num_nodes == len(rows)
        assert part.edges == truth[rows].sum()
        assert part.cut_edges == truth[rows][:, foreign].sum()
        assert part.halo_nodes == truth[rows][:, foreign].any(axis=0).sum()
        assert part.train_nodes == (graph.split[rows] == 1).sum()
    assert manifest.edge_cut == sum(part.cut_edges for part in manifest.parts)
    assert manifest.split_counts["valid"] == (graph.split == 2).sum()


def test_checksums_hold_and_progress_adds_up(partition: Path) -> None:
    manifest = Manifest.read(partition)
    seen: list[int] = []
    manifest.verify(partition, progress=seen.append)
    assert sum(seen) == sum(stored.size_bytes for stored in manifest.files.values())
    assert {str(path.relative_to(partition)) for path in partition.rglob("*.arrow")} == set(manifest.files)


def test_an_altered_file_of_the_same_size_is_found_by_verify(partition: Path) -> None:
    path = partition / "part-00001" / "sources.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    manifest = Manifest.read(partition)
    with pytest.raises(PartitionError, match=r"part-00001/sources\.arrow was altered"):
        manifest.verify(partition)


def test_a_file_that_cannot_be_read_is_named(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("nfdist.store.manifest.checksum", fail)
    with pytest.raises(PartitionError, match=r"ids\.arrow cannot be read: Input/output error"):
        Manifest.read(partition).verify(partition)


def test_a_truncated_file_is_refused(partition: Path) -> None:
    path = partition / "part-00002" / "nodes.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    assert "part-00002/nodes.arrow has" in refusal(partition)


def test_a_missing_file_is_refused(partition: Path) -> None:
    (partition / "ids.arrow").unlink()
    assert "ids.arrow cannot be read: No such file" in refusal(partition)


def test_a_missing_directory_or_manifest_is_refused(tmp_path: Path) -> None:
    assert "is not a directory" in refusal(tmp_path / "nothing")
    assert "holds no manifest.json" in refusal(tmp_path)


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_an_unknown_version_is_refused_before_anything_else(partition: Path, version: object) -> None:
    change(partition, format_version=version, parts="something of the future")
    assert f"format version {version!r} is unknown, this nfdist reads version 1" in refusal(partition)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"', "{}", "\x00\xff"])
def test_text_that_is_no_manifest_is_refused(partition: Path, text: str) -> None:
    (partition / "manifest.json").write_text(text, encoding="latin-1")
    assert "manifest.json" in refusal(partition)


def test_missing_and_unknown_fields_are_named(partition: Path) -> None:
    change(partition, color="red")
    assert "unknown field color" in refusal(partition)
    content = json.loads((partition / "manifest.json").read_text())
    del content["color"], content["num_classes"]
    (partition / "manifest.json").write_text(json.dumps(content))
    assert "has no field num_classes" in refusal(partition)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_nodes": "60"}, "num_nodes = '60'"),
        ({"num_nodes": True}, "num_nodes = True"),
        ({"num_nodes": 61}, "do not cover the 61 nodes"),
        ({"num_edges": 1}, "num_edges is 1"),
        ({"edge_cut": 1}, "edge_cut is 1"),
        ({"parts": []}, "do not cover"),
        ({"parts": [{"start": 0}]}, "part 0 has no field stop"),
        ({"parts": [3]}, "part 0 is not an object"),
        ({"label_shape": ["x"]}, "label_shape"),
        ({"split_counts": {"train": "many"}}, "split_counts"),
        ({"feature_kind": "fluffy"}, "feature_kind"),
        ({"files": {"../secret": {"size_bytes": 1, "checksum": ""}}}, "outside the partition"),
        ({"files": {"ids.arrow": {"size_bytes": 1, "checksum": ""}}}, "ids.arrow has"),
    ],
)
def test_wrong_values_are_named(partition: Path, values: dict[str, Any], message: str) -> None:
    change(partition, **values)
    assert message in refusal(partition)
