"""What the ranks of a world do together. Every rank must call each of these; only tensors travel, never a pickle."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.autograd.function import once_differentiable

from nfdist.errors import ConfigError, NfdistError, PartitionError, WorldError
from nfdist.world import World

Result = TypeVar("Result")
MOST_SECONDS_SILENT = 10.0  # of a rank that the others wait for


def exchange(world: World, outgoing: Sequence[Tensor], name: str = "exchange") -> list[Tensor]:
    """Send one tensor to every rank and receive one from each, in the order of ranks.

    Tensors may differ in their first dimension only. Every rank must call this.
    """
    assert len(outgoing) == world.size
    if world.size == 1:
        return list(outgoing)
    sent = torch.tensor([len(tensor) for tensor in outgoing])
    received = torch.empty_like(sent)
    with world.watch.collective(name, sent.nbytes):
        distributed.all_to_all_single(received, sent, group=world.group)
    return swap(world, outgoing, received.tolist(), name)


def swap(world: World, outgoing: Sequence[Tensor], counts: Sequence[int], name: str = "swap") -> list[Tensor]:
    """`exchange` for ranks that already know how many rows come from each. Every rank must call this."""
    if world.size == 1:
        return list(outgoing)
    lengths = [len(tensor) for tensor in outgoing]
    together = torch.cat(list(outgoing)).contiguous()
    arrived = together.new_empty(sum(counts), *together.shape[1:])
    own = outgoing[world.rank].nbytes  # what a rank sends to itself does not travel
    with world.watch.collective(name, together.nbytes - own, together.device):
        distributed.all_to_all_single(arrived, together, list(counts), lengths, group=world.group)
    return list(torch.split(arrived, list(counts)))


def least(world: World, values: Tensor, name: str = "least") -> Tensor:
    """The smallest value of every entry over the ranks. Every rank must call this."""
    return _reduced(world, values, "MIN", name)


def largest(world: World, values: Tensor, name: str = "largest") -> Tensor:
    """The largest value of every entry over the ranks. Every rank must call this."""
    return _reduced(world, values, "MAX", name)


def total(world: World, values: Tensor, name: str = "total") -> Tensor:
    """The sum of every entry over the ranks. Every rank must call this."""
    return _reduced(world, values, "SUM", name)


def differentiable_total(world: World, values: Tensor, name: str) -> Tensor:
    """`total`, differentiable: the loss of every rank depends on it. Every rank must call this, and go back through it.

    Its gradient is the sum of all ranks' gradients.
    """
    if world.size == 1:
        return values
    sums: Tensor = _Total.apply(values, world, name)
    return sums


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, world: World, name: str) -> Tensor:
        ctx.world = world
        return total(world, values, name)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return total(ctx.world, grad.contiguous(), "merge gradients"), None, None


def tally(world: World, values: Tensor, name: str = "tally") -> Tensor:
    """The values [k] of all ranks as the rows of [ranks, k]. Every rank must call this."""
    rows = values.new_empty(world.size, *values.shape)
    if world.size == 1:
        return rows.copy_(values)
    with world.watch.collective(name, values.nbytes, values.device):
        distributed.all_gather(list(rows.unbind()), values, group=world.group)
    return rows


def gather(world: World, values: Tensor, name: str = "gather") -> list[Tensor]:
    """The tensors of all ranks, in their order; they may differ in their first dimension. Every rank must call this."""
    return exchange(world, [values] * world.size, name)


def gather_text(world: World, text: str, name: str = "gather") -> list[str]:
    """The texts of all ranks, in their order. Every rank must call this."""
    return [part.numpy().tobytes().decode() for part in gather(world, _as_tensor(text), name)]


def broadcast(world: World, values: Tensor, source: int, name: str = "broadcast") -> Tensor:
    """The tensor of one rank, in place, on all of them; shapes and types must agree. Every rank must call this."""
    if world.size > 1:
        with world.watch.collective(name, values.nbytes if world.rank == source else 0, values.device):
            distributed.broadcast(values, source, group=world.group)
    return values


def bounced(world: World, first: int, second: int, values: Tensor, answer: Callable[[], float] | None = None) -> Tensor:
    """What comes back to rank `first` when it sends its values to rank `second`; the others do nothing meanwhile.

    The second may put its `answer` in the place of all values. Shapes must agree. Every rank must call this.
    """
    if world.rank not in (first, second):
        return values
    values = values.clone()
    other = second if world.rank == first else first
    with world.watch.collective("bounce", values.nbytes):
        if world.rank == first:
            distributed.send(values, other, group=world.group)
        distributed.recv(values, other, group=world.group)
        if world.rank == second:
            distributed.send(values if answer is None else values.fill_(answer()), other, group=world.group)
    return values


def broadcast_text(world: World, text: str, source: int, name: str = "broadcast") -> str:
    """The text of one rank on all of them. Every rank must call this."""
    mine = _as_tensor(text)
    length = broadcast(world, torch.tensor([len(mine)]), source, name)
    content = mine if world.rank == source else torch.empty(int(length), dtype=torch.uint8)
    return broadcast(world, content, source, name).numpy().tobytes().decode()


def broadcast_state(
    world: World, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], source: int, name: str = "broadcast"
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Plain facts and named tensors of one rank on all of them. Every rank must call this, the others with nothing."""
    kinds = {key: (list(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for key, tensor in tensors.items()}
    facts, kinds = json.loads(broadcast_text(world, json.dumps([facts, kinds]), source, name))
    received = {}
    for key, (shape, dtype) in kinds.items():
        content = tensors[key] if world.rank == source else torch.empty(shape, dtype=getattr(torch, dtype))
        received[key] = broadcast(world, content, source, name)
    return dict(facts), received


def fail_together(world: World, error: NfdistError | None, kind: type[NfdistError] = WorldError) -> None:
    """Raise on every rank what any rank ran into: a check that fails on one must not leave the others waiting.

    Every rank must call this, those without an error too.
    """
    texts = gather_text(world, "" if error is None else str(error), "check")
    failed = [rank for rank, text in enumerate(texts) if text]
    if failed:
        error = error or kind(f"rank {failed[0]} cannot go on: {texts[failed[0]]}")
        error.everywhere = True
        raise error


def together(world: World, work: Callable[[], Result], kind: type[NfdistError] = WorldError) -> Result:
    """The result of something that may fail here, and then fails on every rank. Every rank must call this."""
    results, mistake = [], None
    try:
        results.append(work())
    except NfdistError as error:
        mistake = error
    fail_together(world, mistake, kind)
    return results[0]


def alike(world: World, work: Callable[[], Result]) -> Result:
    """`together` for a share of what one process would do in the order of ranks: all raise the first rank's mistake.

    It is in what all of them were given, so no rank is named. Every rank must call this.
    """
    if world.size == 1:
        return work()
    results, mistake = [], None
    try:
        results.append(work())
    except WorldError:
        raise  # the others cannot be told
    except NfdistError as error:
        mistake = error
    texts = gather_text(world, "" if mistake is None else f"{type(mistake).__name__}:{mistake}", "check")
    for text in filter(None, texts):
        kind, _, told = text.partition(":")
        found = ConfigError(told) if kind == ConfigError.__name__ else PartitionError(told)
        found.everywhere = True
        raise found from mistake
    return results[0]


def patiently(
    world: World, work: Callable[[], Result], kind: type[NfdistError] = WorldError, pause: float = MOST_SECONDS_SILENT
) -> Result:
    """`together` for work that may take one rank longer than the others wait for it: meanwhile all tell that they are.

    What is worked on must not talk to other ranks. Every rank must call this.
    """
    if world.size == 1:
        return together(world, work, kind)
    done, failures = threading.Event(), list[BaseException]()
    pause = min(pause, world.watch.timeout_seconds / 4)

    def tell() -> None:
        try:
            busy = 1
            while busy:
                done.wait(pause)
                busy = int(total(world, torch.tensor(int(not done.is_set())), "wait"))
        except BaseException as error:
            failures.append(error)

    # The work stays in the main thread, which hears of signals. When it is interrupted nobody waits for the other.
    teller = threading.Thread(target=tell, name="nfdist waiting", daemon=True)
    results, mistake = [], None
    teller.start()
    try:
        results.append(work())
    except NfdistError as error:
        mistake = error
    done.set()
    teller.join()
    if failures:
        raise failures[0]
    fail_together(world, mistake, kind)
    return results[0]


@contextmanager
def raised_on_all_ranks() -> Iterator[None]:
    """A block whose mistakes every rank makes alike, since nothing in it differs between them."""
    try:
        yield
    except NfdistError as error:
        error.everywhere = not isinstance(error, WorldError)
        raise


def agree(world: World, facts: Mapping[str, str]) -> None:
    """Raise on every rank when a fact is not the same on all of them, and say which differs. Every rank must call."""
    everyone = [json.loads(text) for text in gather_text(world, json.dumps(dict(facts)), "compare")]
    for rank, theirs in enumerate(everyone):
        for fact, value in everyone[0].items():
            if theirs.get(fact) != value:
                error = WorldError(
                    f"rank {rank} has {fact} {theirs.get(fact)}, rank 0 has {value}: give every rank the same"
                )
                error.everywhere = True
                raise error


def _reduced(world: World, values: Tensor, operation: str, name: str) -> Tensor:
    result = values.clone()
    if world.size > 1:
        with world.watch.collective(name, result.nbytes, result.device):
            distributed.all_reduce(result, getattr(distributed.ReduceOp, operation), group=world.group)
    return result


def _as_tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)
