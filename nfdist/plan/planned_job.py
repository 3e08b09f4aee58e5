"""A job to plan, and what its processes hold: the memory of its stages, put together from their formulas."""

import os
from dataclasses import dataclass, replace

import torch

from nfdist.config import Config
from nfdist.errors import ConfigError
from nfdist.evaluation.sweep_memory import SweepMemory, sweep_memory
from nfdist.graph.counts import GraphCounts, read_counts
from nfdist.model.build import count_weights, model_class, weights_dtype
from nfdist.plan.rates import HostRates, KnownRates, known_rates
from nfdist.training.batch_counts import count_batch
from nfdist.training.step_memory import StepMemory, step_memory

# Private memory of processes that have nothing of a graph yet, and what is made when libraries are first used: of runs
# on a graph of 490 nodes with the builds of torch 2.13 and DGL 2.1 for CPUs (benchmarks/plan.py).
TRAINING_BYTES = 240 << 20
EVALUATION_BYTES = 190 << 20
WORLD_BYTES = 16 << 20  # more where there are other ranks: what gloo holds
DEVICE_CHUNK_BYTES = 400 << 20  # what chunks of rows take of a GPU (attention/ops/chunks.py)


@dataclass(frozen=True)
class PlannedJob:
    """A configuration on a graph, with so many ranks of so many threads each.

    `on_gpu` says whether models live on GPUs; a `limit_bytes` is what an evaluation is told to hold at most.
    """

    config: Config
    graph: GraphCounts
    rates: KnownRates
    ranks: int = 1
    threads: int = 1
    on_gpu: bool = False
    limit_bytes: int | None = None

    @staticmethod
    def of(
        config: Config,
        *,
        ranks: int = 1,
        local_ranks: int = 1,
        on_gpu: bool = False,
        limit_bytes: int | None = None,
    ) -> "PlannedJob":
        """The job on the partition that the configuration names, with this host's cores and rates."""
        if not config.data.partition:
            raise ConfigError("data.partition names no partition: make one with nfdist partition")
        graph, rates = read_counts(config.data.partition, config.relation.num_patterns), known_rates()
        threads = max(1, min(torch.get_num_threads(), len(os.sched_getaffinity(0)) // local_ranks))
        usable = on_gpu and model_class(config.model.name).runs_on_gpu
        return PlannedJob(config, graph, rates, ranks, threads, usable, limit_bytes)

    @property
    def item_bytes(self) -> int:
        return weights_dtype(self.config).itemsize

    @property
    def weight_bytes(self) -> int:
        return self.item_bytes * count_weights(self.config, self.graph.features, self.graph.outputs, self.graph.nodes)

    @property
    def speed(self) -> HostRates:
        """The rates of a rank's threads."""
        return self.rates.rates.of(self.threads)

    @property
    def step(self) -> StepMemory:
        return step_memory(self.config, self.graph, count_batch(self.config, self.graph, self.ranks), self.ranks)

    def with_batch(self, batch_nodes: int) -> "PlannedJob":
        """The same with other batches; those of the whole graph are not accumulated."""
        train = self.config.train
        changed = replace(train, batch_nodes=batch_nodes, accumulate=train.accumulate if batch_nodes else 1)
        return replace(self, config=replace(self.config, train=changed))

    def sweep(self, *, writes: bool) -> SweepMemory:
        """The evaluation of the whole graph; in a training nothing is written and nothing is limited."""
        limit = self.limit_bytes if writes else None
        given = {"ranks": self.ranks, "threads": self.threads, "limit_bytes": limit, "writes": writes}
        return sweep_memory(self.config, self.graph, process_bytes=self.process_bytes(EVALUATION_BYTES), **given)  # type: ignore[arg-type]

    def process_bytes(self, alone: int) -> int:
        return alone + (WORLD_BYTES if self.ranks > 1 else 0)

    def training_bytes(self) -> float:
        """The private memory of a rank while it trains, on the host."""
        step, held, work = self.step, 0.0, 0.0
        if self.config.train.evaluate_every:
            sweep = self.sweep(writes=False)
            held, work = sweep.held, sweep.work
        if self.on_gpu:
            return self.process_bytes(TRAINING_BYTES) + 2 * step.batch + step.fixed
        return self.process_bytes(TRAINING_BYTES) + step.fixed + held + max(step.of_batch, step.batch + work)

    def device_bytes(self) -> float:
        """The memory of the GPU of a rank while it trains; states that find no room there are kept on the host."""
        return self.step.total + DEVICE_CHUNK_BYTES

    def evaluation_bytes(self) -> float:
        """The private memory of a rank of `nfdist evaluate`."""
        return self.process_bytes(EVALUATION_BYTES) + self.sweep(writes=True).total
