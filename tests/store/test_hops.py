"""Paths of several steps through the whole graph, against dense powers, and how they are kept beside a partition."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nfdist.errors import ConfigError, PartitionError
from nfdist.files import dump_checked, load_checked
from nfdist.sparse.adjacency import Adjacency
from nfdist.store import hop_building
from nfdist.store.hop_building import Limits
from nfdist.store.hops import Hops
from nfdist.store.kept_hops import FORMAT_VERSION
from nfdist.store.paths import Reached, Rows, extended
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from tests.store.building import RECIPE, build_graph, dense, in_edges, write


def small_graph(seed: int = 0) -> Any:
    """Sparse enough that paths of two steps do not reach everything."""
    return build_graph(num_edges=70, seed=seed)


def dense_hop(graph: Any, store: Store, hop: int) -> Any:
    rows = np.argsort(store.node_ids(graph.original_ids).numpy())
    step = dense(graph)[rows][:, rows].astype(int) + np.eye(60, dtype=int)
    return (np.linalg.matrix_power(step, hop) > 0).astype(int)


def dense_adjacency(adjacency: Adjacency) -> Any:
    matrix = np.zeros((adjacency.num_nodes, adjacency.num_sources), dtype=int)
    np.add.at(matrix, (adjacency.targets.numpy(), adjacency.sources.numpy()), 1)
    return matrix


def assert_dense_powers(hops: Hops, graph: Any, store: Store) -> None:
    """Every hop, on the whole graph, on scattered and on empty batches, square and rectangular."""
    generator = torch.Generator().manual_seed(0)
    for hop in range(1, hops.order + 1):
        truth = dense_hop(graph, store, hop)
        for num_targets, num_sources in ((60, 60), (12, 30), (0, 30), (12, 0)):
            targets = torch.randperm(60, generator=generator)[:num_targets]
            sources = torch.randperm(60, generator=generator)[:num_sources]
            rows, columns = targets.numpy(), sources.numpy()
            square, rectangle = hops.induced(hop, sources), hops.induced(hop, targets, sources)
            np.testing.assert_array_equal(dense_adjacency(square), truth[np.ix_(columns, columns)])
            np.testing.assert_array_equal(dense_adjacency(rectangle), truth[np.ix_(rows, columns)])
            assert rectangle.columns == num_sources


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("num_parts", [1, 4])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_hops_are_powers_of_the_whole_graph(tmp_path: Path, order: int, num_parts: int, twice: bool) -> None:
    graph = small_graph()
    indptr, sources = in_edges(graph)
    if twice:  # as a directed source may list its edges
        indptr, sources = 2 * indptr, np.repeat(sources, 2)
    assignment = np.random.default_rng(9).integers(0, num_parts, 60)
    write_partition(tmp_path / "p", graph, indptr, sources, assignment, num_parts, RECIPE, directed=True)
    store = Store.open(tmp_path / "p")
    assert dense_hop(graph, store, 2).sum() < dense_hop(graph, store, 3).sum() < 3600
    assert_dense_powers(Hops.open(store, order), graph, store)  # as built
    assert_dense_powers(Hops.open(store, order), graph, store)  # as kept


def test_paths_may_leave_the_batch(tmp_path: Path) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    nodes = torch.arange(0, 60, 3)
    inside = store.induced(nodes).power(2)
    assert Hops.open(store, 2).induced(2, nodes).num_edges > inside.num_edges


def test_patterns_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    Hops.open(store, 2)
    built: list[int] = []

    def counted(reached: Reached, *more: Any) -> Iterator[Rows]:
        built.append(len(reached.counts()))
        return extended(reached, *more)

    monkeypatch.setattr(hop_building, "extended", counted)
    monkeypatch.chdir(tmp_path / "p")
    Hops.open(Store.open("."), 2)  # another name of the same folder
    assert built == []
    assert_dense_powers(Hops.open(store, 3), graph, store)
    assert built == [part.num_nodes for part in store.parts]  # the third order, from the second
    folder = tmp_path / "p.hops"
    assert sorted(path.name for path in folder.iterdir()) == ["order-2", "order-3"]
    described = json.loads((folder / "order-3" / "manifest.json").read_text())
    assert described["partition_manifest_checksum"] == store.fingerprint()
    files = list((folder / "order-3").rglob("*.arrow"))
    assert len(files) == 2 * len(store.parts)
    sizes = {path.relative_to(folder / "order-3").as_posix(): path.stat().st_size for path in files}
    assert {name: stored["size_bytes"] for name, stored in described["files"].items()} == sizes


def damage_size(folder: Path) -> None:
    with (folder / "part-00001" / "sources.arrow").open("ab") as file:
        file.write(b"more")


def damage_content(folder: Path) -> None:
    path = folder / "part-00001" / "sources.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)


def flip_a_bit(folder: Path) -> None:
    path = folder / "part-00002" / "sources.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def lose_a_file(folder: Path) -> None:
    (folder / "part-00001" / "indptr.arrow").unlink()


@pytest.mark.parametrize("damage", [damage_size, damage_content, flip_a_bit, damage_manifest, lose_a_file])
def test_what_cannot_be_read_is_built_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    Hops.open(store, 2)
    files = {path: path.read_bytes() for path in (tmp_path / "p.hops").rglob("*.arrow")}
    damage(tmp_path / "p.hops" / "order-2")
    assert_dense_powers(Hops.open(store, 2), graph, store)
    assert {path: path.read_bytes() for path in (tmp_path / "p.hops").rglob("*.arrow")} == files


def test_patterns_of_another_partition_are_not_used(tmp_path: Path) -> None:
    assignment = np.arange(60) % 3
    write(tmp_path / "p", small_graph(), assignment=assignment)
    Hops.open(Store.open(tmp_path / "p"), 2)
    shutil.rmtree(tmp_path / "p")
    other = small_graph(seed=1)
    write(tmp_path / "p", other, assignment=assignment)
    store = Store.open(tmp_path / "p")
    for _ in range(2):
        assert_dense_powers(Hops.open(store, 2), other, store)


def test_a_folder_that_cannot_be_written_leaves_the_patterns_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    (tmp_path / "p.hops").write_text("in the way")
    store = Store.open(tmp_path / "p")
    assert_dense_powers(Hops.open(store, 3), graph, store)
    lines = [line for line in capsys.readouterr().err.splitlines() if "in memory" in line]
    assert [line.partition(",")[0] for line in lines] == [
        "nfdist: paths of 2 steps are kept in memory",
        "nfdist: paths of 3 steps are kept in memory",
    ]
    assert "order-2 cannot be written" in lines[0]
    assert (tmp_path / "p.hops").read_text() == "in the way"


def test_the_patterns_of_a_faster_process_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")

    def overtaken(*given: Any) -> Iterator[Rows]:
        monkeypatch.setattr(hop_building, "extended", extended)
        Hops.open(Store.open(tmp_path / "p"), 2)
        return extended(*given)

    monkeypatch.setattr(hop_building, "extended", overtaken)
    assert_dense_powers(Hops.open(store, 2), graph, store)
    assert "in memory" not in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "p.hops").iterdir()] == ["order-2"]


def test_patterns_that_are_too_large_are_refused_before_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is of a sample, and of all paths where these are few enough."""
    write(tmp_path / "p", small_graph())
    store = Store.open(tmp_path / "p")
    step = store.induced(torch.arange(60), loops=True)
    kept = 8 * 60 + 4 * step.after(step).num_edges
    with monkeypatch.context() as patched:
        patched.setattr(hop_building, "extended", None)
        wanted = r"relation.order = 2 needs about \d+ edges at hop 2, 0.0 GiB of disk and .* for .*order-2: use a lower"
        with pytest.raises(ConfigError, match=wanted):
            Hops.open(store, 2, limits=Limits(disk_bytes=round(0.9 * kept)))
        assert not (tmp_path / "p.hops").exists()
    room = Limits(disk_bytes=round(1.1 * kept))
    assert Hops.open(store, 2, limits=room).induced(2, torch.arange(60)).num_edges == step.after(step).num_edges
    with pytest.raises(ConfigError, match=r"relation.order = 3 needs about .* at hop 3.*relation.order=2, or"):
        Hops.open(store, 3, limits=room)


