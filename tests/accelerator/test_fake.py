"""The fake accelerator computes what the CPU does, refuses what a GPU refuses, and counts what a GPU would do."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from torch import Tensor, nn

from nfdist.world import World
from tests.accelerator import fake
from tests.accelerator.counts import counted
from tests.accelerator.device import needs_counts
from tests.worlds import run_world

pytestmark = pytest.mark.accelerator


@pytest.fixture
def device() -> torch.device:
    needs_counts()
    return fake.device()


def test_training_equals_the_cpu(device: torch.device) -> None:
    def trained(place: torch.device) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.ELU(), nn.Linear(7, 3))
        rows, labels = torch.randn(20, 5), torch.arange(20) % 3
        model.to(place)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows.to(place)), labels.to(place)).backward()
            optimizer.step()
        assert all(parameter.device == place for parameter in model.parameters())
        return {name: value.cpu() for name, value in model.state_dict().items()}

    ours, theirs = trained(device), trained(torch.device("cpu"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


MIXED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "aten.add.Tensor": lambda here, there: here + there,
    "aten.mm": lambda here, there: there @ here.t(),
    "aten.stack": lambda here, there: torch.stack([here[0, 0], there[0, 0]]),
    "aten.index_select": lambda here, there: here.index_select(0, there[0].long()),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_tensor_left_on_the_cpu_fails(device: torch.device, name: str) -> None:
    rows = torch.zeros(2, 3)
    with pytest.raises(RuntimeError, match=f"{name}.* at torch: expected all tensors to be on the same device"):
        MIXED[name](rows.to(device), rows)


def test_a_number_on_the_cpu_may_be_added(device: torch.device) -> None:
    assert (torch.ones(2, device=device) + torch.tensor(2.0)).tolist() == [3.0, 3.0]


def test_a_generator_of_the_cpu_fails(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(3, device=device).uniform_(generator=torch.Generator())


def test_autocast_is_for_products(device: torch.device) -> None:
    rows, table = torch.ones(2, 3, device=device), torch.ones(3, 3, device=device)
    with torch.autocast(fake.TYPE, torch.bfloat16):
        assert nn.functional.linear(rows, table).dtype == (rows @ table).dtype == torch.bfloat16
        assert (rows + 1).exp().dtype == torch.float32
    assert (rows @ table).dtype == torch.float32


def test_fused_adam_wants_its_step_on_the_device(device: torch.device) -> None:
    weight = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.Adam([weight], fused=True)
    weight.sum().backward()
    optimizer.step()
    optimizer.state[weight]["step"] = optimizer.state[weight]["step"].cpu()
    with pytest.raises(RuntimeError, match="_fused_adam_"):
        optimizer.step()


WAITING: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda rows: float(rows[0]),
    "a decision": lambda rows: bool(rows.any()),
    "to the CPU": lambda rows: rows.cpu(),
    "from the CPU": lambda rows: torch.tensor([1.0], device=rows.device),
    "into a tensor": lambda rows: rows.copy_(torch.zeros(4)),
    "nonzero": lambda rows: rows.nonzero(),
    "a mask": lambda rows: rows[rows > 0],
    "set by a mask": lambda rows: rows.clone().__setitem__(rows > 0, rows[1:]),
    "an index on the CPU": lambda rows: rows[torch.tensor([0, 1])],
    "unique": lambda rows: rows.unique(),
    "repeated": lambda rows: rows.repeat_interleave(torch.arange(4, device=rows.device)),
    "counted": lambda rows: rows.long().bincount(),
}
GOING_ON: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda rows: rows.sum(),
    "filled": lambda rows: torch.full((3,), 2.0, device=rows.device),
    "filled by a mask": lambda rows: rows.clone().__setitem__(rows > 0, 0.0),
    "masked": lambda rows: rows.masked_fill(rows > 0, 0.0),
    "indexed": lambda rows: rows[torch.arange(2, device=rows.device)],
    "repeated to a size": lambda rows: rows.repeat_interleave(2, output_size=8),
    "sent": lambda rows: rows.to("cpu", non_blocking=True),
}


@pytest.mark.parametrize("name", WAITING)
def test_waits_of_the_host_are_counted(device: torch.device, name: str) -> None:
    rows = torch.arange(4.0).to(device)
    with counted() as counts:
        WAITING[name](rows)
    assert counts.syncs.total() == 1, counts.table("syncs")


@pytest.mark.parametrize("name", GOING_ON)
def test_other_operations_do_not_wait(device: torch.device, name: str) -> None:
    rows = torch.arange(4.0).to(device)
    with counted() as counts:
        GOING_ON[name](rows)
    assert counts.syncs.total() == 0, counts.table("syncs")


def test_launches_bytes_and_arithmetic(device: torch.device) -> None:
    left, right = torch.ones(4, 5, device=device), torch.ones(5, 6, device=device)
    with counted() as counts:
        torch.empty(3, device=device)
        product = left.t().t()[:, :].view(4, 5) @ right
        product += 1
    assert sorted(asked.operation for asked in counts.launches) == ["add_", "mm"]
    assert counts.launches.total() == 2
    assert counts.flops.total() == 2 * 4 * 5 * 6
    assert counts.bytes.total() == 4 * (4 * 5 + 5 * 6 + 4 * 6) + 4 * 4 * 6


def test_lines_and_threads_are_told(device: torch.device) -> None:
    from nfdist import seeds

    ids = torch.arange(5).to(device)
    thread = threading.Thread(target=lambda: seeds.hash_ids(ids, ids).cpu(), name="nfdist batches")
    with counted() as counts:
        thread.start()
        thread.join()
    assert {asked.thread for asked in counts.launches} == {"nfdist batches"}
    assert all(asked.line.startswith("seeds.py:") for asked in counts.launches)
    assert counts.of_thread().syncs.total() == 0
    assert counts.of_thread("nfdist batches").syncs.total() == 1


def test_worlds_meet_on_the_device(device: torch.device) -> None:
    assert run_world(2, _sums_and_gradients) == [[3.0, 3.0], [3.0, 3.0]]


def _sums_and_gradients(world: World) -> list[float]:
    numbers = torch.full((1,), world.rank + 1.0, device=fake.device())
    distributed.all_reduce(numbers)
    model = nn.Linear(1, 1, bias=False).to(fake.device())
    replica = nn.parallel.DistributedDataParallel(model)
    replica(torch.full((1, 1), 2.0 * (world.rank + 1), device=fake.device())).sum().backward()
    assert model.weight.grad is not None
    return [float(numbers), float(model.weight.grad)]
