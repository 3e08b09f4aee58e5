"""The ROC curve of a two-class run: how many of the one class are found for how many of the other that come along."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 1 << 20  # rows that a curve is made of: of more, every so manieth
MOST_POINTS = 200


@dataclass(frozen=True)
class Roc:
    """Points (false positive rate, true positive rate) from (0, 0) to (1, 1), for the class `name`, and the area."""

    name: str
    points: tuple[tuple[float, float], ...]
    area: float
    sampled: bool = False


def roc(name: str, truth: NDArray[np.bool_], likely: NDArray[np.floating], sampled: bool = False) -> Roc | None:
    """The curve of probabilities [n] that nodes are of a class, None where all are of it or none is."""
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return None
    order = np.argsort(-likely, kind="stable")
    last = np.flatnonzero(np.append(np.diff(likely[order]) != 0, True))  # equal probabilities are one point
    found = np.concatenate([[0.0], np.cumsum(truth[order])[last] / positives])
    false = np.concatenate([[0.0], (last + 1 - np.cumsum(truth[order])[last]) / negatives])
    area = float(((found[1:] + found[:-1]) * np.diff(false)).sum() / 2)
    shown = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_POINTS)).round().astype(int))
    points = zip(false[shown].tolist(), found[shown].tolist(), strict=True)
    return Roc(name, tuple(points), area, sampled)
