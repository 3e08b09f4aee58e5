"""Joining the world that torchrun made, and telling who is missing when it falls apart.

torchrun starts its workers again with the store of their last start, in which the addresses of dead processes still
stand. So rank 0 draws a name for every start, and all keys of the world begin with it.

Every rank writes a sign of life (a counter and what it is doing) into torchrun's store twice a second. A collective
that fails or times out reads all of them twice: a rank whose counter stands still is lost, one that is alive but in
another phase is what the others wait for.
"""

import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nfdist.devices import gpu_stopwatch
from nfdist.errors import ConfigError, WorldError
from nfdist.files import process_start
from nfdist.world import Watch, World

_SECONDS_BETWEEN_SIGNS = 0.5
_SECONDS_TO_LISTEN = 2.5  # a rank that is alive has given several signs by then
_SECONDS_TO_ANSWER = 5.0  # a store that can be reached does so in milliseconds
_SECONDS_BETWEEN_KNOCKS = 0.05
_HOURS_OF_PATIENCE = 24

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Place:
    """Where a launcher put this process; without one it is a world of its own.

    `launch` tells one torchrun from another and stays the same when it restarts its workers.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    restarts: int = 0
    launch: str = ""

    @staticmethod
    def read(environment: Mapping[str, str]) -> "Place":
        """From the variables that torchrun sets."""
        if "RANK" not in environment:
            return Place()
        names = {"rank": "RANK", "size": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
        try:
            numbers = {key: int(environment[name]) for key, name in names.items()}
            restarts = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
        except (KeyError, ValueError) as error:
            raise WorldError(f"the launcher's environment is not torchrun's: {error}; start with torchrun") from None
        return Place(**numbers, restarts=restarts, launch=_process_name(os.getppid()))


@contextmanager
def join(place: Place, device: torch.device | None, timeout_seconds: float) -> Iterator[World]:
    """The world of this process: NCCL for tensors on GPUs, gloo for those on the CPU, a time limit on everything.

    Ranks with other kinds of devices are refused, before they would wait for each other in vain. A rank whose device
    could not be chosen, and who is about to tell the others why, has None.
    """
    if place.size == 1:
        yield World()
        return
    timeout = timedelta(seconds=timeout_seconds)
    common = _open_store(place, timeout)
    start = _name_start(common, place)
    store = PrefixStore(start, common)
    watch = Watch()
    signs = _Signs(PrefixStore(start, common.clone()), PrefixStore(start, common.clone()), place, watch)
    watch.explain, watch.timeout_seconds = signs.explain, timeout_seconds
    try:
        with watch.collective("join"):
            if place.rank == 0:
                _admit_others(common, start, place, timeout_seconds)
            kind = _common_device(store, place, device)
            if kind == "cuda":
                _let_nccl_wait(timeout_seconds)
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo",
                store=store,
                rank=place.rank,
                world_size=place.size,
                timeout=timeout,
            )
        if kind == "cuda":
            host_stopwatch = watch.stopwatch
            watch.stopwatch = lambda on: gpu_stopwatch(on) if on.type == "cuda" else host_stopwatch(on)
        yield World(place.rank, place.size, None, watch)
        distributed.destroy_process_group()
    except BaseException as error:
        signs.leave(str(error) or type(error).__name__)
        if getattr(error, "everywhere", False) and place.rank != 0:
            signs.let_first_rank_speak()
        raise  # without the others the groups cannot be taken down in order: they end with the process
    finally:
        signs.stop()


def patient(world: World) -> World:
    """The same ranks in a group where one may work for hours while others wait; a process that ends is noticed at once.

    Every rank must call this.
    """
    if world.size == 1:
        return world
    group = distributed.new_group(timeout=timedelta(hours=_HOURS_OF_PATIENCE), backend="gloo")
    return replace(world, group=group)


def choose_device(wanted: str, place: Place, option: str = "run.device=") -> torch.device:
    """The device of this process: the GPU of its local rank where there are GPUs and the CPU is not asked for.

    `option` is what a user gives it by.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(f"{option}cuda needs a GPU, and this host has none: give {option}cpu, or ask nfdist doctor")
    if place.local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"local rank {place.local_rank} has no GPU, this host has {torch.cuda.device_count()}: "
            f"start as many workers as there are GPUs, or give {option}cpu"
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def _common_device(store: Any, place: Place, device: torch.device | None) -> str:
    """The kind of device that all ranks have, or "" where one could choose none. Every rank must call this."""
    kind = "" if device is None else device.type
    store.set(f"nfdist/device/{place.rank}", f"{kind}|{socket.gethostname()}")
    texts: list[str] = [store.get(f"nfdist/device/{rank}").decode() for rank in range(place.size)]
    everyone = [text.split("|") for text in texts]
    if any(kind == "" for kind, _ in everyone):
        return ""
    first, first_host = everyone[0]
    for rank, (kind, host) in enumerate(everyone):
        if kind != first:
            error = WorldError(
                f"rank {rank} on {host} has the device {kind}, rank 0 on {first_host} has {first}: give all ranks a "
                "GPU, or choose the CPU for all (run.device=cpu, --device cpu)"
            )
            error.everywhere = True
            raise error
    return first


