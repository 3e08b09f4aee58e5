"""From a source to a partition and back: nothing is lost, whatever the graph looks like."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from nfdist.cli.main import main
from nfdist.errors import ConfigError, PartitionError
from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.store import Store

ROOT = Path(__file__).parents[2]


def write_source(path: Path, nodes: int = 60, edges: int = 200, seed: int = 0) -> dict[str, NDArray[Any]]:
    """An npz with duplicate edges, self-loops and (the last tenth) isolated nodes."""
    generator = np.random.default_rng(seed)
    linked = max(1, nodes * 9 // 10)
    ends = generator.integers(0, linked, (2, edges))
    ends[:, : edges // 10] = ends[:, edges // 10 : 2 * (edges // 10)]
    arrays: dict[str, Any] = {
        "edge_index": ends,
        "feat": generator.standard_normal((nodes, 5)).astype(np.float32),
        "label": generator.integers(-1, 4, nodes),
    }
    np.savez(path, **arrays)
    return arrays


def edges_of(store: Store) -> list[tuple[int, int]]:
    """All stored edges as (source, target) of original ids, sorted."""
    found: list[tuple[Any, Any]] = []
    for number, part in enumerate(store.parts):
        indptr, sources = store.in_edges(number)
        targets = torch.arange(part.start, part.stop).repeat_interleave(indptr.diff().long())
        found += zip(store.original_ids(sources.long()), store.original_ids(targets), strict=True)
    return sorted((int(source), int(target)) for source, target in found)


@pytest.mark.parametrize("method", ["metis", "stream", "random"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_every_edge_feature_label_and_split_comes_back(tmp_path: Path, parts: int, directed: bool, method: str) -> None:
    arrays = write_source(tmp_path / "graph.npz")
    recipe = Recipe.build(
        str(tmp_path / "graph.npz"),
        {"parts": parts, "out": str(tmp_path / "out"), "method": method, "directed": directed},
    )
    outcome = partition(recipe)
    store = Store.open(tmp_path / "out")
    given = list(zip(*arrays["edge_index"].tolist(), strict=True))
    wanted = sorted(given) if directed else sorted({*given, *((target, source) for source, target in given)})
    assert edges_of(store) == wanted
    assert outcome.manifest.num_edges == len(wanted)
    ids = torch.arange(60)
    originals = store.original_ids(ids)
    assert sorted(originals) == list(range(60))
    assert np.array_equal(store.take(ids).numpy(), arrays["feat"][originals])
    assert np.array_equal(store.labels(ids).numpy(), arrays["label"][originals])
    split = store.split(ids).numpy()
    assert (split[arrays["label"][originals] == -1] == 0).all()
    assert {name: int((split == code).sum()) for code, name in enumerate(("unassigned", "train", "valid", "test"))} == (
        outcome.manifest.split_counts
    )
    cut = sum(
        int(((sources < part.start) | (sources >= part.stop)).sum())
        for part, (_, sources) in ((part, store.in_edges(number)) for number, part in enumerate(store.parts))
    )
    assert outcome.manifest.edge_cut == cut


def test_a_graph_without_edges_and_an_empty_part(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", feat=np.ones((6, 2), np.float32), label=np.arange(6) % 2)
    partition(Recipe.build(str(tmp_path / "graph.npz"), {"parts": 2, "out": str(tmp_path / "out")}))
    assert Store.open(tmp_path / "out").num_edges == 0
    (tmp_path / "parts.txt").write_text("0\n2\n2\n0\n0\n2\n")
    given = {"parts": 3, "out": str(tmp_path / "chosen"), "method": "file", "assignment": str(tmp_path / "parts.txt")}
    partition(Recipe.build(str(tmp_path / "graph.npz"), given))
    store = Store.open(tmp_path / "chosen")
    assert [part.num_nodes for part in store.parts] == [3, 0, 3]
    assert list(store.original_ids(torch.arange(6))) == [0, 3, 4, 1, 2, 5]


@pytest.mark.parametrize("directed", [False, True])
def test_tables_of_names_become_a_partition(tmp_path: Path, directed: bool) -> None:
    names = [f"node {number}" for number in range(9)]
    features = pa.array([[float(number), 1.0] for number in range(9)])
    (tmp_path / "tables").mkdir()
    nodes = pa.table({"id": names, "features": features, "label": [number % 2 for number in range(9)]})
    edges = pa.table({"source": names[:-1], "target": names[1:]})
    pq.write_table(nodes, tmp_path / "tables" / "nodes.parquet")
    pq.write_table(edges, tmp_path / "tables" / "edges.parquet")
    given = {"parts": 2, "out": str(tmp_path / "out"), "directed": directed}
    partition(Recipe.build(str(tmp_path / "tables"), given))
    store = Store.open(tmp_path / "out")
    assert all(part.num_nodes > 0 for part in store.parts)
    assert store.num_edges == (8 if directed else 16)
    found = store.node_ids(names)
    assert torch.equal(store.take(found)[:, 0], torch.arange(9.0))
    assert store.induced(found).num_edges == store.num_edges


@pytest.mark.parametrize("dividing", ["metis", "stream"])
def test_fewer_edges_are_cut_than_by_chance_and_the_parts_are_balanced(tmp_path: Path, dividing: str) -> None:
    for method in (dividing, "random"):
        given = {"parts": 4, "out": str(tmp_path / method), "method": method, "scale": 0.001}
        partition(Recipe.build("amazon2m-like", given))
    divided, chance = (Store.open(tmp_path / method).manifest for method in (dividing, "random"))
    assert divided.edge_cut < 0.8 * chance.edge_cut
    for part in divided.parts:
        assert part.num_nodes < 1.3 * divided.num_nodes / 4
        assert part.edges < 1.3 * divided.num_edges / 4
        assert part.train_nodes < 1.3 * divided.split_counts["train"] / 4


def test_mistakes_are_one_line_exit_with_two_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_source(tmp_path / "graph.npz")
    source, out = str(tmp_path / "graph.npz"), str(tmp_path / "out")
    for words, message in (
        (["partition", source, "--parts", "61", "--out", out], "between 1 and the 60 nodes of the graph, got 61"),
        (["partition", source, "--parts", "0", "--out", out], "at least 1 and at most 65,536, got 0"),
        (["partition", source, "--out", out], "needs --parts P"),
        (["partition", source, "--parts", "2"], "needs --out DIR"),
        (["partition", str(tmp_path / "none.npz"), "--parts", "2", "--out", out], "none.npz"),
        (["partition", source, "--parts", "2", "--out", out, "--method", "file"], "go together"),
        (["partition", source, "--parts", "2", "--out", str(tmp_path)], "exists"),
        (["partition", source, "--parts", "2", "--out", f"{source}/out"], "is not a folder"),
        (["partition", source, "--parts", "2", "--out", str(tmp_path / ("x" * 240))], "File name too long"),
        (["partition", "x" * 5000, "--parts", "2", "--out", out], "File name too long"),
        (["inspect", str(tmp_path / "nowhere")], "is not a directory"),
    ):
        assert main(words) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if "/4" not in line]  # without the progress
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not (tmp_path / "out").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


def test_an_output_inside_its_own_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"id": [1, 2], "x": [1.0, 2.0]}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.parquet")
    for out in (tmp_path / "out", tmp_path / "deep" / "er" / "out", tmp_path / ".." / tmp_path.name / "out"):
        assert main(["partition", str(tmp_path), "--parts", "1", "--out", str(out)]) == 2
        assert "is inside its own source" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.parquet", "nodes.parquet"]


def test_a_recipe_is_a_file_that_the_command_line_overrides(tmp_path: Path) -> None:
    write_source(tmp_path / "graph.npz")
    (tmp_path / "recipe.toml").write_text(
        f'source = "{tmp_path / "graph.npz"}"\nparts = 2\nsplit = "random:0.6/0.2/0.2"\n'
    )
    recipe = Recipe.build(str(tmp_path / "recipe.toml"), {"parts": 3})
    assert recipe.parts == 3
    assert recipe.out == str(tmp_path / "recipe")
    assert recipe.options.split == "random:0.6/0.2/0.2"
    (tmp_path / "recipe.toml").write_text('source = "cora"\npart = 2\n')
    with pytest.raises(ConfigError, match="unknown key part: did you mean parts"):
        Recipe.build(str(tmp_path / "recipe.toml"), {})
    (tmp_path / "recipe.toml").write_text("parts = 2\n")
    with pytest.raises(ConfigError, match="names no source"):
        Recipe.build(str(tmp_path / "recipe.toml"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "partitions").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_repository_loads(path: Path) -> None:
    recipe = Recipe.build(str(path), {})
    assert path.stem.replace("fashion-features", "fashion-mnist").startswith(recipe.source)
    assert recipe.out == str(path.with_suffix(""))


def test_inspect_and_plan_print_one_line_of_json_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = write_source(tmp_path / "graph.npz")["label"]
    out = str(tmp_path / "out")
    assert main(["partition", str(tmp_path / "graph.npz"), "--parts", "2", "--out", out, "--json"]) == 0
    written = json.loads(capsys.readouterr().out.splitlines()[-1])
    peaks = {"peak_memory_bytes", "peak_private_bytes"}
    assert set(written) == {"parts", "nodes", "edges", "edge_cut", "seconds", "stage_seconds", "sent_bytes", *peaks}
    assert sum(written["stage_seconds"].values()) == pytest.approx(written["seconds"])
    assert main(["inspect", out, "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["edges"] == written["edges"]
    assert found["edge_cut"] == written["edge_cut"]
    assert found["verified"]
    assert found["label_histogram"] == np.bincount(labels[labels >= 0], minlength=4).tolist()
    assert main(["plan", "amazon2m-like", "--parts", "8", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert planned["stored_edges"] == 2 * 61_859_140
    assert 4 * 2**30 < planned["peak_bytes"] < 16 * 2**30


def test_an_altered_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_source(tmp_path / "graph.npz")
    out = tmp_path / "out"
    partition(Recipe.build(str(tmp_path / "graph.npz"), {"parts": 2, "out": str(out)}))
    victim = out / "part-00001" / "sources.arrow"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    for words in (["inspect", str(out)], ["inspect", str(out), "--verify"]):
        assert main(words) == 2
        assert "part-00001/sources.arrow was altered" in capsys.readouterr().err
    victim.write_bytes(content[:-8])
    with pytest.raises(PartitionError, match=r"sources\.arrow"):
        Store.open(out)


def test_a_killed_run_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    """The process dies in the middle of writing; the next run cleans up and succeeds."""
    write_source(tmp_path / "graph.npz")
    code = (
        "import os, signal, sys, nfdist.store.writing as writing\n"
        "writing._part = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from nfdist.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    words = ["partition", str(tmp_path / "graph.npz"), "--parts", "2", "--out", str(tmp_path / "out")]
    killed = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.npz", "out"]
