"""Work in the background is done in order, tells of its errors when it is settled, and ends when nobody wants it."""

import threading
from pathlib import Path

import pytest
import torch

from nfdist.errors import CheckpointError
from nfdist.evaluation.background import Background
from nfdist.evaluation.states import STATES_FOLDER, writing_states
from nfdist.world import World


def test_work_is_done_in_its_order_beside_what_comes_after() -> None:
    done: list[int] = []
    go_on = threading.Event()
    with Background(World()) as background:
        background.begin(lambda: done.append(1) if go_on.wait(60) else None)
        background.begin(lambda: done.append(2))
        assert done == []
        go_on.set()
        background.settle()
        assert done == [1, 2]


def test_an_error_is_raised_when_it_is_settled() -> None:
    def refuse() -> None:
        raise CheckpointError("the disk is full")

    with Background(World()) as background:
        background.begin(refuse)
        with pytest.raises(CheckpointError, match="the disk is full"):
            background.settle()
        background.settle()


def test_an_interruption_ends_what_is_under_way_and_drops_the_rest() -> None:
    done: list[int] = []
    begun = threading.Event()

    def work() -> None:
        for number in background.while_wanted(range(1_000_000_000)):
            done.append(number)
            begun.set()

    def interrupted() -> None:
        with background:
            background.begin(work)
            background.begin(lambda: done.append(-1))
            assert begun.wait(60)
            raise KeyboardInterrupt

    background = Background(World())
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert -1 not in done


@pytest.mark.parametrize("fails", ["write", "interrupt"])
def test_states_that_cannot_be_written_leave_those_before(fails: str, tmp_path: Path) -> None:
    (tmp_path / STATES_FOLDER).mkdir()
    (tmp_path / STATES_FOLDER / "old").write_text("old")

    def read(rows: slice) -> torch.Tensor:
        if fails == "write" and rows.start >= 64:
            raise CheckpointError("the disk is full")
        return torch.zeros(rows.stop - rows.start, 3)

    def write() -> None:
        given = tmp_path, World(), range(100), 100, 32
        background = Background(World())
        with writing_states(*given, background=background) as states, background:
            states.write("hidden-0.npy", 3, torch.float32, read)
            raise KeyboardInterrupt

    with pytest.raises(CheckpointError if fails == "write" else KeyboardInterrupt):
        write()
    assert [path.name for path in tmp_path.rglob("*")] == [STATES_FOLDER, "old"]
