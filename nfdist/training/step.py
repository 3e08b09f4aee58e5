"""One training step: forward, loss over all ranks, backward, and the optimizer's move."""

import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from nfdist.collectives import gather_text, total
from nfdist.config import TrainConfig
from nfdist.devices import mixed_precision
from nfdist.errors import NfdistError
from nfdist.model.protocol import Draw, Model
from nfdist.model.task import Task
from nfdist.training.batches import Batch
from nfdist.world import World


@dataclass(frozen=True)
class Counts:
    """How much all ranks together have in a step: what losses are divided by."""

    labels: float
    edges: int
    nodes: int


@dataclass(frozen=True)
class StepLoss:
    """The losses of a step, over all ranks, and the length of the gradient before clipping."""

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
    gradients, started = bucket.buffer(), time.perf_counter()
    sent_bytes = gradients.nbytes + 4 * len(bucket.gradients())  # DDP also tells which parameters were used

    def finish(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        world.watch.count(sent_bytes, time.perf_counter() - started)
        return done.value()[0]

    work = distributed.all_reduce(gradients, group=world.group, async_op=True)
    return work.get_future().then(finish)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Stepper:
    """Makes steps of one model; `replica` is the model, or its replica in a world of several ranks."""

    model: Model
    replica: nn.Module
    optimizer: torch.optim.Optimizer
    task: Task
    config: TrainConfig
    world: World
    seed: int

    def step(self, batch: Batch, number: int, counts: Counts, rate: float) -> StepLoss:
        """Move the weights by one batch, or raise on every rank when the loss or the gradient is no number."""
        self.replica.train()
        supervised, edge = self._losses(batch, number, counts)
        self.optimizer.zero_grad(set_to_none=True)
        with self.world.watch.explained("gradients") if self.world.size > 1 else nullcontext():
            (supervised + edge).backward()
        shares = torch.stack([supervised.detach(), edge.detach()]).double().cpu()
        supervised_loss, edge_loss = total(self.world, shares, "losses").tolist()
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or torch.inf))
        loss = StepLoss(supervised_loss + edge_loss, supervised_loss, self._edge_loss(edge_loss), norm)
        if not (torch.isfinite(torch.tensor([loss.total, norm])).all()):
            self._refuse(batch, number, loss)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return loss

    def _losses(self, batch: Batch, number: int, counts: Counts) -> tuple[Tensor, Tensor]:
        """This rank's shares of the supervised loss and of the weighted edge loss."""
        by = counts.edges if self.config.edge_loss_mean == "edges" else counts.nodes
        scale = self.model.auxiliary_scale(self.config.edge_loss, by) if batch.relations else 0.0
        with mixed_precision(batch.features.device, enabled=self.config.precision == "bf16"):
            output = self.replica(
                batch.features,
                batch.relations,
                Draw(self.seed, number, batch.node_ids.to(batch.features.device), batch.given),
                auxiliary_scale=scale,
                world=self.world,
                halo=batch.halo,
            )
        rounds = [logits.index_select(0, batch.labeled) for logits in (output.logits, *output.earlier)]
        # An empty sum still depends on the logits, so that every rank has a gradient for every parameter.
        losses = torch.stack([self.task.loss(logits, batch.labels).total for logits in rounds])
        supervised = losses.mean() / (counts.labels or 1)
        edge = output.auxiliary_loss
        return supervised, supervised.new_zeros(()) if edge is None else edge

    def _edge_loss(self, weighted: float) -> float:
        return weighted / self.config.edge_loss if self.config.edge_loss else 0.0

    def _refuse(self, batch: Batch, number: int, loss: StepLoss) -> None:
        checksums = gather_text(self.world, batch.checksum(), "compare")
        what = f"the loss is {loss.total:g}" if loss.total != loss.total else f"the gradient is {loss.gradient_norm:g}"
        error = NfdistError(
            f"{what} at step {number + 1} (batch {'+'.join(checksums)}): lower train.learning_rate or set "
            "train.clip_norm, and continue from the last checkpoint, which is good"
        )
        error.everywhere = True
        raise error
