"""Batches made ahead of time by threads: by one where ranks make them together, by several for a GPU.

A GPU takes far less time for a step than a core takes to read its batch, so several are in the making at once.
Positions are taken one after another and batches are handed over in that order, whichever thread is done first.
"""

import os
import threading
from collections.abc import Iterator

import torch

from nfdist.devices import Copies, is_gpu
from nfdist.training.batches import Assembler, Batch, Buffer, Fetched, Preparation, Sent
from nfdist.training.sampling import Position, Sampler

MOST_WORKERS = 8  # beyond that they would wait for the interpreter, and the step with them


class Prefetched(Fetched):
    """Batches that are made while others are in use, by so many workers.

    One worker makes a batch ahead; when it is closed early, every rank has made the same number of batches: as many as
    were used, and one more. Several make as many ahead as they are, and one more; when closed, they begin no other.
    """

    def __init__(
        self,
        assembler: Assembler,
        sampler: Sampler,
        position: Position,
        epochs: int,
        device: torch.device,
        prepared: Preparation = lambda batch: batch,
        workers: int = 1,
    ) -> None:
        super().__init__(assembler, sampler, position, epochs, device, prepared)
        assert workers == 1 or not assembler.joins_ranks
        self._ahead = 1 if workers == 1 else workers + 1
        # In turns: a buffer's last batch was used, and the next ones are in other buffers, before it is filled again.
        self._buffers = [Buffer(device) for _ in range(self._ahead + 1)]
        self._taking = threading.Lock()
        self._changed = threading.Condition()
        self._begun, self._used, self._closed = 0, 0, False
        self._made: dict[int, Sent | BaseException | None] = {}  # by number from here on; None is the end
        self._threads = [
            threading.Thread(target=self._run, name=f"nfdist batches {number}", args=(Copies(device),), daemon=True)
            for number in range(workers)
        ]
        self._settled = threading.Barrier(workers + 1)
        threads_of_torch = torch.get_num_threads()
        for thread in self._threads:
            thread.start()
        self._settled.wait()
        torch.set_num_threads(threads_of_torch)  # for threads that begin later

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            yield batch
            with self._changed:
                self._used += 1
                self._changed.notify_all()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if kind is None:  # after a failure a thread may be waiting for a rank that is lost
            for thread in self._threads:
                thread.join()

    def _next(self) -> Sent | None:
        with self._changed:
            self._changed.wait_for(lambda: self._used in self._made)
            made = self._made.pop(self._used)
        if isinstance(made, BaseException):
            raise made
        return made

    def _run(self, copies: Copies) -> None:
        torch.get_num_threads()  # at its first use in a thread torch sets what was set last, in whichever thread
        torch.set_num_threads(1)
        self._settled.wait()
        # Quiet beside a step that wants all cores: it takes the moments in which they wait for each other.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        number = 0
        try:
            while True:
                with self._taking:
                    if not self._wanted():
                        return
                    number, self._begun = self._begun, self._begun + 1
                    taken = self._take()
                if taken is None:
                    self._hand_over(number, None)
                    return
                copies.enter_thread()
                self._hand_over(number, self._make(taken, self._buffers[number % len(self._buffers)], copies))
        except BaseException as error:
            self._hand_over(number, error)

    def _wanted(self) -> bool:
        """Wait until another batch may be made ahead, or until nobody wants one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._begun <= self._used + self._ahead)
            return self._begun <= self._used + self._ahead and (not self._closed or len(self._threads) == 1)

    def _hand_over(self, number: int, made: Sent | BaseException | None) -> None:
        with self._changed:
            self._made[number] = made
            self._closed = self._closed or isinstance(made, BaseException)  # nobody wants what would come after it
            self._changed.notify_all()


def fetch(
    assembler: Assembler,
    sampler: Sampler,
    position: Position,
    epochs: int,
    device: torch.device,
    prepared: Preparation = lambda batch: batch,
    local_ranks: int = 1,
) -> Fetched:
    """The batches from a position to the end of an epoch, in the background where that keeps something busy.

    That is a GPU, or a network that brings rows. A step on the processor leaves no core idle, and all of them making a
    batch together are sooner done than one of them beside a step, whose threads and ranks would wait for it. There are
    `local_ranks` on this host.
    """
    if not (is_gpu(device) or assembler.store.remote):
        return Fetched(assembler, sampler, position, epochs, device, prepared)
    workers = count_workers(assembler, local_ranks, len(os.sched_getaffinity(0)))
    return Prefetched(assembler, sampler, position, epochs, device, prepared, workers)


def count_workers(assembler: Assembler, local_ranks: int, cores: int) -> int:
    """How many threads of a rank make batches at once: its share of a host's cores, one of them left to its step."""
    return 1 if assembler.joins_ranks else max(1, min(MOST_WORKERS, cores // local_ranks - 1))
