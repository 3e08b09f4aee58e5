"""Joining the world that torchrun made: who is missing is named, and what an earlier start left is no sign of life."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from nfdist import rendezvous
from nfdist.errors import WorldError
from nfdist.rendezvous import Place, idle_cores_warning, join


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """A store such as torchrun keeps for its workers."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=10))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(rendezvous, "_SECONDS_TO_LISTEN", 0.5)
    return server


def try_to_join(rank: int, size: int = 3) -> None:
    with join(Place(rank=rank, size=size), torch.device("cpu"), 1.0):
        pass


def test_ranks_that_never_arrive_are_named(store: TCPStore) -> None:
    with pytest.raises(WorldError, match=r"start, join: ranks 1, 2 never arrived \(waited 1 s\)"):
        try_to_join(0)
    with pytest.raises(
        WorldError, match=rf"rank 0 never arrived at torchrun's store at 127\.0\.0\.1:{store.port}: see"
    ):
        try_to_join(1)


@pytest.mark.parametrize(
    ("signs", "reason", "told"),
    [
        (["1|a|start, join"], "", "rank 1 on a is lost, its last sign of life was at: start, join"),
        (["1|a|start", "2|a|step 3"], "no more", "rank 1 on a stopped: no more"),
        ([f"{n}|a|step {n}" for n in range(500)], "", "every rank is alive but some are late; rank 1 is at: step "),
    ],
    ids=["silent", "left", "late"],
)
def test_a_rank_that_breaks_off_is_told_by_its_signs(signs: list[str], reason: str, told: str, store: TCPStore) -> None:
    with pretended_rank_1(store.port, signs, reason), pytest.raises(WorldError, match=told):
        try_to_join(0, size=2)


@contextmanager
def pretended_rank_1(port: int, signs: list[str], reason: str) -> Iterator[None]:
    """A rank that arrives, gives signs of life every 50 ms, and never opens a connection to the others."""
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=10))

    def pretend() -> None:
        store.set("nfdist/knock/1", "me")
        start = store.get("nfdist/answer/me").decode()
        for sign in signs:
            store.set(f"{start}/nfdist/sign/1", sign)
            if stopped.wait(0.05):
                return
        if reason:
            store.set(f"{start}/nfdist/left/1", reason)

    stopped, rank = Event(), Thread(target=pretend)
    rank.start()
    try:
        yield
    finally:
        stopped.set()
        rank.join(10)


def test_what_an_earlier_start_left_is_not_taken_for_this_one(store: TCPStore) -> None:
    for rank in (1, 2):
        store.set(f"nfdist/knock/{rank}", "old")
        store.set(f"old start/nfdist/sign/{rank}", "7|host|seed 0, step 1")
    store.set("nfdist/answer/old", "old start")
    for rank, missing in enumerate(("ranks 1, 2", "rank 0")):
        with pytest.raises(WorldError, match=f"{missing} never arrived"):
            try_to_join(rank)


def test_a_host_with_another_kind_of_device_is_named(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    devices = [torch.device("cuda", 0), torch.device("cpu")]

    def refusal(rank: int) -> str:
        with pytest.raises(WorldError) as caught, join(Place(rank=rank, size=2), devices[rank], 10.0):
            pass
        assert caught.value.everywhere
        return str(caught.value)

    with ThreadPoolExecutor(2) as ranks:
        texts = list(ranks.map(refusal, range(2)))
    assert texts[0] == texts[1]
    assert texts[0].startswith("rank 1 on here has the device cpu, rank 0 on here has cuda: give all ranks a GPU")


def test_ranks_without_a_choice_of_device_meet_all_the_same(store: TCPStore) -> None:
    """To tell each other of it; those with a GPU then meet as those without."""
    kinds = [torch.device("cuda"), None]

    def common(rank: int) -> str:
        client = TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=10))
        return rendezvous._common_device(client, Place(rank=rank, size=2), kinds[rank])

    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(common, range(2))) == ["", ""]


def test_idle_cores_are_told_of_when_torchrun_chose_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    two, chosen = Place(local_size=2), {"OMP_NUM_THREADS": "1"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    warning = idle_cores_warning(two, chosen)
    assert warning is not None
    assert "2 workers leave 6 of 8 cores idle: set OMP_NUM_THREADS=4" in warning
    assert idle_cores_warning(two, {"OMP_NUM_THREADS": "4"}) is None
    assert idle_cores_warning(two, {}) is None
    assert idle_cores_warning(Place(local_size=1), chosen) is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    assert idle_cores_warning(two, chosen) is None
