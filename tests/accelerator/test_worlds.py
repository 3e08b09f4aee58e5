"""Two ranks on accelerators, whose collectives gloo plays where they are fake, and what they say when one fails."""

from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from nfdist import settings
from nfdist.errors import WorldError
from nfdist.rendezvous import Place
from nfdist.training.job import train
from nfdist.world import World
from tests.accelerator import fake
from tests.accelerator.device import accelerator, assert_close, needs_counts, needs_worlds
from tests.training.building import build_partition, config_of, cut_short, flat_weights, step_losses
from tests.training.launching import started, torchrun, write_config
from tests.worlds import run_world

pytestmark = pytest.mark.accelerator

SHORT_PROGRAM = """
import os
import torch
from nfdist import rendezvous
from nfdist.cli.main import entry
from tests.accelerator import fake

MIB, at_once = 1 << 20, {"memory_allocated": 700, "max_memory_allocated": 800, "memory_reserved": 900}
backwards = 0

def observe(operation):
    global backwards
    backwards += operation.name == "native_layer_norm_backward"
    if os.environ["RANK"] == "1" and backwards == 5:
        for name, mebibytes in at_once.items():
            setattr(fake._Module, name, lambda self, _=None, size=mebibytes * MIB: size)
        fake._Module.mem_get_info = lambda self, _=None: (100 * MIB, 1000 * MIB)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total ...")

fake.device()
fake.observers.append(observe)
rendezvous.choose_device = lambda *_: fake.device()
entry()
"""


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graphs") / "partition")


def trained(world: World, runs: dict[str, str], cut: str) -> None:
    """On the CPU, on the device, and on from where a copy of the last one ends."""
    place = Place(world.rank, world.size, world.rank, world.size)
    for name in ("device", "cpu"):
        device = accelerator(world.rank) if name == "device" else torch.device("cpu")
        train(settings.parse(runs[name]), place, world, device, resume=False)
    if world.rank == 0:
        cut_short(Path(settings.parse(runs["device"]).run.dir), Path(cut), 1)
    train(settings.parse(runs["cut"]), place, world, accelerator(world.rank), resume=True)


def test_a_world_of_two_trains_and_goes_on_as_on_the_cpu(partition: Path, tmp_path: Path) -> None:
    """Attention and relations over both ranks, of order 2, with dropout, noise and edge loss."""
    needs_worlds(2)
    options = [
        "train.batch_nodes=40",
        "train.accumulate=2",
        "train.epochs=1",
        "train.checkpoint_every=1",
        "train.keep=9",
    ]
    names = ("device", "cpu", "cut")
    runs = {name: settings.dump(config_of(partition, tmp_path / name, *options)) for name in names}
    run_world(2, trained, runs, str(tmp_path / "cut"))
    for name in ("device", "cut"):
        assert_close(flat_weights(tmp_path / name), flat_weights(tmp_path / "cpu"))
        found, wanted = (torch.tensor(step_losses(tmp_path / run)) for run in (name, "cpu"))
        assert_close(found, wanted)
    assert torch.equal(flat_weights(tmp_path / "cut"), flat_weights(tmp_path / "device"))


def hanging(world: World, text: str) -> str:
    """What a rank says whose device never ends a step."""
    world.watch.timeout_seconds, world.watch.explain = 0.3, lambda: "rank 1 on b is lost"
    place = Place(world.rank, world.size, world.rank, world.size)
    reached = world.rank != 0
    with patch("nfdist.training.step.reached", lambda _: lambda: reached), pytest.raises(WorldError) as caught:
        train(settings.parse(text), place, world, accelerator(world.rank), resume=False)
    return str(caught.value)


def test_a_step_that_never_ends_is_explained(partition: Path, tmp_path: Path) -> None:
    """As NCCL leaves it when a rank is gone: its operations neither fail nor end."""
    needs_counts()
    text = settings.dump(config_of(partition, tmp_path / "run"))
    explained, other = run_world(2, hanging, text)
    assert explained == "seed 0, step 1, waiting for the device: rank 1 on b is lost (waited 0.3 s)"
    assert "rank 1 on b is lost" in other


def test_a_rank_without_memory_says_so_itself(partition: Path, tmp_path: Path) -> None:
    needs_counts()
    (tmp_path / "short.py").write_text(SHORT_PROGRAM)
    config = write_config(tmp_path / "small.toml", partition, "run.timeout_seconds=20")
    command = torchrun("train", config, f"run.dir={tmp_path / 'run'}", program=(str(tmp_path / "short.py"),))
    root = Path(fake.__file__).parents[2]
    with started(command, tmp_path / "log", {"PYTHONPATH": str(root)}) as job:
        assert job.wait() == 1  # torchrun's own
    lines = [line for line in job.output.splitlines() if line.startswith("nfdist: rank")]
    told = (
        "is out of memory at seed 0, step 2, backward, gradients, with 0.68 of 0.98 GiB in use, by 17 nodes: "
        "set train.batch_nodes to at most 15 (is 20)"
    )
    assert any(line.startswith("nfdist: rank 1: rank 1 (fake:0 on ") and told in line for line in lines), job.output
    assert "exitcode  : 2" in job.output
    for line in lines:  # rank 0 is told, if it is not ended before
        assert line.startswith("nfdist: rank 1:") or told in line
