"""Ranks that share the work write what one process writes, byte for byte, and refuse what it refuses."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.store.cache import available_parts
from nfdist.store.manifest import Manifest
from nfdist.store.store import Store
from nfdist.world import World
from tests.partitioning.every_source import NAMES, NODES, contents, sources_in
from tests.partitioning.ranks import Job, fail_to_write, partition_all, parts_together, read_together
from tests.partitioning.wrong_tables import EDGES, ONE_FILE, WRONG_EDGES, write
from tests.partitioning.wrong_tables import NODES as ROWS
from tests.training.launching import finish, started, torchrun
from tests.worlds import run_world

WAYS: dict[str, dict[str, Any]] = {
    "random": {"method": "random", "parts": 3},
    "metis": {"method": "metis", "parts": 2, "directed": True, "split": "random:0.6/0.2/0.2"},
    "stream": {"method": "stream", "parts": 4},
    "file": {"method": "file", "parts": 5},
}


WITH_GAPS = ("texts", "numbers in CSV", "row numbers", "texts in CSV")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "parts.txt").write_text("\n".join(str(row * 7 % 3 * 2) for row in range(NODES)) + "\n")
    return {**sources_in(folder), "assignment": str(folder / "parts.txt")}


def jobs_of(sources: dict[str, str], size: int) -> list[Job]:
    """Every source in one way; it is another one in another world."""
    found: list[Job] = []
    for place, name in enumerate(NAMES):
        way = list(WAYS)[(place + size) % len(WAYS)]
        recipe = {**WAYS[way], "out": f"{name} {way}"}
        if name in ("made", "cited"):
            recipe["scale"] = NODES / (2_449_029 if name == "made" else 111_059_956)
        if way == "stream" and name not in WITH_GAPS:
            recipe["normalize_features"] = "row"
        if way == "file":
            recipe["assignment"] = sources["assignment"]
        found.append((sources[name], recipe))
    return found


def in_folder(jobs: list[Job], folder: Path | str) -> list[Job]:
    return [(source, {**recipe, "out": f"{folder}/{recipe['out']}"}) for source, recipe in jobs]


def without_recipe(found: dict[str, str]) -> dict[str, str]:
    """What must be equal: a manifest names the folder that it is for."""
    return {name: digest for name, digest in found.items() if name != "manifest.json"}


@pytest.mark.parametrize(("size", "tiny"), [(2, True), (3, False), (7, False)])
def test_ranks_write_what_one_process_writes(sources: dict[str, str], tmp_path: Path, size: int, tiny: bool) -> None:
    jobs = jobs_of(sources, size)
    assert not any(partition_all(World(), in_folder(jobs, tmp_path / "one")))
    assert run_world(size, partition_all, in_folder(jobs, tmp_path / "ranks"), tiny) == [[""] * len(jobs)] * size
    for _, recipe in jobs:
        ours, theirs = (tmp_path / folder / recipe["out"] for folder in ("ranks", "one"))
        assert without_recipe(contents(ours)) == without_recipe(contents(theirs)), recipe["out"]
        own, other = (Store.open(folder).manifest for folder in (ours, theirs))
        assert vars(own) | {"recipe": {}} == vars(other) | {"recipe": {}}, recipe["out"]
        assert list(own.files) == list(other.files)
    assert sorted(path.name for path in (tmp_path / "ranks").iterdir()) == sorted(job["out"] for _, job in jobs)


def hosts_in(folder: Path, count: int, **options: Any) -> tuple[str, Job]:
    """Folders of hosts, each with a copy of the same tables."""
    for rank in range(count):
        write(ROWS, folder / str(rank) / "tables" / "nodes.csv")
        write(EDGES, folder / str(rank) / "tables" / "edges.parquet")
    return f"{folder}/{{rank}}", ("tables", {"parts": 4, "method": "random", "out": "out", **options})


def test_hosts_without_a_common_disk_hold_their_own_parts(tmp_path: Path) -> None:
    hosts, job = hosts_in(tmp_path, 3)
    assert run_world(3, partition_all, [job], False, hosts) == [[""]] * 3
    folders = [tmp_path / str(rank) / "out" for rank in range(3)]
    parts = [[0], [1], [2, 3]]
    assert [available_parts(folder) for folder in folders] == parts
    for folder in folders:
        assert sorted(path.name for path in folder.parent.iterdir()) == ["out", "tables"]
    run_world(1, partition_all, [(job[0], {**job[1], "out": "whole"})], False, hosts)
    assert parts_together(folders) == contents_as(tmp_path / "0" / "whole", "out")
    whole = Store.open(tmp_path / "0" / "whole")
    features = whole.take(torch.arange(whole.num_nodes)).tolist()
    assert run_world(3, read_together, hosts, parts) == [features] * 3


def contents_as(folder: Path, out: str) -> dict[str, str]:
    """What a partition holds that was written into `out`: a manifest names that."""
    manifest = Manifest.read(folder)
    manifest.recipe["out"] = out
    manifest.write(folder)
    return contents(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda host: (host / "tables" / "edges.parquet").unlink(), "rank 1 cannot go on: tables has no edges.parquet"),
        (
            lambda host: (host / "tables" / "nodes.csv").write_text("id,a\nx,1\n"),
            "tables/nodes.csv has 9 bytes for rank 1",
        ),
        (lambda host: (host / "out").mkdir(), "rank 1 cannot go on: out exists: choose another --out"),
    ],
)
def test_what_is_wrong_on_one_host_names_its_rank(tmp_path: Path, spoil: Any, message: str) -> None:
    hosts, job = hosts_in(tmp_path, 2)
    spoil(tmp_path / "1")
    before = sorted(tmp_path.rglob("*"))
    first, second = run_world(2, partition_all, [job], False, hosts)
    assert message in first[0]
    assert message.removeprefix("rank 1 cannot go on: ") in second[0]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("failing", [0, 1])
def test_a_full_disk_of_one_rank_leaves_nothing(tmp_path: Path, failing: int) -> None:
    write(ROWS, tmp_path / "tables" / "nodes.parquet")
    write(EDGES, tmp_path / "tables" / "edges.parquet")
    job = str(tmp_path / "tables"), {"parts": 4, "method": "random", "out": str(tmp_path / "out")}
    told = run_world(2, fail_to_write, job, failing)
    assert "is full: the partition needs about" in told[failing]
    assert "another rank has stopped" in told[1 - failing]
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def wrong_sources(folder: Path) -> list[Job]:
    """Tables that are wrong in one way each."""
    found: list[Job] = []
    for name, (suffix, change, words, _) in ONE_FILE.items():
        place = folder / str(len(found))
        rows = ROWS.assign(label=[0, 1] * (len(ROWS) // 2)) if "numeric labels" in name else ROWS
        write(change(rows), place / f"nodes{suffix}")
        write(EDGES, place / "edges.parquet")
        said = dict(zip(words[::2], words[1::2], strict=True))
        options: dict[str, Any] = {key[2:].replace("-", "_"): value for key, value in said.items()}
        for key, kind in (("knn", int), ("columns", list), ("feature_columns", list)):
            given = options.pop(key.removesuffix("s") if key == "columns" else key, None)
            if given is not None:
                options[key] = kind(given) if kind is int else [given]
        found.append((str(place), options))
    for suffix, change, _ in WRONG_EDGES:
        place = folder / str(len(found))
        write(ROWS, place / "nodes.parquet")
        write(change(EDGES), place / f"edges{suffix}")
        found.append((str(place), {}))
    return [(source, {"parts": 2, "method": "random", **options, "out": f"{folder}/out"}) for source, options in found]


def test_ranks_refuse_what_one_process_refuses_in_the_same_words(tmp_path: Path) -> None:
    jobs = [job for job in wrong_sources(tmp_path / "wrong") if "knn" not in job[1]]
    alone = partition_all(World(), jobs)
    assert all(alone)
    for told in run_world(3, partition_all, jobs):
        assert told == alone
    assert not (tmp_path / "wrong" / "out").exists()


def test_workers_of_torchrun_tell_once_what_came_of_it(tmp_path: Path) -> None:
    for name, table in (("nodes", ROWS), ("edges", EDGES)):
        write(table, tmp_path / "tables" / f"{name}.csv")
    words = ("partition", tmp_path / "tables", "--parts", "3", "--out", tmp_path / "out", "--json")
    lines = finish(torchrun(*words), tmp_path / "log").splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(one["parts"], one["nodes"], one["edges"]) for one in found] == [(3, len(ROWS), 6)]
    assert found[0]["peak_private_bytes"] > 0
    assert sum("0/4" in line for line in lines) == sum("out: 3 parts" in line for line in lines) == 1
    with started(torchrun(*words), tmp_path / "log") as job:
        assert job.wait() != 0
    told = [line for line in job.output.splitlines() if line.startswith("nfdist: ")]
    assert told == [f"nfdist: {tmp_path / 'out'} exists: choose another --out or remove it first"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out", "tables"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("rank", [0, 1])
def test_workers_that_are_ended_leave_nothing(tmp_path: Path, rank: int, number: signal.Signals) -> None:
    words = ("partition", "amazon2m-like", "--scale", "0.01", "--parts", "200", "--out", tmp_path / "out")
    with started(torchrun(*words, "--method", "random"), tmp_path / "log") as job:
        job.wait_until(lambda: list(tmp_path.glob(".out.tmp-*/part-*")))
        job.workers()[rank].send_signal(number)
        assert job.wait() != 0
    assert [path.name for path in tmp_path.iterdir()] == ["log"], job.output
