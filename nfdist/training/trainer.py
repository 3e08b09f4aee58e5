"""The training of one seed: the loop, read from top to bottom."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from signal import Signals
from typing import Any

import torch
from torch import Tensor

from nfdist import log
from nfdist.collectives import tally
from nfdist.config import Config
from nfdist.errors import DivergedError
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.scores import direction, score, undefined
from nfdist.graph.graph import Graph
from nfdist.graph.split import split_of
from nfdist.model.build import build_model
from nfdist.model.loading import load_weights
from nfdist.model.nodeformer import evaluation_seed
from nfdist.model.protocol import Model
from nfdist.model.task import Task
from nfdist.observe.metrics import RunMetrics, StepFacts
from nfdist.runs.mirror import Mirror
from nfdist.runs.run import Run
from nfdist.signals import StopRequest
from nfdist.training.accumulated import Accumulated, Meeting
from nfdist.training.average import WeightAverage
from nfdist.training.batches import Assembler, Batch, Fetched, Repeated
from nfdist.training.class_weights import training_task
from nfdist.training.optimization import learning_rate, make_optimizer, optimizer_tensors, restore_optimizer
from nfdist.training.prefetching import fetch
from nfdist.training.preparation import Preparation
from nfdist.training.recomputing import recomputes
from nfdist.training.restoring import RAW_WEIGHTS, Restored
from nfdist.training.result import peak_memory_bytes, versions
from nfdist.training.row_cache import RowCache
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import Position
from nfdist.training.shortage import Shortage
from nfdist.training.state import State
from nfdist.training.statistics import set_constants
from nfdist.training.step import Counts, StepLoss, Stepper, replicate
from nfdist.world import World

EvaluationHook = Callable[[int, int, float | None], None]  # of a seed, an epoch and the best validation score so far


@dataclass(frozen=True)
class Job:
    """What the seeds of a run share; a `trial` is told of every evaluation on every rank, and may raise to end them.

    `local_ranks` are on this host, whose cores they share.
    """

    config: Config
    world: World
    device: torch.device
    dtype: torch.dtype
    graph: Graph
    evaluation_graph: EvaluationGraph | None
    task: Task
    metric: str
    metrics: RunMetrics
    stop: StopRequest
    initial_weights: dict[str, Tensor] | None
    trial: EvaluationHook | None = None
    row_cache: RowCache | None = None
    local_ranks: int = 1


class Trainer:
    """One seed of a job. Every rank makes one and calls `run`.

    In a trial, which has no checkpoints, `best_logits` [n, outputs] are those of the best evaluation.
    """

    def __init__(self, job: Job, seed: int, finished: list[dict[str, Any]], restored: Restored | None) -> None:
        self.job, self.seed, self.finished = job, seed, finished
        config, store = job.config, job.graph.store
        model = build_model(config, store.num_features, job.task.num_classes, seed, num_nodes=store.num_nodes)
        self.model = model.to(job.device, job.dtype)
        self.model.recompute = recomputes(config.train, store.num_nodes, job.world.size)
        self.split = split_of(store, config.data, seed)
        self.optimizer = make_optimizer(self.model, config.train)
        self.state = State()
        if restored is not None:
            trained = restored.tensors[RAW_WEIGHTS if config.train.ema else "weights"]
            load_weights(self.model, trained, "the checkpoint")
            restore_optimizer(self.optimizer, self.model, restored.tensors["optimizer"])
            self.state = State.restored(restored.state)
        elif job.initial_weights is not None:
            load_weights(self.model, job.initial_weights, config.train.init_from)
        if restored is None:
            fresh = job.initial_weights is None
            set_constants(self.model, store, self.split, job.world, scaled=fresh and config.model.standardize)
        self.average = WeightAverage(self.model, config.train.ema) if config.train.ema else None
        if self.average is not None and restored is not None:
            load_weights(self.average.model, restored.tensors["weights"], "the checkpoint")
        self._shortage = Shortage(job.device, job.world, config.train)
        replica = replicate(self.model, job.world)
        self.task = training_task(job.task, config.train, store, self.split)
        self.stepper = Stepper(
            self.model, replica, self.optimizer, self.task.to(job.device), config.train, job.world, seed
        )
        self.sampler = make_sampler(config, job.graph, self.split, job.world.size, seed)
        self._run: Run | None = None
        self._mirror: Mirror | None = None
        self._busy_seconds = 0.0
        self.best_logits: Tensor | None = None

    def run(self, run: Run | None, mirror: Mirror | None = None) -> Signals | None:
        """Train to the end, or until a signal, which is returned; either way the last step is in a checkpoint.

        Only rank 0 has the run directory, and its mirror.
        """
        self._run, self._mirror = run, mirror
        self.job.metrics.seed.set(self.seed)
        if self._ended():
            return None
        if self._tells and self.state.step == 0:
            self._tell_beginning()
        with self._shortage.explained(), self._batches() as batches, self._progress() as progress:
            self._begin()
            for batch in batches:
                meeting = self._meet(batch)
                if meeting.stop is not None and self._step_so_far.batches == 0:  # a step is made whole or not at all
                    self.job.stop.heed()
                    self._save()
                    return meeting.stop
                if not self._add(batch, meeting, batches.waited_seconds):
                    continue  # the step takes another batch
                loss = self._step(batch.after)
                improved = self._evaluate() if self._evaluation_is_due() else False
                if improved or self._ended() or _due(self.state.step, self.job.config.train.checkpoint_every):
                    self._save(best=improved)
                progress.advance(note=self._note(loss))
                if self._ended():
                    break
                self._begin()
        if self._tells:
            self._tell_end()
        return None

    @property
    def evaluated(self) -> Model:
        """The model that scores, the best checkpoint and predictions are of."""
        return self.model if self.average is None else self.average.model

    def result(self) -> dict[str, Any]:
        state = self.state
        costs = {"seconds": dict(state.seconds), "rank_seconds": state.rank_seconds}
        return {"seed": self.seed, "best": state.best, "final": state.final, **costs}

    def _batches(self) -> Fetched:
        job, position = self.job, self.state.position
        graph, relation = job.graph, job.config.relation
        read = (graph.loading_store, graph.loading_hops, relation, self.split, graph.loading)
        assembler = Assembler(*read, job.dtype, job.row_cache)
        prepared = Preparation(self.model, self.task, self.seed, job.config.train.label_inputs, job.device)
        wanted = (assembler, self.sampler, position, job.config.train.epochs, job.device, prepared)
        return fetch(*wanted, job.local_ranks) if job.config.train.batch_nodes else Repeated(*wanted)

    def _begin(self) -> None:
        """From here on what happens counts for the next step."""
        watch = self.job.world.watch
        self._step_so_far = Accumulated(time.perf_counter(), watch.sent_bytes, watch.seconds)

    def _meet(self, batch: Batch) -> Meeting:
        """What all ranks bring to this batch. Every rank must call this."""
        watch = self.job.world.watch
        watch.phase = f"seed {self.seed}, step {self.state.step + 1}"
        stop = self.job.stop.received or 0
        labels = self.task.count(batch.on_host.labels)
        mine = torch.tensor([labels, batch.num_edges, batch.num_nodes, stop, self._busy_seconds], dtype=torch.float64)
        everyone = tally(self.job.world, mine, "meet")
        sums, stop, busy = everyone.sum(0).tolist(), int(everyone[:, 3].max()), tuple(everyone[:, 4].tolist())
        lag = mine[4].item() - min(busy)
        return Meeting(Counts(sums[0], int(sums[1]), int(sums[2])), busy, lag, Signals(stop) if stop else None)

    def _add(self, batch: Batch, meeting: Meeting, waited_seconds: float) -> bool:
        """Add a batch to the step; whether it is the step's last one, as the last of an epoch always is."""
        full = self._step_so_far.batches + 1 == self.job.config.train.accumulate
        last = full or batch.after.epoch > self.state.position.epoch
        self._shortage.meet(batch.num_nodes)
        self.stepper.add(batch, batch.number, meeting.counts, last=last)
        self._step_so_far.add(batch, meeting, waited_seconds)
        return last

    def _step(self, after: Position) -> StepLoss:
        """Move the weights by the batches since the last step."""
        job, state, watch, made = self.job, self.state, self.job.world.watch, self._step_so_far
        number, position = state.step, state.position
        rate = learning_rate(job.config.train, number, self.sampler.progress(position))
        try:
            loss = self.stepper.move(number, rate)
        except DivergedError:
            job.metrics.record_refused_step()
            raise
        self._shortage.learn()
        if self.average is not None:
            self.average.update(self.model, number)
        state.take_step(after, loss.supervised)
        seconds, talked = time.perf_counter() - made.began, watch.seconds - made.talked_before
        self._busy_seconds = seconds - talked
        state.seconds["train"] += seconds
        state.seconds["wait"] += made.wait_seconds
        state.take_rank_seconds(made.rank_seconds)
        facts = StepFacts(
            epoch=position.epoch,
            step=state.step,
            seconds=seconds,
            wait_seconds=made.wait_seconds,
            communication_seconds=talked,
            straggler_gap_seconds=made.straggler_gap_seconds,
            straggler_lag_seconds=made.straggler_lag_seconds,
            sent_bytes=watch.sent_bytes - made.sent_before + made.sent_bytes,
            nodes=made.nodes,
            edges=made.edges,
            loss=loss.total,
            supervised_loss=loss.supervised,
            edge_loss=loss.edge,
            gradient_norm=loss.gradient_norm,
            learning_rate=rate,
        )
        job.metrics.record_step(facts)
        everyone = {"nodes": made.all_nodes, "edges": made.all_edges}
        self._append("step", {**asdict(facts), **everyone, "nodes_per_second": made.all_nodes / seconds})
        return loss

    def _evaluation_is_due(self) -> bool:
        """After an epoch, every so often and after the last."""
        train, position = self.job.config.train, self.state.position
        every, last = train.evaluate_every, position.epoch >= train.epochs
        return bool(every) and not position.consumed and (position.epoch % every == 0 or last)

    def _evaluate(self) -> bool:
        """Score the whole graph; whether that is the best so far."""
        job, state = self.job, self.state
        started = time.perf_counter()
        job.world.watch.phase = f"seed {self.seed}, evaluation after step {state.step}"
        graph = job.evaluation_graph
        assert graph is not None
        nodes = torch.arange(graph.nodes.start, graph.nodes.stop)
        directions = evaluation_seed(job.config.attention, self.seed, state.step)
        logits = graph.evaluate(self.evaluated.eval(), directions, split=self.split).logits
        labels = job.graph.store.labels(nodes)
        scores = score(job.world, job.task, job.metric, logits, labels, self.split[nodes])
        if state.final is None and scores.valid.value is None and undefined(scores) and self._tells:
            log.warn(
                f"{undefined(scores)}: the last epoch counts as the best; set another evaluate.metric or data.split"
            )
        seconds = time.perf_counter() - started
        state.seconds["evaluate"] += seconds
        values = {name: getattr(scores, name).value for name in ("train", "valid", "test")}
        position = {"epoch": state.position.epoch, "step": state.step}
        found = {"seed": self.seed, **position, **values, "predicted_classes": scores.predicted_classes}
        improved = state.take_scores({**found, **direction(job.metric)}, scores.valid.loss, job.config.train)
        by_split = {name: getattr(scores, name).loss for name in values}
        job.metrics.record_evaluation(seconds, job.metric, values, by_split)
        losses = {f"{name}_loss": loss for name, loss in by_split.items()}
        self._append("evaluation", {**position, "metric": job.metric, **values, **losses, "seconds": seconds})
        if job.trial is not None:
            self.best_logits = logits.clone() if improved else self.best_logits
            job.trial(self.seed, state.position.epoch, state.best["valid"] if state.best else None)
        return improved

    @property
    def _tells(self) -> bool:
        """Whether this process has the words: the first of a job that is no trial."""
        return self.job.world.rank == 0 and self.job.trial is None

    def _ended(self) -> bool:
        return self.state.ended(self.job.config.train)

    def _tell_beginning(self) -> None:
        wanted, there = self.job.config.train.accumulate, self.sampler.batches(Position())
        if wanted > there:
            log.notice(f"train.accumulate = {wanted}, and an epoch has {there} batches: a step is of {there}")

    def _tell_end(self) -> None:
        """Say what is not plain from the scores."""
        config, state = self.job.config.train, self.state
        if state.position.epoch < config.epochs:
            why = f"{config.early_stop} evaluations without progress, as train.early_stop has it"
            log.notice(f"seed {self.seed}: ended after epoch {state.position.epoch} of {config.epochs}, {why}")
        if trouble := state.trouble():
            log.warn(f"seed {self.seed}: {trouble}")

    def _append(self, kind: str, facts: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.append(
                {"kind": kind, "seed": self.seed, **facts, "peak_memory_bytes": peak_memory_bytes(self.job.device)}
            )

    def _save(self, best: bool = False) -> None:
        """Write a checkpoint, on rank 0."""
        job, state = self.job, self.state
        if self._run is None:
            return
        started = time.perf_counter()
        content = {
            "seed": self.seed,
            **state.as_dict(),
            "finished": self.finished,
            "partition": job.graph.store.fingerprint(),
            "metrics_bytes": self._run.metrics_file.size_bytes,
            "world_size": job.world.size,
            "versions": versions(job.device),
        }
        tensors = {"weights": self.evaluated.state_dict(), "optimizer": optimizer_tensors(self.optimizer, self.model)}
        if self.average is not None:
            tensors[RAW_WEIGHTS] = self.model.state_dict()
        step = state.step
        self._run.save_checkpoint(self.seed, step, tensors, content, job.config.train.keep)
        if best and state.best is not None:
            self._run.mark_best(self.seed, step, state.best)
        job.metrics.record_checkpoint()
        if self._mirror is not None:
            self._mirror.update()
        state.seconds["checkpoint"] += time.perf_counter() - started

    def _progress(self) -> AbstractContextManager[log.Progress]:
        """The one display of the job."""
        if self.job.world.rank != 0 or self.job.trial is not None:
            return nullcontext(log.Silent())
        left = self._steps_left()
        return log.progress(left, f"train seed {self.seed}")

    def _steps_left(self) -> int:
        """Steps to the last epoch, from this one's remaining and the next one's full number."""
        train, position = self.job.config.train, self.state.position
        this_epoch, next_epoch = position, Position(epoch=position.epoch + 1)
        in_this, in_next = (-(-self.sampler.batches(at) // train.accumulate) for at in (this_epoch, next_epoch))
        return in_this + (train.epochs - next_epoch.epoch) * in_next

    def _note(self, loss: StepLoss) -> str:
        state = self.state
        note = f"epoch {state.position.epoch}, loss {loss.total:.4g}"
        if state.final is None or state.final["valid"] is None:
            return note
        return f"{note}, valid {state.final['valid']:.4f}"


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
