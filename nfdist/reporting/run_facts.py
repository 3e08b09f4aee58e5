"""All that a report tells of one run, gathered before anything is drawn.

What a run has not is a sentence in `absent`, under the name of the section it would be in; what is damaged is an error.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist.errors import CheckpointError
from nfdist.evaluation.evaluation_record import EvaluationRecord, checked_output
from nfdist.evaluation.follow import read_evaluations
from nfdist.evaluation.outputs import EMBEDDINGS_FILE, PREDICTIONS_FILE
from nfdist.evaluation.states import STATES_FOLDER, SUMMARY_FOLDER, States
from nfdist.model.build import model_class
from nfdist.model.loading import TrainedModel, read_model
from nfdist.model.nodeformer import NodeFormer
from nfdist.remote import is_uri
from nfdist.reporting.answer_scores import AnswerScores, Mistake, read_answers
from nfdist.reporting.course import Course, read_course
from nfdist.reporting.embedding_map import NODES, EmbeddingMap, make_map, read_embeddings
from nfdist.reporting.latent import LatentAttention
from nfdist.reporting.provenance import Provenance, trace
from nfdist.reporting.structure import Attended, Structure, drawn, in_neighbors, study_structure
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.run import CONFIG_FILE, Run
from nfdist.store.store import Store

QUERIES = 128  # whose attention is looked at
SHOWN_NEIGHBORS = 5


@dataclass(frozen=True)
class Neighbor:
    """A node by what its user calls it, its class, and the attention weight on it if that is known."""

    original_id: str
    label: str
    weight: float | None


@dataclass(frozen=True)
class ExplainedMistake:
    """A wrong answer, whom the node attends to most in the last layer, and whom it hears in the input graph.

    `heard` are the strongest of `num_heard`, of whom `heard_classes` counts the labels.
    """

    mistake: Mistake
    attended: tuple[Neighbor, ...]
    heard: tuple[Neighbor, ...]
    num_heard: int
    heard_classes: dict[str, int]


@dataclass
class RunFacts:
    """A run; `labels` are the classes of the nodes on the map by number, -1 for none."""

    run: Run
    course: Course
    provenance: Provenance
    record: EvaluationRecord | None
    model: TrainedModel | None
    store: Store | None
    answers: AnswerScores | None = None
    answered_by: dict[str, Any] | None = None
    mistakes: tuple[ExplainedMistake, ...] = ()
    structure: Structure | None = None
    map: EmbeddingMap | None = None
    labels: NDArray[np.int64] | None = None
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.run.path.absolute().name

    @property
    def evaluates(self) -> str:
        """The command that makes what is missing."""
        return f"`nfdist evaluate {self.run.path}`"


def gather_course(path: Path) -> RunFacts:
    """What the small files of a run tell, for a page of one or of several runs."""
    run = Run.open(path)
    result = run.result()
    lines = run.metrics()
    if not any(line.get("kind") == "evaluation" for line in lines):
        lines += [_as_evaluation(line) for line in read_evaluations(run)]
    record = EvaluationRecord.read(run)
    last = None if result is not None else run.last_checkpoint(run.config.train.seeds)
    provenance = trace(run, result, None if last is None else last.state)
    facts = RunFacts(run, read_course(lines, result, run.config), provenance, record, None, None)
    if not facts.course.finished:
        facts.absent["result"] = (
            "The training has not come to its end: a run that was stopped goes on with "
            f"`nfdist train {run.path / CONFIG_FILE} --resume`."
        )
    return facts


def gather(path: Path, partition: Path | str | None = None) -> RunFacts:
    """All that a run has, its graph included; `partition` is where that is, if no longer in data.partition."""
    facts = gather_course(path)
    facts.store = _store(facts, partition)
    facts.model = _evaluated_model(facts)
    if facts.model is not None and facts.store is not None:
        facts.model.check_graph(facts.store)
    _add_answers(facts)
    latent = _latent(facts)
    _add_structure(facts, latent)
    _add_map(facts, latent)
    return facts


def _as_evaluation(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of evaluations.jsonl as a training would have written it."""
    losses = {f"{split}_loss": loss for split, loss in dict(line.get("loss", {})).items()}
    return {"kind": "evaluation", **line, **losses}


def _store(facts: RunFacts, partition: Path | str | None) -> Store | None:
    named = partition or facts.run.config.data.partition
    if not is_uri(named) and not Path(named).is_dir() and partition is None:
        facts.absent["graph"] = (
            f"The graph is not in {named} any more: "
            f"`nfdist report {facts.run.path} --partition DIR` reads it elsewhere."
        )
        return None
    return Store.open(named)


def _evaluated_model(facts: RunFacts) -> TrainedModel | None:
    """The model of the last evaluation, or of the best checkpoint where there was none."""
    run, record = facts.run, facts.record
    if record is None:
        checkpoint = run.chosen_checkpoint()
        return None if checkpoint is None else read_model(run.config, checkpoint)
    seed, step = record.outcome.get("seed"), record.outcome.get("step")
    path = run.checkpoint_paths(int(seed or 0)).get(int(step or 0))
    if path is None:
        facts.absent["states"] = (
            f"The checkpoint that was evaluated (seed {seed}, step {step}) is gone: {facts.evaluates} evaluates the "
            "best one there is."
        )
        return None
    return read_model(run.config, Checkpoint.open(path))


