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
from nfdist.devices import on_cpu
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.scores import direction, score, undefined
from nfdist.graph.graph import Graph
from nfdist.graph.split import split_of
from nfdist.memory import peak_resident_bytes
from nfdist.model.build import build_model
from nfdist.model.loading import load_weights
from nfdist.model.nodeformer import evaluation_seed
from nfdist.model.task import Task
from nfdist.observe.metrics import RunMetrics, StepFacts
from nfdist.runs.mirror import Mirror
from nfdist.runs.run import Run
from nfdist.signals import StopRequest
from nfdist.training.batches import Assembler, Batch, Fetched, Repeated, fetch
from nfdist.training.class_weights import training_task
from nfdist.training.optimization import learning_rate, make_optimizer, optimizer_tensors, restore_optimizer
from nfdist.training.restoring import Restored
from nfdist.training.result import versions
from nfdist.training.samplers import make_sampler
from nfdist.training.sampling import Position
from nfdist.training.state import State
from nfdist.training.statistics import set_constants
from nfdist.training.step import Counts, StepLoss, Stepper, replicate
from nfdist.world import World

EvaluationHook = Callable[[int, int, float | None], None]  # of a seed, an epoch and the best validation score so far


@dataclass(frozen=True)
class Job:
    """What the seeds of a run share; a `trial` is told of every evaluation on every rank, and may raise to end them."""

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


@dataclass(frozen=True)
class Meeting:
    """What the ranks tell each other before a step: counts, how unequal the last step's work was, who must stop."""

    counts: Counts
    straggler_gap_seconds: float
    stop: Signals | None


