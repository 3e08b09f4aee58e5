"""Scores of worlds of 1, 2 and 3 are those that scikit-learn and ogb give for all nodes together."""

import importlib.util
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, f1_score, recall_score, roc_auc_score

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.evaluation.scores import resolve_metric, score
from nfdist.model.task import Task
from nfdist.partitioning.sources.ogb_door import ogb_reader
from nfdist.world import World
from tests.evaluation.cases import Case, build_cases, score_and_refuse
from tests.worlds import run_world

CASES = build_cases()
SPLITS = {"train": 1, "valid": 2, "test": 3}
Array = np.ndarray[Any, Any]


@cache
def answers_of(size: int) -> list[Any]:
    return run_world(size, score_and_refuse) if size > 1 else [score_and_refuse(World())]


def chosen(case: Case, name: str) -> tuple[Array, Array]:
    """Logits and labels of the labeled nodes of a split."""
    labeled = case.labels >= 0 if case.labels.ndim == 1 else (case.labels >= 0).any(1)
    rows = labeled & (case.split == SPLITS[name])
    return case.logits[rows].numpy(), case.labels[rows].numpy()


def wanted_loss(case: Case, logits: Array, labels: Array) -> float:
    outputs, truth = torch.from_numpy(logits).double(), torch.from_numpy(labels)
    if case.task.kind == "single":
        return float(F.cross_entropy(outputs, truth))
    truth = F.one_hot(truth, 2) if case.task.kind == "binary" else truth
    return float(F.binary_cross_entropy_with_logits(outputs[truth >= 0], truth[truth >= 0].double()))


def measured_classes(case: Case, logits: Array, labels: Array) -> list[float]:
    """What scikit-learn says of each class or question; nan where it has no answer."""
    if case.metric == "roc_auc" and case.task.kind != "multi":
        logits, labels = torch.from_numpy(logits).softmax(1).numpy()[:, 1:], labels[:, None]
    elif case.task.kind != "multi":
        measure = recall_score if case.metric == "accuracy" else f1_score
        every = range(case.task.num_classes)
        return list(measure(labels, logits.argmax(1), labels=every, average=None, zero_division=np.nan))
    values = []
    for outputs, answers in zip(logits.T, labels.T, strict=True):
        outputs, answers = outputs[answers >= 0], answers[answers >= 0]
        if len(answers) == 0 or (case.metric == "roc_auc" and len(set(answers)) == 1):
            values.append(math.nan)
        elif case.metric == "roc_auc":
            values.append(roc_auc_score(answers, outputs))
        elif case.metric == "accuracy":
            values.append(accuracy_score(answers, outputs > 0))
        else:
            values.append(f1_score(answers, outputs > 0, zero_division=np.nan))
    return values


def measured_whole(case: Case, logits: Array, labels: Array) -> float:
    """What scikit-learn says of a split."""
    guesses, truth = logits.argmax(1), labels
    if case.task.kind == "multi":
        guesses, truth = (logits > 0)[labels >= 0], labels[labels >= 0]
    if case.metric == "accuracy":
        return float(accuracy_score(truth, guesses))
    if case.metric == "f1_micro":
        return float(f1_score(truth, guesses, average="binary" if case.task.kind == "multi" else "micro"))
    if case.metric == "f1_macro" and case.task.kind != "multi":
        return float(f1_score(truth, guesses, average="macro", labels=np.union1d(truth, guesses)))
    return float(np.nanmean(measured_classes(case, logits, labels)))


MEASURABLE = [name for name in CASES if name not in ("no labels", "no yes", "one-sided splits", "proteins")]