def _add_answers(facts: RunFacts) -> None:
    run, store = facts.run, facts.store
    output = checked_output(run, facts.record, PREDICTIONS_FILE)
    if output is None:
        facts.absent["answers"] = f"The run has no {PREDICTIONS_FILE}: {facts.evaluates} writes it."
        return
    if output.model is None:
        facts.absent["checksum"] = (
            f"{PREDICTIONS_FILE} is of an nfdist that recorded no checksum of it, so it could not be verified: "
            f"{facts.evaluates} writes it anew."
        )
    names = [] if store is None else store.manifest.schema.names_of(range(store.num_classes))
    facts.answers, facts.answered_by = read_answers(output.path, names), output.model
    if facts.answers is None:
        facts.absent["answers"] = "No node of the graph has a label to compare an answer with."
    elif store is not None and facts.answers.num_nodes != store.num_nodes:
        raise CheckpointError(
            f"{output.path} has {facts.answers.num_nodes:,} nodes and its graph {store.num_nodes:,}: "
            f"{facts.evaluates.strip('`')} makes it anew"
        )


def _latent(facts: RunFacts) -> LatentAttention | None:
    run, trained, store = facts.run, facts.model, facts.store
    name = run.config.model.name
    if not issubclass(model_class(name), NodeFormer):
        facts.absent["attention"] = f"A {name} has no attention to look at: train one with `model.name=nodeformer`."
        return None
    if trained is None or store is None:
        facts.absent["attention"] = (
            facts.absent.get("states")
            or facts.absent.get("graph")
            or (
                f"There is no checkpoint to take an attention from yet: {facts.evaluates} can be run once there is one."
            )
        )
        return None
    folder = run.path / STATES_FOLDER
    if not folder.is_dir():
        facts.absent["attention"] = (
            f"The run has no {STATES_FOLDER}/ to take its attention from: {facts.evaluates} writes it."
        )
        return None
    made_from = Checkpoint.open(folder / SUMMARY_FOLDER).state.get("model")
    if not isinstance(made_from, dict) or made_from.get("fingerprint") != trained.fingerprint:
        facts.absent["attention"] = (
            f"{STATES_FOLDER}/ are those of another checkpoint: {facts.evaluates} makes them anew."
        )
        return None
    return LatentAttention(trained, States.open(run.path, trained), store)


def _add_structure(facts: RunFacts, latent: LatentAttention | None) -> None:
    store = facts.store
    if store is None:
        return
    wrong = facts.answers.mistakes if facts.answers is not None else ()
    places = np.array([mistake.node_id for mistake in wrong], dtype=np.int64)
    of_model = facts.model is not None and (facts.answered_by or {}).get("fingerprint") == facts.model.fingerprint
    if latent is not None and store.num_nodes > 1:
        others = places if of_model else places[:0]
        facts.structure = study_structure(latent, store, drawn(store.num_nodes, QUERIES, 0), others)
    attended = facts.structure.layers[-1].attended if facts.structure is not None and of_model else None
    heard = in_neighbors(store, places)
    facts.mistakes = tuple(
        _explained(store, mistake, heard[row], attended, row - len(wrong), latent) for row, mistake in enumerate(wrong)
    )


def _explained(
    store: Store,
    mistake: Mistake,
    heard: NDArray[np.int64],
    attended: Attended | None,
    row: int,
    latent: LatentAttention | None,
) -> ExplainedMistake:
    """`row` is that of the mistake among those who attend."""
    strongest: tuple[Neighbor, ...] = ()
    weights: NDArray[np.float64] | None = None
    if attended is not None and latent is not None:
        strongest = _neighbors(store, attended.node_ids[row], attended.weights[row])
        own = np.array([mistake.node_id])
        weights = latent.weights(latent.layers[-1], own, heard)[0].double().numpy() if len(heard) else None
    order = np.arange(len(heard)) if weights is None else np.argsort(-weights, kind="stable")
    first = order[:SHOWN_NEIGHBORS]
    classes = Counter(_labels(store, heard))
    return ExplainedMistake(
        mistake,
        strongest,
        _neighbors(store, heard[first], None if weights is None else weights[first]),
        len(heard),
        dict(classes.most_common()),
    )


def _neighbors(store: Store, node_ids: NDArray[np.int64], weights: NDArray[np.float64] | None) -> tuple[Neighbor, ...]:
    some = node_ids[:SHOWN_NEIGHBORS]
    known = [None] * len(some) if weights is None else weights[: len(some)].tolist()
    ids = store.original_ids(torch.from_numpy(some)).tolist()
    rows = zip(ids, _labels(store, some), known, strict=True)
    return tuple(Neighbor(str(original_id), label, weight) for original_id, label, weight in rows)


def _labels(store: Store, node_ids: NDArray[np.int64]) -> list[str]:
    """The classes of some nodes in the user's words."""
    labels = store.labels(torch.from_numpy(node_ids))
    if labels.ndim == 2:
        return ["several answers"] * len(labels)
    names = [str(name) for name in store.manifest.schema.names_of(range(store.num_classes))]
    return [names[label] if label >= 0 else "no label" for label in labels.tolist()]


def _add_map(facts: RunFacts, latent: LatentAttention | None) -> None:
    run, store = facts.run, facts.store
    if store is None or store.num_nodes < 3:
        facts.absent["map"] = facts.absent.get("graph", "The graph has too few nodes for a map.")
        return
    output = checked_output(run, facts.record, EMBEDDINGS_FILE)
    if output is None:
        name = run.config.model.name
        facts.absent["map"] = (
            f"The run has no {EMBEDDINGS_FILE}: {facts.evaluates} writes it."
            if issubclass(model_class(name), NodeFormer)
            else f"A {name} has no embeddings of its own to make a map of."
        )
        return
    node_ids = drawn(store.num_nodes, NODES, 2)
    same = (
        facts.model is not None and output.model is not None and output.model["fingerprint"] == facts.model.fingerprint
    )
    facts.map = make_map(read_embeddings(output.path, node_ids), node_ids, latent if same else None)
    labels = store.labels(torch.from_numpy(node_ids))
    facts.labels = labels.numpy() if labels.ndim == 1 else None