class Trainer:
    """One seed of a job. Every rank makes one and calls `run`."""

    def __init__(self, job: Job, seed: int, finished: list[dict[str, Any]], restored: Restored | None) -> None:
        self.job, self.seed, self.finished = job, seed, finished
        config, store = job.config, job.graph.store
        model = build_model(config, store.num_features, job.task.num_classes, seed)
        self.model = model.to(job.device, job.dtype)
        self.split = split_of(store, config.data, seed)
        self.optimizer = make_optimizer(self.model, config.train)
        self.state = State()
        if restored is not None:
            load_weights(self.model, restored.tensors["weights"], "the checkpoint")
            restore_optimizer(self.optimizer, self.model, restored.tensors["optimizer"])
            self.state = State.restored(restored.state)
        elif job.initial_weights is not None:
            load_weights(self.model, job.initial_weights, config.train.init_from)
        if restored is None:
            fresh = job.initial_weights is None
            set_constants(self.model, store, self.split, job.world, scaled=fresh and config.model.standardize)
        replica = replicate(self.model, job.world)
        self.task = training_task(job.task, config.train, store, self.split)
        self.stepper = Stepper(self.model, replica, self.optimizer, self.task, config.train, job.world, seed)
        self.sampler = make_sampler(config, job.graph, self.split, job.world.size, seed)
        self._run: Run | None = None
        self._mirror: Mirror | None = None
        self._busy_seconds = 0.0

    def run(self, run: Run | None, mirror: Mirror | None = None) -> Signals | None:
        """Train to the end, or until a signal, which is returned; either way the last step is in a checkpoint.

        Only rank 0 has the run directory, and its mirror.
        """
        self._run, self._mirror = run, mirror
        if self._ended():
            return None
        with self._batches() as batches, self._progress() as progress:
            self._begin()
            for batch in batches:
                meeting = self._meet(batch)
                if meeting.stop is not None:
                    self.job.stop.heed()
                    self._save()
                    return meeting.stop
                loss = self._step(batch, meeting, batches.waited_seconds)
                improved = self._evaluate() if self._evaluation_is_due() else False
                if improved or self._ended() or _due(self.state.position.step, self.job.config.train.checkpoint_every):
                    self._save(best=improved)
                progress.advance(note=self._note(loss))
                if self._ended():
                    break
                self._begin()
        if self._tells and (trouble := self.state.trouble()):
            log.warn(f"seed {self.seed}: {trouble}")
        return None

    def result(self) -> dict[str, Any]:
        state = self.state
        return {"seed": self.seed, "best": state.best, "final": state.final, "seconds": dict(state.seconds)}

    def _batches(self) -> Fetched:
        job, position = self.job, self.state.position
        graph, relation = job.graph, job.config.relation
        assembler = Assembler(graph.loading_store, graph.loading_hops, relation, self.split, graph.loading, job.dtype)
        make = fetch if job.config.train.batch_nodes else Repeated
        return make(assembler, self.sampler, position, job.config.train.epochs, job.device)

    def _begin(self) -> None:
        """From here on what happens counts for the next step."""
        watch = self.job.world.watch
        self._began, self._sent_before, self._talked_before = time.perf_counter(), watch.sent_bytes, watch.seconds

    def _meet(self, batch: Batch) -> Meeting:
        """What all ranks bring to this step. Every rank must call this."""
        watch = self.job.world.watch
        watch.phase = f"seed {self.seed}, step {self.state.position.step + 1}"
        stop = self.job.stop.received or 0
        labels = self.task.count(batch.labels)
        mine = torch.tensor([labels, batch.num_edges, batch.num_nodes, stop, self._busy_seconds], dtype=torch.float64)
        everyone = tally(self.job.world, mine, "meet")
        sums, most, least = everyone.sum(0).tolist(), everyone.amax(0).tolist(), everyone.amin(0).tolist()
        stop = int(most[3])
        return Meeting(Counts(sums[0], int(sums[1]), int(sums[2])), most[4] - least[4], Signals(stop) if stop else None)

    def _step(self, batch: Batch, meeting: Meeting, waited_seconds: float) -> StepLoss:
        job, state, watch = self.job, self.state, self.job.world.watch
        position = state.position
        rate = learning_rate(job.config.train, position.step, self.sampler.progress(position))
        loss = self.stepper.step(batch, position.step, meeting.counts, rate)
        state.take_step(batch.after, loss.supervised)
        seconds, talked = time.perf_counter() - self._began, watch.seconds - self._talked_before
        self._busy_seconds = seconds - talked
        state.seconds["train"] += seconds
        state.seconds["wait"] += waited_seconds
        facts = StepFacts(
            epoch=position.epoch,
            step=state.position.step,
            seconds=seconds,
            wait_seconds=waited_seconds,
            communication_seconds=talked,
            straggler_gap_seconds=meeting.straggler_gap_seconds,
            sent_bytes=watch.sent_bytes - self._sent_before + batch.sent_bytes,
            nodes=batch.num_nodes,
            edges=batch.num_edges,
            loss=loss.total,
            supervised_loss=loss.supervised,
            edge_loss=loss.edge,
            learning_rate=rate,
        )
        job.metrics.record_step(facts)
        everyone = {"nodes": meeting.counts.nodes, "edges": meeting.counts.edges, "gradient_norm": loss.gradient_norm}
        self._append("step", {**asdict(facts), **everyone, "nodes_per_second": meeting.counts.nodes / seconds})
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
        job.world.watch.phase = f"seed {self.seed}, evaluation after step {state.position.step}"
        graph = job.evaluation_graph
        assert graph is not None
        model = on_cpu(self.model)
        nodes = torch.arange(graph.nodes.start, graph.nodes.stop)
        directions = evaluation_seed(job.config.attention, self.seed, state.position.step)
        logits = graph.evaluate(model.eval(), directions).logits
        labels = job.graph.store.labels(nodes)
        scores = score(job.world, job.task, job.metric, logits, labels, self.split[nodes])
        if state.final is None and scores.valid.value is None and undefined(scores) and self._tells:
            log.warn(
                f"{undefined(scores)}: the last epoch counts as the best; set another evaluate.metric or data.split"
            )
        seconds = time.perf_counter() - started
        state.seconds["evaluate"] += seconds
        values = {name: getattr(scores, name).value for name in ("train", "valid", "test")}
        position = {"epoch": state.position.epoch, "step": state.position.step}
        found = {"seed": self.seed, **position, **values, "predicted_classes": scores.predicted_classes}
        improved = state.take_scores({**found, **direction(job.metric)}, scores.valid.loss, job.config.train)
        job.metrics.record_evaluation(seconds, values)
        losses = {f"{name}_loss": getattr(scores, name).loss for name in values}
        self._append("evaluation", {**position, "metric": job.metric, **values, **losses, "seconds": seconds})
        if job.trial is not None:
            job.trial(self.seed, state.position.epoch, state.best["valid"] if state.best else None)
        return improved

    @property
    def _tells(self) -> bool:
        """Whether this process has the words: the first of a job that is no trial."""
        return self.job.world.rank == 0 and self.job.trial is None

    def _ended(self) -> bool:
        return self.state.ended(self.job.config.train)

    def _append(self, kind: str, facts: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.append({"kind": kind, "seed": self.seed, **facts, "peak_memory_bytes": peak_resident_bytes()})

    def _save(self, best: bool = False) -> None:
        """Write a checkpoint, on rank 0."""
        job, state = self.job, self.state
        job.metrics.record_checkpoint()
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
            "versions": versions(),
        }
        tensors = {"weights": self.model.state_dict(), "optimizer": optimizer_tensors(self.optimizer, self.model)}
        step = state.position.step
        self._run.save_checkpoint(self.seed, step, tensors, content, job.config.train.keep)
        if best and state.best is not None:
            self._run.mark_best(self.seed, step, state.best)
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
        epochs, position = self.job.config.train.epochs, self.state.position
        in_this = self.sampler.steps(position)
        rest = epochs - position.epoch - 1
        return in_this + (rest * self.sampler.steps(Position(epoch=position.epoch + 1)) if rest else 0)

    def _note(self, loss: StepLoss) -> str:
        state = self.state
        note = f"epoch {state.position.epoch}, loss {loss.total:.4g}"
        if state.final is None or state.final["valid"] is None:
            return note
        return f"{note}, valid {state.final['valid']:.4f}"


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
