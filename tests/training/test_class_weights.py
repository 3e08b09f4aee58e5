"""Balanced classes count alike in the loss, and smoothed labels are what torch makes of them."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from nfdist.config import TrainConfig
from nfdist.errors import ConfigError
from nfdist.model.task import Task
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.class_weights import training_task
from tests.store.building import build_graph, write


def test_balanced_weights_are_inverse_to_the_training_nodes_of_a_class(tmp_path: Path) -> None:
    write(tmp_path / "graph", build_graph())
    store = Store.open(tmp_path / "graph")
    everyone = torch.arange(store.num_nodes)
    split, labels = store.split(everyone), store.labels(everyone)
    task = training_task(Task("single", 4), TrainConfig(class_weights="balanced"), store, split, nodes_at_once=7)
    assert task.class_weights is not None
    trained = labels[(split == TRAIN) & (labels >= 0)].long()
    by_class = [float(task.class_weights[trained[trained == one]].sum()) for one in trained.unique()]
    assert by_class == pytest.approx([by_class[0]] * len(by_class))
    assert task.count(labels[split == TRAIN]) == pytest.approx(len(trained))
    logits = torch.randn(len(trained), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = F.cross_entropy(logits, trained, task.class_weights)
    assert float(task.loss(logits, trained).mean) == pytest.approx(float(wanted))
    assert training_task(Task("single", 4), TrainConfig(), store, split).class_weights is None


def test_questions_cannot_be_balanced(tmp_path: Path) -> None:
    write(tmp_path / "graph", build_graph(questions=3))
    store = Store.open(tmp_path / "graph")
    with pytest.raises(ConfigError, match="needs one class a node"):
        training_task(Task("multi", 3), TrainConfig(class_weights="balanced"), store, torch.zeros(60))


@pytest.mark.parametrize("kind", ["single", "binary", "multi"])
def test_smoothed_labels_are_mixed_with_an_even_guess(kind: str) -> None:
    generator, classes = torch.Generator().manual_seed(0), 3 if kind != "binary" else 2
    logits = torch.randn(20, classes, dtype=torch.float64, generator=generator)
    shape = (20, classes) if kind == "multi" else (20,)
    labels = torch.randint(-1, 2, shape, generator=generator)
    loss = Task(kind, classes, label_smoothing=0.2).loss(logits, labels)
    known = labels >= 0
    if kind == "single":
        wanted = F.cross_entropy(logits[known], labels[known], reduction="sum", label_smoothing=0.2)
    else:
        hard = (labels[known] if kind == "multi" else F.one_hot(labels[known], 2)).double()
        soft = 0.8 * hard + 0.1
        wanted = F.binary_cross_entropy_with_logits(logits[known], soft, reduction="sum")
    assert float(loss.total) == pytest.approx(float(wanted))
    assert Task(kind, classes).loss(logits, labels).count == loss.count
