"""Hosts that hold only some parts build the hops of these as one process builds all, and use them together."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch

from nfdist.errors import PartitionError
from nfdist.store.distributed import DistributedStore
from nfdist.store.hop_building import Limits
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.store.writing import write_partition
from nfdist.world import World
from tests.store.building import RECIPE, build_graph, in_edges
from tests.store.distributing import NODES, assert_same_edges, complaint, some_nodes
from tests.worlds import run_world

ORDER = 3
HOLDINGS = [[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[2, 0], [0, 1, 3], []]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four parts, the last of them empty, of which every edge is listed twice, and their hops by one process."""
    directory = tmp_path_factory.mktemp("whole") / "p"
    indptr, sources = in_edges(graph := build_graph(NODES, 150))
    assignment = np.random.default_rng(9).integers(0, 3, NODES)
    write_partition(directory, graph, 2 * indptr, np.repeat(sources, 2), assignment, 4, RECIPE, directed=True)
    Hops.open(Store.open(directory), ORDER)
    return directory


def files_of(hops: Path) -> dict[str, bytes]:
    return {path.relative_to(hops).as_posix(): path.read_bytes() for path in hops.rglob("*.arrow")}


def shared_store(world: World, folder: str, holdings: list[list[int]]) -> DistributedStore:
    """That of a host of its own, which has the parts it holds and nothing else."""
    return DistributedStore(Store.open(Path(folder) / f"host-{world.rank}" / "p", holdings[world.rank]), world)


def copy_to_hosts(whole: Path, folder: Path, holdings: list[list[int]]) -> None:
    for rank, held in enumerate(holdings):
        others = [f"part-{number:05d}" for number in range(4) if number not in held]
        shutil.copytree(whole, folder / f"host-{rank}" / "p", ignore=shutil.ignore_patterns(*others))


def assert_hops(world: World, folder: str, whole: str, holdings: list[list[int]], builds: bool = True) -> None:
    """The files of a host are those of the whole, and what is induced on batches is what one store induces."""
    shared, alone = shared_store(world, folder, holdings), Store.open(whole)
    found, wanted = Hops.open(shared, ORDER, builds=builds), Hops.open(alone, ORDER)
    for hop in range(1, ORDER + 1):
        for targets, sources in ((some_nodes(30, world.rank), None), (some_nodes(20 * world.rank, 7), some_nodes(50))):
            assert_same_edges(found.induced(hop, targets, sources), wanted.induced(hop, targets, sources))
    kept = set(holdings[world.rank])
    own = Path(folder) / f"host-{world.rank}" / "p.hops"
    truth = files_of(Path(f"{whole}.hops"))
    assert files_of(own) == {name: content for name, content in truth.items() if int(name[13:18]) in kept}


def build_and_build_again(world: World, folder: str, whole: str, holdings: list[list[int]]) -> None:
    """At first nothing is kept, then one host has lost or altered files, another builds only when it is its turn."""
    assert_hops(world, folder, whole, holdings)
    own = Path(folder) / f"host-{world.rank}" / "p.hops"
    kept: list[Callable[[Path], object]] = [shutil.rmtree, lambda hop: altered(next(hop.rglob("sources.arrow")))]
    for spoil, hop in zip(kept, (2, 3), strict=True):
        if world.rank == 0:
            spoil(own / f"order-{hop}")
        assert_hops(world, folder, whole, holdings, builds=world.rank > 0)
    if world.rank == 0:
        shutil.rmtree(own)
        own.write_text("in the way")
    shared = shared_store(world, folder, holdings)
    found, wanted = Hops.open(shared, ORDER), Hops.open(Store.open(whole), ORDER)
    everyone = torch.arange(NODES)
    assert_same_edges(found.induced(ORDER, everyone), wanted.induced(ORDER, everyone))


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("holdings", HOLDINGS, ids=["1", "2", "3"])
def test_hosts_build_the_hops_of_their_parts_to_the_byte(
    whole: Path, tmp_path: Path, holdings: list[list[int]]
) -> None:
    copy_to_hosts(whole, tmp_path, holdings)
    given = str(tmp_path), str(whole), holdings
    if len(holdings) == 1:
        build_and_build_again(World(), *given)
    else:
        run_world(len(holdings), build_and_build_again, *given)


def refused(world: World, folder: str, holdings: list[list[int]]) -> list[str]:
    """What is said when the first host cannot lend its edges, and when the disk of the second has no room."""
    shared, said = shared_store(world, folder, holdings), []
    broken = Mock(side_effect=PartitionError("the disk is gone"))
    with patch.object(Store, "in_neighbors", broken) if world.rank == 0 else nullcontext():
        said.append(complaint(lambda: Hops.open(shared, 2)))
    said.append(complaint(lambda: Hops.open(shared, 2, limits=Limits(disk_bytes=10 if world.rank == 1 else None))))
    return said


def test_what_one_host_cannot_do_is_told_on_all(whole: Path, tmp_path: Path) -> None:
    copy_to_hosts(whole, tmp_path, HOLDINGS[1])
    (broken, first), (lacking, second) = run_world(2, refused, str(tmp_path), HOLDINGS[1])
    assert broken == "PartitionError: the disk is gone"
    assert lacking == "PartitionError: rank 0 cannot go on: the disk is gone"
    assert not list(tmp_path.glob("host-*/p.hops"))
    pattern = Hops.open(Store.open(whole), 2).induced(2, torch.arange(NODES))
    share = pattern.num_edges - int(pattern.indptr[Store.open(whole).parts[0].stop])
    about = int(second.partition("needs about ")[2].partition(" edges at hop 2")[0].replace(",", ""))
    assert about == pytest.approx(share, rel=0.1)
    assert first.startswith("ConfigError: rank 1 cannot go on: relation.order = 2 needs about")