def _let_nccl_wait(timeout_seconds: float) -> None:
    """Keep NCCL's watchdog from ending the process before its step has explained what it waits for (`Watch`).

    What the user has set stays.
    """
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # or a rank that is gone would end the others
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    os.environ.setdefault("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", str(round(2 * timeout_seconds + 480)))


def idle_cores_warning(place: Place, environment: Mapping[str, str]) -> str | None:
    """What to tell a user whose workers use fewer threads than the host has cores, as torchrun arranges unasked."""
    cores = len(os.sched_getaffinity(0))
    threads = cores // place.local_size
    if place.local_size == 1 or environment.get("OMP_NUM_THREADS") != "1" or threads < 2:
        return None
    return (
        f"torchrun set OMP_NUM_THREADS=1, so {place.local_size} workers leave {cores - place.local_size} of {cores} "
        f"cores idle: set OMP_NUM_THREADS={threads}"
    )


class _Signs:
    """Signs of life in the store, given by a thread of this rank and read when something has failed.

    `giving` and `reading` are connections to the store: one that hangs must not keep the other from speaking.
    """

    def __init__(self, giving: Any, reading: Any, place: Place, watch: Watch) -> None:
        self._giving, self._reading, self._place, self._watch = giving, reading, place, watch
        self._reachable = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._give, name="nfdist signs of life", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_SECONDS_TO_LISTEN if self._reachable else 0.0)

    def leave(self, reason: str) -> None:
        """Let the others know why this rank is about to go."""
        with suppress(RuntimeError):
            self._ask(lambda: self._reading.set(f"nfdist/left/{self._place.rank}", reason))

    def let_first_rank_speak(self) -> None:
        """Give rank 0 the time to tell of what all ranks ran into: torchrun ends it as soon as another has ended."""
        with suppress(RuntimeError):
            self._ask(lambda: self._reading.wait(["nfdist/left/0"], timedelta(seconds=_SECONDS_TO_LISTEN)))
        time.sleep(_SECONDS_BETWEEN_SIGNS)

    def explain(self) -> str:
        """Who is missing, as far as this rank can tell."""
        try:
            before = self._ask(self._read)
            time.sleep(_SECONDS_TO_LISTEN)
            after, left = self._ask(self._read), self._ask(self._left)
        except RuntimeError:
            return f"torchrun's store at {_address()} cannot be reached: rank 0, its host or the link to it is down"
        mine = self._place.rank
        never = [rank for rank in after if after[rank] is None]
        gone = [rank for rank in after if rank != mine and (rank in left or after[rank] == before[rank])]
        if never:
            return f"{_ranks(never)} never arrived"
        if gone:  # those that others left for come first
            gone.sort(key=lambda rank: rank in left)
            return "; ".join(_lost(rank, str(after[rank]), left.get(rank, "")) for rank in gone)
        behind = {rank: str(sign).split("|", 2)[2] for rank, sign in after.items() if rank != mine}
        doing = ", ".join(f"rank {rank} is at: {phase}" for rank, phase in behind.items())
        return f"every rank is alive but some are late; {doing}"

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """What the store says. Over a link that is cut it would be waited for as long as the kernel sees fit."""
        answers: queue.SimpleQueue[Answer | RuntimeError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(question())
            except RuntimeError as error:
                answers.put(error)

        if not self._reachable:
            raise RuntimeError("the store does not answer")
        threading.Thread(target=ask, name="nfdist question", daemon=True).start()
        try:
            answer = answers.get(timeout=_SECONDS_TO_ANSWER)
        except queue.Empty:
            self._reachable = False
            raise RuntimeError("the store does not answer") from None
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    def _give(self) -> None:
        host = socket.gethostname()
        count = 0
        while True:
            count += 1
            with suppress(RuntimeError):  # a store that is gone is reported by the collective that needs it
                self._giving.set(f"nfdist/sign/{self._place.rank}", f"{count}|{host}|{self._watch.phase}")
            if self._stopped.wait(_SECONDS_BETWEEN_SIGNS):
                return

    def _read(self) -> dict[int, str | None]:
        return {rank: self._get(f"nfdist/sign/{rank}") for rank in range(self._place.size)}

    def _left(self) -> dict[int, str]:
        reasons = {rank: self._get(f"nfdist/left/{rank}") for rank in range(self._place.size)}
        return {rank: reason for rank, reason in reasons.items() if reason is not None}

    def _get(self, key: str) -> str | None:
        return self._reading.get(key).decode() if self._reading.check([key]) else None


def _open_store(place: Place, timeout: timedelta) -> Any:
    try:
        store, _, _ = next(rendezvous("env://", place.rank, place.size, timeout=timeout))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise WorldError(f"torchrun's store at {_address()} cannot be reached: {reason}") from error
    return store


def _name_start(store: Any, place: Place) -> str:
    """A name for this start of the workers, drawn by rank 0; another rank waits until it is told."""
    name = secrets.token_hex(8)
    if place.rank == 0:
        return name
    try:
        # Asked under a name that nobody had before, so that the answer is no old one.
        store.set(f"nfdist/knock/{place.rank}", name)
        answer: bytes = store.get(f"nfdist/answer/{name}")
    except RuntimeError as error:
        raise WorldError(f"rank 0 never arrived at torchrun's store at {_address()}: see what its host says") from error
    return answer.decode()


def _admit_others(store: Any, start: str, place: Place, timeout_seconds: float) -> None:
    """Rank 0 tells the others the name of this start, until each of them has given a sign of life under it."""
    ends = time.monotonic() + timeout_seconds
    while absent := [rank for rank in range(1, place.size) if not store.check([f"{start}/nfdist/sign/{rank}"])]:
        if time.monotonic() > ends:
            raise RuntimeError(f"waited {timeout_seconds:g} s")
        for knock in (f"nfdist/knock/{rank}" for rank in absent):
            if store.check([knock]):
                store.set(f"nfdist/answer/{store.get(knock).decode()}", start)
        time.sleep(_SECONDS_BETWEEN_KNOCKS)


def _address() -> str:
    return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"


def _lost(rank: int, sign: str, reason: str) -> str:
    _, host, phase = sign.split("|", 2)
    if reason:
        return f"rank {rank} on {host} stopped: {reason}"
    return f"rank {rank} on {host} is lost, its last sign of life was at: {phase}"


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _process_name(process: int) -> str:
    """A name no other process has, today or later, on any host."""
    return f"{socket.gethostname()}-{process}-{process_start(process) or 'unknown'}"
