"""Ranks that share the work write what one process writes, byte for byte, and refuse what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from nfdist.store.store import Store
from nfdist.world import World
from tests.partitioning.every_source import NAMES, NODES, contents, sources_in
from tests.partitioning.ranks import Job, partition_all
from tests.partitioning.wrong_tables import EDGES, ONE_FILE, WRONG_EDGES, write
from tests.partitioning.wrong_tables import NODES as ROWS
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


def wrong_sources(folder: Path) -> list[Job]:
    """Tables that are wrong in one way each."""
    found: list[Job] = []
    for name, (suffix, change, words, _) in ONE_FILE.items():
        place = folder / str(len(found))
        rows = ROWS.assign(label=[0, 1] * (len(ROWS) // 2)) if "numeric labels" in name else ROWS
        write(change(rows), place / f"nodes{suffix}")
        write(EDGES, place / "edges.parquet")
        said = dict(zip(words[::2], words[1::2], strict=True))
        options = {key[2:].replace("-", "_"): value for key, value in said.items()}
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