@pytest.mark.parametrize("name", MEASURABLE)
def test_one_process_scores_as_scikit_learn_does(name: str) -> None:
    case, found = CASES[name], CASES[name].score(World())
    for split in SPLITS:
        logits, labels = chosen(case, split)
        assert found[split]["labeled_nodes"] == len(labels) > 10
        assert found[split]["loss"] == pytest.approx(wanted_loss(case, logits, labels), rel=1e-6)
        assert found[split]["value"] == pytest.approx(measured_whole(case, logits, labels), rel=1e-12)
        per_class = [math.nan if value is None else value for value in found[split]["per_class"]]
        assert per_class == pytest.approx(measured_classes(case, logits, labels), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_rank_of_a_world_has_the_scores_of_one_process(size: int) -> None:
    for shares, _ in answers_of(size):
        for name, case in CASES.items():
            whole = case.score(World())
            for split in SPLITS:
                loss = whole[split].pop("loss")
                assert shares[name][split] == {**whole[split], "loss": loss and pytest.approx(loss, rel=1e-6)}, name


def test_what_cannot_be_measured_is_none_and_f1_without_a_yes_is_0() -> None:
    found = CASES["no labels"].score(World())
    assert found["test"] == {"value": None, "loss": None, "labeled_nodes": 0, "per_class": (None,) * 5}
    assert found["train"]["value"] > 0
    found = CASES["one-sided splits"].score(World())
    assert found["train"]["value"] > 0
    assert [found[split]["value"] for split in ("valid", "test")] == [None, None]
    assert found["valid"]["loss"] > 0
    found = CASES["no yes"].score(World())
    assert found["test"]["value"] == 0.0
    assert found["test"]["per_class"] == (None,) * 7
    assert replace(CASES["no yes"], metric="f1_micro").score(World())["test"]["value"] == 0.0


def test_complete_answers_score_as_ogb_does() -> None:
    folder = Path(ogb_reader().__file__).parent.parent / "nodeproppred"
    # By its path: the package around it would import DGL.
    place = importlib.util.spec_from_file_location("ogb_evaluate", folder / "evaluate.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    evaluator = module.Evaluator("ogbn-proteins")
    found = CASES["proteins"].score(World())
    for split in SPLITS:
        logits, labels = chosen(CASES["proteins"], split)
        wanted = evaluator.eval({"y_true": labels, "y_pred": logits})["rocauc"]
        assert found[split]["value"] == pytest.approx(wanted, rel=1e-12)


def test_scores_do_not_depend_on_the_chunks_they_are_counted_in() -> None:
    generator = seeds.generator(0, "many")
    logits = torch.randn(400_000, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (400_000,), generator=generator)
    found = score(World(), Task("single", 4), "accuracy", logits, labels, torch.ones(400_000, dtype=torch.int8)).train
    assert found.value == (logits.argmax(1) == labels).sum().item() / 400_000
    assert found.loss == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-12)


def test_half_precision_scores_as_the_same_numbers_in_full() -> None:
    for name in ("single f1_macro", "binary roc_auc", "multi roc_auc"):
        half = replace(CASES[name], logits=(CASES[name].logits * 1.01).bfloat16())
        assert half.score(World()) == replace(half, logits=half.logits.float()).score(World())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_mistake_of_one_rank_is_told_on_all(size: int) -> None:
    wanted = [
        "label 5 is outside the 5 classes 0 to 4",
        "rows of logits need a split of each",
        "the loss of the train nodes is nan, the model has diverged",
    ]
    for _, told in answers_of(size):
        assert [want in text for want, text in zip(wanted, told, strict=True)] == [True] * 3, told


def test_scores_are_plain_json() -> None:
    for case in CASES.values():
        assert json.loads(json.dumps(case.score(World()), allow_nan=False))["metric"] == case.metric


def test_auto_is_accuracy_or_roc_auc_and_what_cannot_be_measured_is_refused() -> None:
    single, binary, multi = Task("single", 3), Task("binary", 2), Task("multi", 3)
    assert [resolve_metric("auto", task) for task in (single, binary, multi)] == ["accuracy", "roc_auc", "roc_auc"]
    assert replace(CASES["multi roc_auc"], metric="auto").score(World())["metric"] == "roc_auc"
    assert resolve_metric("f1_macro", single) == "f1_macro"
    two = Task("single", 2)
    assert [resolve_metric(metric, two) for metric in ("auto", "roc_auc", "accuracy")] == ["roc_auc"] * 2 + ["accuracy"]
    assert [resolve_metric("auto", task, "accuracy") for task in (two, binary)] == ["accuracy", "roc_auc"]
    with pytest.raises(ConfigError, match="roc_auc needs yes-or-no labels, got 3 classes: choose accuracy"):
        resolve_metric("roc_auc", single)
    with pytest.raises(ConfigError, match="must be one of auto, accuracy, f1_macro, f1_micro, roc_auc, got 'recall'"):
        resolve_metric("recall", multi)
