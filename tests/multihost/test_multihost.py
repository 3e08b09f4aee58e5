"""Trainings over a network between hosts: as on one host, and when a cable is cut nobody waits in vain."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nfdist.runs.run import Run
from tests.multihost.hosts import Host, NoHostsError, connected_hosts
from tests.train.building import build_partition
from tests.train.launching import Job, finish, started, steps_made, torchrun, training_of, write_config

EPOCHS = 40  # of the reference; what is compared with its beginning makes fewer
FEW = "train.epochs=4"
TIMEOUT_SECONDS = 8
ALLOWANCE_SECONDS = 30


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    with ExitStack() as stack:
        try:
            connected = stack.enter_context(connected_hosts(3))
        except NoHostsError as reason:
            if os.environ.get("NFDIST_REQUIRE_MULTIHOST") == "1":
                pytest.fail(f"hosts are required, but {reason}")
            pytest.skip(f"no network namespaces: {reason}")
        yield connected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multihost")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    partition = build_partition(folder / "partition")
    return write_config(folder / "small.toml", partition, f"train.epochs={EPOCHS}", "train.evaluate_every=4")


@pytest.fixture(scope="module")
def undisturbed(config: Path, folder: Path) -> Path:
    """Two workers of one host."""
    finish(torchrun("train", config, f"run.dir={folder / 'undisturbed'}"), folder / "undisturbed log")
    return folder / "undisturbed"


def members(hosts: list[Host]) -> list[tuple[str, ...]]:
    """The words that make torchrun one of several hosts whose ranks are fixed."""
    meeting = (f"--nnodes={len(hosts)}", f"--master-addr={hosts[0].address}", "--master-port=29500")
    return [(*meeting, f"--node-rank={rank}") for rank in range(len(hosts))]


def start_all(stack: ExitStack, hosts: list[Host], commands: list[list[str]], folder: Path) -> list[Job]:
    logs = [folder / f"log of host {number}" for number in range(len(hosts))]
    starts = [started(host.inside(command), log) for host, command, log in zip(hosts, commands, logs, strict=True)]
    return [stack.enter_context(start) for start in starts]


def finish_all(hosts: list[Host], commands: list[list[str]], folder: Path) -> None:
    with ExitStack() as stack:
        jobs = start_all(stack, hosts, commands, folder)
        assert [job.wait() for job in jobs] == [0] * len(hosts)


def beginning(run: Path, epochs: int) -> tuple[list[object], list[object]]:
    """Losses and scores of the first epochs."""
    training = training_of(run)
    return [step for step in training["steps"] if step[0] < epochs], training["evaluations"][: epochs // 4]


@pytest.mark.parametrize("way", ["static", "c10d"])
def test_two_hosts_train_like_one(way: str, hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path) -> None:
    two = hosts[:2]
    words = members(two)
    if way == "c10d":  # told who is the meeting place, since both have the same name
        meeting = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=test", f"--rdzv-endpoint={two[0].address}:29400")
        own = [f"--rdzv-conf=is_host={int(host is two[0])}" for host in two]
        words = [(*meeting, mine, f"--local-addr={host.address}") for host, mine in zip(two, own, strict=True)]
    run = tmp_path / "run"
    finish_all(
        two, [torchrun("train", config, f"run.dir={run}", FEW, workers=1, host=host) for host in words], tmp_path
    )
    assert beginning(run, 4) == beginning(undisturbed, 4)


def test_three_hosts_train_like_one(hosts: list[Host], config: Path, tmp_path: Path) -> None:
    finish(torchrun("train", config, f"run.dir={tmp_path / 'one'}", FEW, workers=3), tmp_path / "log of one")
    command = ("train", config, f"run.dir={tmp_path / 'three'}", FEW)
    finish_all(hosts, [torchrun(*command, workers=1, host=host) for host in members(hosts)], tmp_path)
    assert training_of(tmp_path / "three") == training_of(tmp_path / "one")


def test_hosts_with_some_parts_each_train_like_one_with_all(
    hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    whole = Path(Run.open(undisturbed).config.data.partition)
    commands = []
    for number, host in enumerate(members(hosts[:2])):
        own = tmp_path / f"parts of host {number}"
        others = ("part-00001", "part-00002") if number == 0 else ("part-00000",)
        shutil.copytree(whole, own, ignore=shutil.ignore_patterns(*others, "hops*"))
        command = ("train", config, f"run.dir={tmp_path / f'run {number}'}", f"data.partition={own}", FEW)
        commands.append(torchrun(*command, workers=1, host=host))
    finish_all(hosts[:2], commands, tmp_path)
    assert beginning(tmp_path / "run 0", 4) == beginning(undisturbed, 4)
    assert not (tmp_path / "run 1").exists()


def test_a_cut_cable_ends_both_sides_and_the_run_goes_on_when_it_is_mended(
    hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run, two = tmp_path / "run", hosts[:2]
    options = ("train", config, f"run.dir={run}", f"run.timeout_seconds={TIMEOUT_SECONDS}", "--resume")
    commands = [torchrun(*options, workers=1, host=host) for host in members(two)]
    with ExitStack() as stack:
        first, second = start_all(stack, two, commands, tmp_path)
        first.wait_until(lambda: steps_made(run) >= 25)
        two[1].pull_plug()
        stack.callback(two[1].put_plug)
        cut = time.monotonic()
        assert 0 not in (first.wait(), second.wait())
        assert time.monotonic() - cut < TIMEOUT_SECONDS + ALLOWANCE_SECONDS
        lost = f"rank 1 on {socket.gethostname()} is lost, its last sign of life was at: seed 0, step "
        assert lost in first.output
        store = (
            f"torchrun's store at {two[0].address}:29500 cannot be reached: rank 0, its host or the link to it is down"
        )
        assert store in second.output
    assert steps_made(run) < steps_made(undisturbed)
    finish_all(two, commands, tmp_path)
    assert training_of(run) == training_of(undisturbed)
