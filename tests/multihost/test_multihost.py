"""Trainings over a network between hosts: as on one host, and when a cable is cut nobody waits in vain."""

import json
import shutil
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from nfdist import settings
from nfdist.runs.run import Run
from tests.multihost.hosts import Host
from tests.multihost.starting import finish_all, members, start_all, train_on_one_host
from tests.training.building import build_partition
from tests.training.launching import steps_made, torchrun, training_of, write_config

EPOCHS = 12  # of the reference; what is compared with its beginning makes fewer
FEW = "train.epochs=4"
TIMEOUT_SECONDS = 8
ALLOWANCE_SECONDS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multihost")


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    partition = build_partition(folder / "partition")
    options = (f"train.epochs={EPOCHS}", "train.evaluate_every=4", "relation.order=1")
    return write_config(folder / "small.toml", partition, *options)


@pytest.fixture(scope="module")
def undisturbed(config: Path, folder: Path) -> Path:
    return train_on_one_host(2, config, folder / "undisturbed")


def beginning(run: Path, epochs: int) -> tuple[list[object], list[object]]:
    """Losses and scores of the first epochs."""
    training = training_of(run)
    return [step for step in training["steps"] if step[0] < epochs], training["evaluations"][: epochs // 4]


def test_two_hosts_train_like_one(hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    commands = [torchrun("train", config, f"run.dir={run}", FEW, workers=1, host=host) for host in members(hosts[:2])]
    finish_all(hosts[:2], commands, tmp_path)
    assert beginning(run, 4) == beginning(undisturbed, 4)


def test_hosts_that_find_each_other_start_again_when_one_loses_its_worker(
    hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run, two = tmp_path / "run", hosts[:2]
    commands = []
    for host in two:  # one is told that it is the meeting place, since all have the same name
        meeting = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=test", f"--rdzv-endpoint={two[0].address}:29400")
        own = (f"--rdzv-conf=is_host={int(host is two[0])}", f"--local-addr={host.address}")
        options = ("train", config, f"run.dir={run}", "--resume")
        commands.append(torchrun(*options, workers=1, restarts=1, host=(*meeting, *own)))
    with ExitStack() as stack:
        first, second = start_all(stack, two, commands, tmp_path)
        first.wait_until(lambda: steps_made(run) >= 15)
        workers = first.workers() | second.workers()
        workers[1].kill()
        assert [first.wait(), second.wait()] == [0, 0]
        assert f"rank 1 on {socket.gethostname()} is lost" in first.output + second.output
    assert training_of(run) == training_of(undisturbed)


@pytest.mark.slow  # two hosts train like one above, and three ranks in tests/training/test_laws.py
def test_three_hosts_train_like_one(hosts: list[Host], config: Path, tmp_path: Path) -> None:
    one = train_on_one_host(3, config, tmp_path / "one", FEW)
    command = ("train", config, f"run.dir={tmp_path / 'three'}", FEW)
    finish_all(hosts, [torchrun(*command, workers=1, host=host) for host in members(hosts)], tmp_path)
    assert training_of(tmp_path / "three") == training_of(one)


def test_hosts_with_some_parts_each_train_like_one_with_all(
    hosts: list[Host], config: Path, undisturbed: Path, tmp_path: Path
) -> None:
    whole = Path(Run.open(undisturbed).config.data.partition)
    commands = []
    for number, host in enumerate(members(hosts[:2])):
        own = tmp_path / f"parts of host {number}"
        others = ("part-00001", "part-00002") if number == 0 else ("part-00000",)
        shutil.copytree(whole, own, ignore=shutil.ignore_patterns(*others))
        command = ("train", config, f"run.dir={tmp_path / f'run {number}'}", f"data.partition={own}", FEW)
        commands.append(torchrun(*command, workers=1, host=host))
    finish_all(hosts[:2], commands, tmp_path)
    assert beginning(tmp_path / "run 0", 4) == beginning(undisturbed, 4)
    assert not (tmp_path / "run 1").exists()


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("model", ["nodeformer", "mixhop"])
def test_hosts_with_some_parts_each_follow_paths_through_the_others(
    model: str, hosts: list[Host], config: Path, tmp_path: Path
) -> None:
    """Each builds the hops of its parts, trains, and is scored beside the other by nfdist evaluate."""
    whole = Path(settings.load(config).data.partition)
    options = ["relation.order=2"] if model == "nodeformer" else ["relation.scope=rank", "train.edge_loss=0"]
    options += [f"model.name={model}", FEW, "train.evaluate_every=2"]
    one = train_on_one_host(2, config, tmp_path / "one", *options)
    trains, evaluates = [], []
    for number, host in enumerate(members(hosts[:2])):
        own = tmp_path / f"host {number}" / "parts"
        others = ("part-00001", "part-00002") if number == 0 else ("part-00000",)
        shutil.copytree(whole, own, ignore=shutil.ignore_patterns(*others))
        run = tmp_path / f"run {number}"
        trains.append(
            torchrun("train", config, f"run.dir={run}", f"data.partition={own}", *options, workers=1, host=host)
        )
        evaluates.append(torchrun("evaluate", run, "--partition", own, "--json", workers=1, host=host))
    finish_all(hosts[:2], trains, tmp_path)
    held, wanted = training_of(tmp_path / "run 0"), training_of(one)
    assert held["steps"] == wanted["steps"]
    for found, expected in zip(held["evaluations"], wanted["evaluations"], strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    finish_all(hosts[:2], evaluates, tmp_path)
    told = json.loads((tmp_path / "log of host 0").read_text().splitlines()[-1])
    result = Run.open(one).result()
    assert result is not None
    assert told["test"] == pytest.approx(result["best"]["test"], rel=1e-5)
    kept = [
        sorted(path.name for path in tmp_path.glob(f"host {number}/parts.hops/order-2/part-*")) for number in (0, 1)
    ]
    assert kept == ([["part-00000"], ["part-00001", "part-00002"]] if model == "nodeformer" else [[], []])
