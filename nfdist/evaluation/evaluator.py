"""An evaluation from start to end: the graph is opened once, then models are scored and what is wanted is written."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from nfdist import log
from nfdist.collectives import gather, largest, raised_on_all_ranks, together
from nfdist.config import Device
from nfdist.devices import is_gpu
from nfdist.errors import ConfigError
from nfdist.evaluation.attention_export import EDGES_FILE, NEIGHBORS_FILE, EdgeWeights, TopNeighbors
from nfdist.evaluation.background import Background
from nfdist.evaluation.evaluation_graph import open_evaluation_graph
from nfdist.evaluation.evaluation_record import write_evaluation
from nfdist.evaluation.full import BranchListener, Evaluation, Listener
from nfdist.evaluation.outputs import EMBEDDINGS_FILE, PREDICTIONS_FILE, write_embeddings, write_predictions
from nfdist.evaluation.placement import CPU
from nfdist.evaluation.scores import Scores, resolve_metric, score, undefined
from nfdist.evaluation.smoothed import SPLITS, Smoothed, Subject, score_facts, smooth_model
from nfdist.evaluation.smoothing import Rows
from nfdist.evaluation.smoothing_states import SmoothingWriter
from nfdist.evaluation.states import StatesWriter, writing_states
from nfdist.evaluation.sweep_memory import TIGHT_BYTES, rows_written_at_once
from nfdist.graph.graph import Graph
from nfdist.graph.split import split_of
from nfdist.memory import MemoryWatch, peak_resident_bytes, return_freed
from nfdist.model.build import model_device
from nfdist.model.loading import TrainedModel, broadcast_model, load_model
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.task import Task
from nfdist.rendezvous import Place
from nfdist.runs.ownership import LOCK_SUFFIX, owning
from nfdist.runs.run import Run
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.world import World


@dataclass(frozen=True)
class Wanted:
    """What an evaluation writes, by default nothing. `chosen` names nodes: original ids with commas, or a file.

    With `smoothing`, answers are also smoothed, if the run's settings say so, and those are the ones to write.
    """

    outputs: bool = False
    top_k: int = 3
    states: bool = False
    edges: bool = False
    chosen: str = ""
    count: int = 10
    probabilities: bool = False
    smoothing: bool = False

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return self.outputs or self.states or self.edges or bool(self.chosen)

    def __post_init__(self) -> None:
        for option, value in (("--top-k", self.top_k), ("--count", self.count)):
            if value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}")


class Evaluator:
    """The graph of a run, opened for its models. Every rank must make one, and each call together with the others.

    `partition` is where the graph is, if it is no longer where it was trained on. The `device` is for models that can
    be there; others are refused if it is `wanted` by its name.
    """

    def __init__(
        self,
        trained: TrainedModel,
        place: Place,
        world: World,
        *,
        partition: Path | str | None = None,
        memory_bytes: int | None = None,
        device: torch.device = CPU,
        wanted_device: Device = "auto",
    ) -> None:
        self._world, self._started, self._sent_before = world, time.perf_counter(), world.watch.sent_bytes
        self._tight = memory_bytes is not None and memory_bytes < TIGHT_BYTES
        self._rows_at_once = rows_written_at_once(memory_bytes, trained.config.model.channels, trained.dtype.itemsize)
        config = trained.config
        data = replace(config.data, partition=str(partition or config.data.partition))
        # First of all, since to open another graph may take long.
        together(world, lambda: trained.check_graph(Store.open(data.partition, [])))
        graph = Graph.open(replace(config, data=data), place, world, memory_bytes)
        self._seen, self._store, self._beside = graph.store, graph.store.local, graph.loading
        with raised_on_all_ranks():
            self._task = Task(self._store.task, self._store.num_classes)
            self._metric = resolve_metric(config.evaluate.metric, self._task, config.evaluate.two_classes)
            usable = model_device(config.model.name, device)
            if usable != device and wanted_device == "cuda":
                raise ConfigError(f"model.name = {config.model.name} has no code for GPUs: give --device cpu or auto")
        with MemoryWatch() as watch:
            self._full = open_evaluation_graph(
                config, graph.store, graph.hops, world, dtype=trained.dtype, device=usable, memory_bytes=memory_bytes
            )
        self._opening_bytes = watch.peak_private_bytes

    def evaluate(self, trained: TrainedModel, folder: Path, wanted: Wanted) -> dict[str, Any]:
        """The scores of a model and what they cost, as plain values.

        What is wanted is in `folder` then, on the host of rank 0.
        """
        with MemoryWatch() as watch:
            facts = self._evaluate(trained, folder, wanted)
        peaks = torch.tensor([peak_resident_bytes(), max(watch.peak_private_bytes, self._opening_bytes)])
        resident, private = largest(self._world, peaks, "compare memory").tolist()
        seconds, self._started = time.perf_counter() - self._started, time.perf_counter()
        sent, self._sent_before = self._world.watch.sent_bytes - self._sent_before, self._world.watch.sent_bytes
        return {
            **facts,
            "seconds": seconds,
            "peak_memory_bytes": resident,
            "peak_private_bytes": private,
            "sent_bytes": sent,
            "world_size": self._world.size,
            "device": str(self._full.device),
            "parts": len(self._store.parts),
            "nodes": self._store.num_nodes,
            "seed": trained.seed,
            "epoch": trained.epoch,
            "step": trained.step,
        }

    def _evaluate(self, trained: TrainedModel, folder: Path, wanted: Wanted) -> dict[str, Any]:
        with raised_on_all_ranks():
            trained.check_graph(self._store)
            for option, asked in (("--edges", wanted.edges), ("--top-neighbors", wanted.chosen)):
                if asked:
                    trained.nodeformer(option)
            if wanted.edges and not trained.config.relation.order:
                raise ConfigError("relation.order is 0, so the model knows of no edges: leave --edges away")
        nodes, layers = self._full.nodes, trained.config.model.layers
        edges = EdgeWeights(self._store, self._world, nodes, layers) if wanted.edges else None
        links = TopNeighbors(self._world, nodes, self._chosen(wanted), wanted.count) if wanted.chosen else None
        with_states = wanted.states and trained.model.inductive  # by default, and some have none
        branch_listener: BranchListener | None = None
        listeners: list[Listener] = [listener for listener in (edges, links) if listener is not None]
        split = split_of(self._seen, trained.config.data, trained.seed)
        with Background(self._beside) as background:
            with ExitStack() as stack:
                states = None
                if with_states:
                    where = folder, self._world, nodes, self._store.num_nodes
                    beside = None if is_gpu(self._full.device) else background
                    states = stack.enter_context(writing_states(*where, self._rows_at_once, beside))
                    heard, branch_listener = states.listeners(self._full, trained.model)
                    listeners += heard
                evaluation = self._evaluated(trained, split, listeners, branch_listener)
                return_freed()  # each worker has kept what it worked in, and what follows would come on top
                facts, smoothed = self._scored(trained, folder, wanted, evaluation, split, states)
                return_freed()
            if wanted.outputs:
                self._write_outputs(folder, evaluation, smoothed, split, wanted, background)
        if edges is not None:
            edges.write(folder / EDGES_FILE)
        if links is not None:
            links.write(folder / NEIGHBORS_FILE, self._store)
        return facts

    def _evaluated(
        self,
        trained: TrainedModel,
        split: Tensor,
        listeners: Sequence[Listener],
        branch_listener: BranchListener | None,
    ) -> Evaluation:
        model, layers = trained.model, trained.config.model.layers
        rows = (model.num_states if isinstance(model, NodeFormer) else layers + 1) * len(self._full.nodes)
        shown = log.progress(rows, "evaluate") if self._world.rank == 0 else nullcontext()
        with shown as progress:
            given = trained.model, trained.evaluation_seed, progress, listeners, branch_listener, split
            return self._full.evaluate(*given)

    def _scored(
        self,
        trained: TrainedModel,
        folder: Path,
        wanted: Wanted,
        evaluation: Evaluation,
        split: Tensor,
        states: StatesWriter | None,
    ) -> tuple[dict[str, Any], Smoothed | None]:
        """Scores of the raw answers and, apart from them, of the smoothed ones; with both, the states are whole."""
        nodes, world = evaluation.nodes, self._world
        labels, own = self._store.labels(torch.arange(nodes.start, nodes.stop)), split[nodes.start : nodes.stop]
        scores = score(world, self._task, self._metric, evaluation.logits, labels, own)
        if world.rank == 0 and (said := undefined(scores)):
            log.notice(f"{said}: another evaluate.metric or data.split would tell")
        facts = {
            **score_facts(scores),
            "accuracy": self._accuracy(scores, evaluation.logits, labels, own),
            "per_class": {
                name: self._store.manifest.schema.by_class(getattr(scores, name).per_class) for name in SPLITS
            },
        }
        smoothed, remembered = None, None
        if wanted.smoothing and trained.config.evaluate.smoothing == "auto":
            run = together(world, lambda: Run.open(folder) if world.rank == 0 else None)
            keep = None if states is None else SmoothingWriter(states.write, self._full.propagation())
            known = Rows.beside(self._task, evaluation.logits, labels, own == TRAIN)
            subject = Subject(trained, known, own, scores)
            smoothed = smooth_model(self._full, world, run, subject, keep=keep, remember=wanted.writes)
            facts["smoothed"] = None
            if smoothed is not None:
                accuracy = self._accuracy(smoothed.scores, smoothed.logits, labels, own)
                facts["smoothed"] = {**smoothed.facts(), "accuracy": accuracy}
            remembered = None if keep is None or smoothed is None else keep.finish(smoothed)
        if states is not None:
            states.write_summaries(evaluation.summaries, trained, remembered)
        return facts, smoothed

    def _accuracy(self, scores: Scores, logits: Tensor, labels: Tensor, split: Tensor) -> dict[str, float | None]:
        """How many answers are right in each split, whatever the metric is. Every rank must call this."""
        if scores.metric != "accuracy":
            scores = score(self._world, self._task, "accuracy", logits, labels, split)
        return {name: getattr(scores, name).value for name in SPLITS}

    def _write_outputs(
        self,
        folder: Path,
        evaluation: Evaluation,
        smoothed: Smoothed | None,
        split: Tensor,
        wanted: Wanted,
        background: Background,
    ) -> None:
        """Write predictions and, beside them where there is room, embeddings: to encode either takes a core."""
        store, world, nodes, hidden = self._store, self._world, evaluation.nodes, evaluation.hidden
        path = folder / PREDICTIONS_FILE
        if hidden is not None and (is_gpu(hidden.device) or self._tight):
            write_embeddings(folder / EMBEDDINGS_FILE, store, world, nodes, hidden, self._rows_at_once)
        elif hidden is not None:
            given = folder / EMBEDDINGS_FILE, store, background.world, nodes, hidden, self._rows_at_once
            background.begin(partial(write_embeddings, *given, wanted=background.while_wanted))
        logits, applied = evaluation.logits, smoothed is not None and smoothed.strengths.any
        if smoothed is not None:
            logits = smoothed.logits
        write_predictions(
            *(path, store, world, self._task, nodes, logits, split, wanted.top_k, self._rows_at_once),
            probabilities=wanted.probabilities,
            smoothed=applied,
        )
        background.settle()

    def _chosen(self, wanted: Wanted) -> Tensor:
        """The node ids of the chosen nodes, as rank 0 finds them."""
        nobody = torch.empty(0, dtype=torch.int64)
        rank = self._world.rank
        mine = together(self._world, lambda: find_chosen(wanted.chosen, self._store) if rank == 0 else nobody)
        return gather(self._world, mine, "chosen nodes")[0]


def evaluate_run(
    run_dir: Path,
    wanted: Wanted,
    place: Place,
    world: World,
    *,
    checkpoint: Path | str | None = None,
    partition: Path | str | None = None,
    memory_bytes: int | None = None,
    device: torch.device = CPU,
    wanted_device: Device = "auto",
) -> dict[str, Any]:
    """Evaluate a checkpoint of a run. Every rank must call this; only the first needs the run directory."""
    with ExitStack() as stack:

        def load() -> TrainedModel | None:
            if world.rank != 0:
                return None
            found = load_model(run_dir, checkpoint)
            if wanted.writes:
                stack.enter_context(owning(run_dir / f"evaluate{LOCK_SUFFIX}", "evaluated", place.launch))
            return found

        trained = broadcast_model(world, together(world, load))
        evaluator = Evaluator(
            trained,
            place,
            world,
            partition=partition,
            memory_bytes=memory_bytes,
            device=device,
            wanted_device=wanted_device,
        )
        outcome = evaluator.evaluate(trained, run_dir, wanted)
        if wanted.writes:
            together(world, lambda: _record(run_dir, trained, wanted, outcome) if world.rank == 0 else None)
        return outcome


def _record(run_dir: Path, trained: TrainedModel, wanted: Wanted, outcome: dict[str, Any]) -> None:
    asked = {
        PREDICTIONS_FILE: wanted.outputs,
        EMBEDDINGS_FILE: wanted.outputs and isinstance(trained.model, NodeFormer),
        EDGES_FILE: wanted.edges,
        NEIGHBORS_FILE: bool(wanted.chosen),
    }
    write_evaluation(Run.open(run_dir), outcome, trained.facts(), [name for name, made in asked.items() if made])


def find_chosen(text: str, store: Store) -> Tensor:
    """The node ids of original ids with commas between them, of a file with one a line, or of a Parquet file's ids."""
    path = Path(text)
    if path.is_file() and path.suffix == ".parquet":
        names = _parquet_ids(path, store.manifest.schema.id_column)
    else:
        words = path.read_text().splitlines() if path.is_file() else text.split(",")
        names = np.array([word.strip() for word in words if word.strip()], dtype=object)
        if store.manifest.id_type == "int64":
            try:
                names = names.astype(np.int64)
            except ValueError as error:
                raise ConfigError(f"--top-neighbors: {error}: the ids of {store.directory} are integers") from None
    if len(names) == 0:
        raise ConfigError(f"--top-neighbors {text!r} names no node: give original ids, or a file of them")
    return store.node_ids(names)


def _parquet_ids(path: Path, name: str) -> Any:
    try:
        return pq.read_table(path, columns=[name]).column(name).to_numpy()
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--top-neighbors {path} has no ids to read ({reason}): give a column {name}") from None
