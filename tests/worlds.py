"""Real worlds for tests: gloo processes that meet through a temporary file, with a time limit on everything."""

import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed

from nfdist.world import World

SECONDS = 120
# What takes a rank seconds to import, and the process that ranks are forked from does once. It is started with the
# environment of the first world: what a test sets later, ranks do not see.
IMPORTED = ["torch", "torch.distributed", "nfdist.evaluation.evaluator", "nfdist.training.job", "tests.worlds"]


def run_world(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The result of work(world, *arguments) on every rank, numbers and text only; any failure fails the test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(size)]
        processes = [
            context.Process(target=_member, args=(rank, size, f"{folder}/meeting", pipes[rank][1], work, arguments))
            for rank in range(size)
        ]
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()  # so that a rank that dies without an answer is noticed at once
        try:
            answers = [_answer(receiver, rank) for rank, (receiver, _) in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
    failures = [f"rank {rank}:\n{text}" for rank, (fine, text) in enumerate(answers) if not fine]
    assert not failures, "\n".join(failures)
    return [result for _, result in answers]


def _answer(receiver: Connection, rank: int) -> tuple[bool, Any]:
    if receiver.poll(SECONDS):
        try:
            return receiver.recv()  # type: ignore[no-any-return]
        except EOFError:
            return False, "ended without an answer"
    return False, f"no answer within {SECONDS} s"


def _member(rank: int, size: int, meeting: str, sender: Connection, work: Callable[..., Any], arguments: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # as in the tests' own process: a deprecation is a failure
    try:
        if size > 1:
            method = Path(meeting).as_uri()
            backend = "cpu:gloo,cuda:nccl" if os.environ.get("NFDIST_TEST_DEVICE") == "cuda" else "gloo"
            distributed.init_process_group(
                backend, init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=60)
            )
        sender.send((True, work(World(rank, size), *arguments)))
    except BaseException:
        sender.send((False, traceback.format_exc()))
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
