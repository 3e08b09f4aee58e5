"""Launchers of evaluations on several hosts, run as they are: their scores are those of one process."""

import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nfdist.evaluation.evaluator import Wanted, evaluate_run
from nfdist.evaluation.follow import read_evaluations
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.world import World
from tests.multihost.hosts import Host
from tests.multihost.starting import start_all, train_on_one_host
from tests.training.building import build_partition
from tests.training.launching import steps_made, torchrun, write_config

LAUNCH = Path(__file__).parent.parent.parent / "launch"
STUBS = {
    "srun": 'while [ "$1" != torchrun ]; do shift; done; exec "$@"',
    "scontrol": 'echo "$SLURM_JOB_NODELIST"',
}


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture(scope="module")
def trained(partition: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    config = write_config(folder / "small.toml", partition, "train.epochs=2", "relation.order=1")
    return train_on_one_host(1, config, folder / "run")


def launched(launcher: str, hosts: list[Host], run: Path, folder: Path, *words: str) -> list[list[str]]:
    """What each host runs: the launcher itself, or what the operator of Kubernetes makes of a file of pods."""
    for name, body in STUBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    first, commands = hosts[0].address, []
    for rank, host in enumerate(hosts):
        # What finds itself on a real host is told here, where all have one name.
        told = {"PET_RDZV_CONF": f"is_host={int(rank == 0)}", "PET_LOCAL_ADDR": host.address}
        path = {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        if launcher.endswith(".yaml"):
            operator = {"PET_NNODES": str(len(hosts)), "PET_NPROC_PER_NODE": "1"}
            command, own = [*_pod_command(LAUNCH / launcher, run, first), *words], operator
        else:
            command, own = ["bash", str(LAUNCH / launcher), *words], {"RUN_DIR": str(run), "WORKERS": "1"}
        if launcher.endswith(".sh"):
            own |= {"HOSTS": str(len(hosts)), "NODE_RANK": str(rank), "MASTER_ADDR": first}
            told = {}
        if launcher.endswith(".sbatch"):
            own |= {"SLURM_JOB_NODELIST": first, "SLURM_NNODES": str(len(hosts)), "SLURM_JOB_ID": "7"}
            own |= {"SLURM_CPUS_PER_TASK": "1"}
        commands.append(["env", *(f"{name}={value}" for name, value in (path | told | own).items()), *command])
    return commands


def _pod_command(path: Path, run: Path, first: str) -> list[str]:
    lines = [line.partition(" #")[0].strip() for line in path.read_text().splitlines()]
    words = [line.removeprefix("- ") for line in lines[lines.index("command:") + 1 : lines.index("env:")]]
    partition = Run.open(run).config.data.partition
    places = {"$(MASTER_ADDR)": first, "$(MASTER_PORT)": "29400", "/runs/amazon2m": str(run)}
    for name, place in {**places, "/partitions/amazon2m": partition}.items():
        words = [word.replace(name, place) for word in words]
    return words


def outcomes(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    "launcher",
    [
        "evaluate.sbatch",
        pytest.param("evaluate-many-hosts.sh", marks=pytest.mark.slow),
        pytest.param("evaluate-kubernetes.yaml", marks=pytest.mark.slow),
    ],
)
def test_hosts_evaluate_like_one(launcher: str, hosts: list[Host], trained: Path, tmp_path: Path) -> None:
    runs = [Path(shutil.copytree(trained, tmp_path / name)) for name in ("one", "many")]
    wanted = evaluate_run(runs[0], Wanted(outputs=True, states=True, smoothing=True), Place(), World())
    with ExitStack() as stack:
        commands = launched(launcher, hosts[:2], runs[1], tmp_path, "--json")
        jobs = start_all(stack, hosts[:2], commands, tmp_path)
        assert [job.wait() for job in jobs] == [0, 0]
        (found,) = [outcome for job in jobs for outcome in outcomes(job.output)]
    assert found["world_size"] == 2
    for name in ("train", "valid", "test", "nodes", "step"):
        assert found[name] == wanted[name]
    ours, theirs = (pq.read_table(path / "predictions.parquet").column("label").to_pylist() for path in runs)
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["follow-many-hosts.sh", "follow.sbatch", "follow-kubernetes.yaml"])
def test_hosts_follow_a_training_to_its_end(launcher: str, hosts: list[Host], partition: Path, tmp_path: Path) -> None:
    """One host trains and never evaluates; two others score its checkpoints, and say which was the best."""
    run = tmp_path / "run"
    options = ("train.epochs=8", "relation.order=1", "train.evaluate_every=0", "train.checkpoint_every=26")
    config = write_config(tmp_path / "small.toml", partition, *options)
    with ExitStack() as stack:
        training = torchrun("train", config, f"run.dir={run}", workers=1)
        (trainer,) = start_all(stack, hosts[:1], [training], tmp_path)
        trainer.wait_until(lambda: steps_made(run) >= 1)
        folder = tmp_path / "followers"
        folder.mkdir()
        followers = start_all(stack, hosts[1:], launched(launcher, hosts[1:], run, folder), folder)
        assert [job.wait() for job in (trainer, *followers)] == [0, 0, 0]
    found = Run.open(run)
    evaluations = read_evaluations(found)
    assert evaluations[-1]["step"] == steps_made(run)
    assert {line["world_size"] for line in evaluations} == {2}
    best = found.best_of(0)
    assert best is not None
    assert best["valid"] == max(line["valid"] for line in evaluations)
