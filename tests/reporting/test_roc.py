"""The ROC curve is that of a plain count, and stands on the page where there are two classes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from nfdist.reporting import answer_scores, pictures
from nfdist.reporting.answer_scores import read_answers
from nfdist.reporting.roc import MOST_POINTS, roc
from tests.reporting.drawn import drawings
from tests.reporting.explained import Explained


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Truths and probabilities, many of which are equal."""
    stream = np.random.default_rng(0)
    truth = stream.random(count) < 0.3
    return truth, np.round(np.clip(0.4 * truth + stream.random(count), 0, 1), 2).astype(np.float32)


@pytest.mark.parametrize("count", [2, 90, 5000])
def test_the_curve_is_that_of_a_plain_count(count: int) -> None:
    truth, likely = drawn(count)
    truth[:2] = True, False
    found = roc("yes", truth, likely)
    assert found is not None
    assert found.area == pytest.approx(roc_auc_score(truth, likely))
    false, true, _ = roc_curve(truth, likely, drop_intermediate=False)
    assert set(found.points) <= {(one, other) for one, other in zip(false, true, strict=True)}
    assert found.points[0] == (0, 0)
    assert found.points[-1] == (1, 1)
    assert len(found.points) == min(len(false), MOST_POINTS)


def test_one_class_alone_has_no_curve() -> None:
    assert roc("yes", np.ones(3, bool), np.ones(3)) is None
    assert roc("yes", np.zeros(3, bool), np.ones(3)) is None


@pytest.mark.parametrize("names", [["no", "yes"], [0, 1], [False, True]])
def test_predictions_of_two_classes_have_one(
    names: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, likely = drawn(300)
    told = likely > 0.5
    columns = {
        "id": list(range(300)),
        "label": [names[one] for one in told.astype(int)],
        "true_label": [names[one] if place % 7 else None for place, one in enumerate(truth.astype(int))],
        "probability": np.where(told, likely, 1 - likely),
        "split": ["test" if place % 3 else "train" for place in range(300)],
        "smoothed": [False] * 300,
    }
    path = tmp_path / "predictions.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=70)
    found = read_answers(path, names)
    assert found is not None
    assert found.roc is not None
    place = np.arange(300)
    seen = (place % 3 > 0) & (place % 7 > 0)
    assert found.roc.name == str(names[1])
    assert found.roc.area == pytest.approx(roc_auc_score(truth[seen], likely[seen]))
    assert not found.roc.sampled
    monkeypatch.setattr(answer_scores, "MOST_ROWS", 60)
    fewer = read_answers(path, names)
    assert fewer is not None
    assert fewer.roc is not None
    assert fewer.roc.sampled
    assert fewer.roc.area == pytest.approx(found.roc.area, abs=0.1)


def test_more_classes_have_none(explained: Explained) -> None:
    assert explained.facts.answers is not None
    assert explained.facts.answers.roc is None


def test_the_drawing_goes_from_corner_to_corner() -> None:
    for drawing in drawings(pictures.roc([(0, 0), (0.1, 0.7), (1, 1)], "of the others", "ROC")):
        diagonal, curve = (one.attrib["points"].split() for one in drawing if one.tag.endswith("polyline"))
        assert (curve[0], curve[-1]) == (diagonal[0], diagonal[-1])
        tips = [one.attrib["data-tip"] for one in drawing if one.tag.endswith("circle")]
        assert tips[1] == "70.0% found\n10.0% of the others"
