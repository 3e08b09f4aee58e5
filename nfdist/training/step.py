"""One training step: for every batch forward, loss over all ranks and backward, and then the optimizer's move."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from nfdist.collectives import gather_text, total
from nfdist.config import TrainConfig
from nfdist.devices import is_gpu, mixed_precision, reached
from nfdist.errors import DivergedError
from nfdist.model.protocol import Draw, Model
from nfdist.model.task import Task
from nfdist.training.batches import Batch
from nfdist.world import World


@dataclass(frozen=True)
class Counts:
    """How much all ranks together have in a batch: what losses are divided by."""

    labels: float
    edges: int
    nodes: int


@dataclass(frozen=True)
class StepLoss:
    """The losses of a step, over all ranks and its batches, and the length of the gradient before clipping."""

    total: float
    supervised: float
    edge: float
    gradient_norm: float


def replicate(model: Model, world: World) -> nn.Module:
    """The model as this rank trains it: gradients are summed over the ranks, in the same order every time."""
    assert isinstance(model, nn.Module)
    if world.size == 1:
        return model
    # Buffers are constants, which need not be sent in every step; the argument that says so differs between versions.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        model, [name for name, _ in model.named_buffers()]
    )
    # Unless it looks for unused parameters DDP reorders its buckets after the first step, and with them its sums:
    # then the steps after a resume would differ in their last bits.
    replica = DistributedDataParallel(
        model, process_group=world.group, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    replica.register_comm_hook(world, _add_up)
    return replica


def _add_up(world: World, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sums, not means: losses are already divided by the counts of all ranks."""
    gradients = bucket.buffer()
    stop = world.watch.stopwatch(gradients.device)
    sent_bytes = gradients.nbytes + 4 * len(bucket.gradients())  # DDP also tells which parameters were used

    def finish(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        done.value()  # raises where it failed
        world.watch.count(sent_bytes, stop())
        return gradients

    work = distributed.all_reduce(gradients, group=world.group, async_op=True)
    return work.get_future().then(finish)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Stepper:
    """Makes steps of one model; `replica` is the model, or its replica in a world of several ranks.

    Batches are added one after another, and then the weights move by the mean of their gradients.
    """

    model: Model
    replica: nn.Module
    optimizer: torch.optim.Optimizer
    task: Task
    config: TrainConfig
    world: World
    seed: int
    _shares: list[Tensor] = field(default_factory=list)  # [2] a batch: this rank's shares of both losses
    _batches: list[Batch] = field(default_factory=list)  # on the CPU

    def add(self, batch: Batch, number: int, counts: Counts, *, last: bool) -> None:
        """Add the gradient of a batch, whose noise follows its number; with a step's last one ranks add up theirs."""
        self.replica.train()
        if not self._shares:
            self.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if last else self._unsynchronized():
            with self.world.watch.doing("forward"):
                supervised, edge = self._losses(batch, number, counts)
            gradients = self.world.watch.explained("gradients") if self.world.size > 1 else nullcontext()
            with self.world.watch.doing("backward"), gradients:
                (supervised + edge).backward()
        self._shares.append(torch.stack([supervised.detach(), edge.detach()]).double())
        self._batches.append(batch.on_host)

    def move(self, number: int, rate: float) -> StepLoss:
        """Move the weights by the batches added, or raise on every rank when a loss or the gradient is no number."""
        losses = total(self.world, torch.stack(self._shares).mean(0), "losses")
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        if len(self._shares) > 1:
            torch._foreach_div_(gradients, len(self._shares))
        length = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or torch.inf)
        # Read together, since the host waits for a device to get here. With NCCL no collective fails by itself.
        self.world.watch.wait_until(reached(length.device), "waiting for the device")
        supervised_loss, edge_loss, norm = torch.cat([losses, length.double()[None]]).tolist()
        loss = StepLoss(supervised_loss + edge_loss, supervised_loss, self._edge_loss(edge_loss), norm)
        if not (math.isfinite(loss.total) and math.isfinite(norm)):
            self._refuse(number, loss)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self.world.watch.doing("optimizer"):
            self.optimizer.step()
        self._shares.clear()
        self._batches.clear()
        return loss

    def _unsynchronized(self) -> AbstractContextManager[None]:
        """Gradients stay this rank's own: were they sums already, the next sum would count them once a rank."""
        return self.replica.no_sync() if isinstance(self.replica, DistributedDataParallel) else nullcontext()

    def _losses(self, batch: Batch, number: int, counts: Counts) -> tuple[Tensor, Tensor]:
        """This rank's shares of the supervised loss and of the weighted edge loss."""
        by = counts.edges if self.config.edge_loss_mean == "edges" else counts.nodes
        scale = self.model.auxiliary_scale(self.config.edge_loss, by)
        with mixed_precision(batch.features.device, enabled=self.config.precision == "bf16"):
            output = self.replica(
                batch.features,
                batch.relations,
                Draw(self.seed, number, batch.node_ids, batch.given, batch.directions),
                auxiliary_scale=scale,
                world=self.world,
                halo=batch.halo,
            )
        rounds = [logits.index_select(0, batch.labeled) for logits in (output.logits, *output.earlier)]
        # An empty sum still depends on the logits, so that every rank has a gradient for every parameter.
        losses = torch.stack([self._loss(logits, batch) for logits in rounds])
        supervised = losses.mean() / (counts.labels or 1)
        edge = output.auxiliary_loss
        return supervised, supervised.new_zeros(()) if edge is None else edge

    def _loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The sum of the losses of labeled rows; for a device their labels were checked before they were sent."""
        if is_gpu(logits.device):
            return self.task.total(logits, batch.labels, batch.known)
        return self.task.loss(logits, batch.labels).total

    def _edge_loss(self, weighted: float) -> float:
        return weighted / self.config.edge_loss if self.config.edge_loss else 0.0

    def _refuse(self, number: int, loss: StepLoss) -> None:
        checksums = gather_text(self.world, ",".join(batch.checksum() for batch in self._batches), "compare")
        what = f"the loss is {loss.total:g}" if loss.total != loss.total else f"the gradient is {loss.gradient_norm:g}"
        error = DivergedError(
            f"{what} at step {number + 1} (batch {'+'.join(checksums)}): lower train.learning_rate or set "
            "train.clip_norm, and continue from the last checkpoint, which is good"
        )
        error.everywhere = True
        raise error