def test_a_sample_tells_the_size_of_hops_among_hubs(tmp_path: Path) -> None:
    """A twentieth of 4,000 rows, where few nodes have most of the edges: within a tenth."""
    stream = np.random.default_rng(0)
    graph = build_graph(4000, 0)
    ends = np.minimum(stream.pareto(0.8, (2, 12000)) * 20, 3999).astype(int)
    sources, targets = np.unique(stream.permutation(4000)[np.concatenate([ends, ends[::-1]], 1)], axis=1)
    write(tmp_path / "p", replace(graph, sources=sources, targets=targets), 2)
    store = Store.open(tmp_path / "p")
    step = store.induced(torch.arange(4000), loops=True)
    assert step.in_degrees.max() > 20 * step.in_degrees.float().mean()
    wanted = step.after(step).num_edges
    with pytest.raises(ConfigError) as refused:
        Hops.open(store, 2, limits=Limits(disk_bytes=1))
    told = re.search(r"about ([\d,]+) edges", str(refused.value))
    assert told
    assert int(told[1].replace(",", "")) == pytest.approx(wanted, rel=0.1)
    assert step.paths_after(step) > 2 * wanted


def test_what_does_not_fit_in_memory_either_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "p", small_graph())
    (tmp_path / "p.hops").write_text("in the way")
    monkeypatch.setattr(hop_building, "available_bytes", lambda: 1000)
    with pytest.raises(PartitionError, match=r"order-2 cannot be written.*; paths of 2 steps do not fit in memory"):
        Hops.open(Store.open(tmp_path / "p"), 2)


def test_a_host_that_got_another_part_builds_its_hops_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = small_graph()
    write(tmp_path / "p", graph)
    store = Store.open(tmp_path / "p")
    Hops.open(store, 2)
    path = tmp_path / "p.hops/order-2/manifest.json"
    content = load_checked(path.read_bytes(), FORMAT_VERSION, "")
    content["files"] = {name: facts for name, facts in content["files"].items() if "part-00001" not in name}
    path.write_bytes(dump_checked(FORMAT_VERSION, content))
    assert_dense_powers(Hops.open(store, 2), graph, store)
    assert "paths of 2 steps are built again:" in (said := capsys.readouterr().err)
    assert "order-2 lacks part 1" in said


def test_some_parts_alone_have_no_paths_through_the_others(tmp_path: Path) -> None:
    write(tmp_path / "p", small_graph())
    with pytest.raises(PartitionError, match=r"relation.order 2 needs all parts of .*, or other ranks that have the"):
        Hops.open(Store.open(tmp_path / "p", [0, 2]), 2)
