"""Losses are those of torch, add up over parts, and refuse labels that do not exist."""

import pytest
import torch
import torch.nn.functional as F

from nfdist import seeds
from nfdist.errors import ConfigError
from nfdist.model.task import Task

LOGITS = torch.randn(20, 4, generator=seeds.generator(0, "logits"), dtype=torch.float64)
LABELS = torch.randint(4, (20,), generator=seeds.generator(1, "labels"))
ANSWERS = torch.randint(2, (20, 4), generator=seeds.generator(2, "answers"))


@pytest.mark.parametrize(
    ("task", "logits", "labels", "wanted"),
    [
        (Task("single", 4), LOGITS, LABELS, F.cross_entropy(LOGITS, LABELS)),
        (
            Task("binary", 2),
            LOGITS[:, :2],
            ANSWERS[:, 0],
            F.binary_cross_entropy_with_logits(LOGITS[:, :2], F.one_hot(ANSWERS[:, 0], 2).double()),
        ),
        (Task("multi", 4), LOGITS, ANSWERS, F.binary_cross_entropy_with_logits(LOGITS, ANSWERS.double())),
    ],
)
def test_losses_are_means_and_add_up_over_parts(
    task: Task, logits: torch.Tensor, labels: torch.Tensor, wanted: torch.Tensor
) -> None:
    assert torch.isclose(task.loss(logits, labels).mean, wanted)
    parts = [task.loss(logits[rows], labels[rows]) for rows in (slice(0, 0), slice(0, 3), slice(3, 20))]
    assert torch.isclose(torch.stack([part.total for part in parts]).sum() / sum(part.count for part in parts), wanted)


@pytest.mark.parametrize(("kind", "outputs"), [("single", 4), ("binary", 2), ("multi", 4)])
def test_missing_labels_are_neither_added_nor_counted_and_send_no_gradient(kind: str, outputs: int) -> None:
    logits = LOGITS[:, :outputs].clone().requires_grad_()
    labels = {"single": LABELS, "binary": ANSWERS[:, 0], "multi": ANSWERS}[kind]
    if kind == "single":
        losses = F.cross_entropy(logits, labels, reduction="none")
    else:
        targets = labels if kind == "multi" else F.one_hot(labels, 2)
        losses = F.binary_cross_entropy_with_logits(logits, targets.double(), reduction="none")
    known = torch.rand(labels.shape, generator=seeds.generator(3, "known")) < 0.7
    found = Task(kind, outputs).loss(logits, labels.where(known, -1))
    assert torch.isclose(found.total, losses[known].sum())
    assert found.count == losses[known].numel() < losses.numel()
    (gradient,), (wanted,) = (torch.autograd.grad(loss, logits) for loss in (found.total, losses[known].sum()))
    assert torch.allclose(gradient, wanted)

    nothing = Task(kind, outputs).loss(logits, torch.full_like(labels, -1))
    assert (nothing.mean.item(), nothing.count) == (0, 0)


def test_labels_outside_the_classes_are_named() -> None:
    with pytest.raises(ConfigError, match="label 4 is outside the 4 classes 0 to 3"):
        Task("single", 4).loss(LOGITS, LABELS.clone().index_fill_(0, torch.tensor([5]), 4))
    with pytest.raises(ConfigError, match="label -2 is outside"):
        Task("single", 4).loss(LOGITS, LABELS.clone().index_fill_(0, torch.tensor([5]), -2))
    with pytest.raises(ConfigError, match=r"label -0\.5 is outside"):
        Task("multi", 4).loss(LOGITS, ANSWERS.double().index_fill_(0, torch.tensor([5]), -0.5))
    with pytest.raises(ConfigError, match="label nan is outside"):
        Task("multi", 4).loss(LOGITS, ANSWERS.double().index_fill_(0, torch.tensor([5]), float("nan")))
    with pytest.raises(ConfigError, match=r"needs logits \[n, 4\] and labels \[20\], got \[20, 4\] and \[19\]"):
        Task("single", 4).loss(LOGITS, LABELS[1:])


def test_tasks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="task must be one of single, binary, multi, got 'triple'"):
        Task("triple", 3)
    with pytest.raises(ConfigError, match="a binary task cannot have 3 classes"):
        Task("binary", 3)
