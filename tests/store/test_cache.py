"""The cache: the same graph from elsewhere, each part fetched once, in bounded space, checked; and whole uploads."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.errors import ConfigError, PartitionError
from nfdist.remote import Remote
from nfdist.store.cache import local_directory, sent
from nfdist.store.manifest import MANIFEST_NAME, Manifest
from nfdist.store.store import Store
from tests.object_store import end_use, fake_store
from tests.store.building import build_graph, write

Elsewhere = tuple[Path, list[str]]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    root, fetched = fake_store(monkeypatch, tmp_path)
    write(root / "graph", build_graph())
    yield root, fetched
    end_use()


def size_bytes(folder: Path) -> int:
    return sum(stored.size_bytes for stored in Manifest.read(folder).files.values())


def entries(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_graph_elsewhere_is_the_graph_here(elsewhere: Elsewhere) -> None:
    root, _ = elsewhere
    here, there = Store.open(root / "graph"), Store.open("fake://graph")
    nodes = torch.arange(here.num_nodes)
    assert there.fingerprint() == here.fingerprint()
    assert torch.equal(there.take(nodes), here.take(nodes))
    assert list(there.original_ids(nodes)) == list(here.original_ids(nodes))
    assert Store.open((root / "graph").as_uri()).directory == root / "graph"  # mapped where it is


def test_only_the_parts_asked_for_are_fetched_and_once(elsewhere: Elsewhere) -> None:
    _, fetched = elsewhere
    assert list(Store.open("fake://graph", [1]).held_parts) == [1]
    first = set(fetched)
    assert {name.split("/")[1] for name in first} == {"ids.arrow", "part-00001"}
    Store.open("fake://graph", [1])
    assert len(fetched) == len(first)
    Store.open("fake://graph")
    assert len(fetched) == len(set(fetched)) == len(Manifest.read(local_directory("fake://graph")).files)


def test_processes_that_ask_at_once_fetch_once(elsewhere: Elsewhere) -> None:
    _, fetched = elsewhere
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(local_directory, ["fake://graph"] * 4))
    assert len(set(places)) == 1
    assert len(fetched) == len(set(fetched))


def test_the_parts_of_a_host_are_its_own_choice(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Store.available_parts("fake://graph") == [0, 1, 2]
    for text, parts in (("1", [1]), ("0,2", [0, 2]), ("1-2", [1, 2])):
        monkeypatch.setenv("NFDIST_PARTS", text)
        assert Store.available_parts("fake://graph") == parts
    for text in ("3", "x", "2-1", "0-3", "-1"):
        monkeypatch.setenv("NFDIST_PARTS", text)
        with pytest.raises(ConfigError, match=f"NFDIST_PARTS={text} must be parts of fake://graph"):
            Store.available_parts("fake://graph")


def test_a_partition_that_changed_is_fetched_again(elsewhere: Elsewhere) -> None:
    root, _ = elsewhere
    before = Store.open("fake://graph")
    shutil.rmtree(root / "graph")
    write(root / "graph", build_graph(seed=1))
    after = Store.open("fake://graph")
    assert after.fingerprint() == Store.open(root / "graph").fingerprint() != before.fingerprint()


@pytest.mark.parametrize("name", ["ids.arrow", "part-00001/sources.arrow"])
def test_what_was_altered_elsewhere_is_refused_and_not_kept(elsewhere: Elsewhere, name: str) -> None:
    file = elsewhere[0] / "graph" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(PartitionError, match=rf"fake://graph \({name}\) was altered"):
        Store.open("fake://graph")
    file.write_bytes(whole)
    Store.open("fake://graph").manifest.verify(local_directory("fake://graph"))


def test_nothing_there_is_no_partition(elsewhere: Elsewhere) -> None:
    with pytest.raises(PartitionError, match=r"fake://none holds no manifest\.json"):
        Store.open("fake://none")


def test_the_cache_stays_within_its_size(elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, fetched = elsewhere
    for name in ("second", "third"):
        shutil.copytree(root / "graph", root / name)
    one = size_bytes(root / "graph") + (root / "graph" / MANIFEST_NAME).stat().st_size
    monkeypatch.setenv("NFDIST_CACHE_SIZE", str(one // 2))
    with pytest.raises(PartitionError, match="set NFDIST_CACHE_SIZE to more"):
        Store.open("fake://graph")
    monkeypatch.setenv("NFDIST_CACHE_SIZE", str(2 * one + one // 2))
    Store.open("fake://graph")
    Store.open("fake://second")
    with pytest.raises(PartitionError, match="other processes use"):  # both are in use
        Store.open("fake://third")
    end_use()
    Store.open("fake://graph")  # so that the second is the one not used for longest
    Store.open("fake://third")
    assert len(entries(tmp_path)) == 2
    count = len(fetched)
    Store.open("fake://graph")
    assert len(fetched) == count
    with pytest.raises(PartitionError, match="other processes use"):
        Store.open("fake://second")


def test_what_is_sent_is_whole_or_absent(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = elsewhere
    names, send = list[str](), Remote.send

    def failing(self: Remote, file: Path, name: str) -> None:
        if name == MANIFEST_NAME:
            raise PartitionError("no more room")
        send(self, file, name)

    def noting(self: Remote, file: Path, name: str) -> None:
        send(self, file, name)
        names.append(name)

    monkeypatch.setattr(Remote, "send", failing)
    with pytest.raises(PartitionError, match="no more room"), sent("fake://new/one") as out:
        write(out, build_graph())
    assert not [path for path in (root / "new").rglob("*") if path.is_file()]
    monkeypatch.setattr(Remote, "send", noting)
    with sent("fake://new/one") as out:
        write(out, build_graph())
    assert names[-1] == MANIFEST_NAME
    Manifest.read(root / "new/one").verify(root / "new/one")
    with pytest.raises(PartitionError, match="fake://new/one exists"), sent("fake://new/one"):
        pytest.fail("not refused")
