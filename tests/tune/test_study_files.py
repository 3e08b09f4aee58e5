"""What a study leaves can be read, trained and looked at."""

import csv
from pathlib import Path
from xml.etree import ElementTree

from nfdist import settings
from nfdist.tune.purpose import Purpose
from nfdist.tune.search_space import parse_space, with_values
from nfdist.tune.study import owned_study
from nfdist.tune.study_files import BEST_FILE, PICTURE_FILE, TRIALS_FILE, write_outputs
from tests.tune.building import SEARCH, SETTINGS

CONFIG = settings.parse(SETTINGS, ["observe.port=1234", "run.dir=mine"])
PURPOSE = Purpose(CONFIG, parse_space(SEARCH), "accuracy", True, "0")


def test_all_of_them_tell_of_every_trial(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with owned_study(folder, PURPOSE) as study:
        for ending in ("complete", "prune", "fail", "interrupt", *["complete"] * 4):
            suggestion = study.claim(99)
            assert suggestion is not None
            score = 0.5 + suggestion.values["train.learning_rate"]
            suggestion.report(0, score)
            endings = {"complete": (score, 1.0), "prune": (1.0,), "fail": ("a, b\nc", 1.0), "interrupt": ("killed",)}
            getattr(suggestion, ending)(*endings[ending])
        summary = write_outputs(study, CONFIG)
        best = study.best()
    assert summary["trials"] == {"complete": 5, "pruned": 1, "failed": 1}
    with (folder / TRIALS_FILE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows[:5]] == ["complete", "pruned", "failed", "interrupted", "complete"]
    assert [row["reason"] for row in rows[1:4]] == ["", "a, b\nc", "killed"]
    assert best is not None
    assert float(rows[best.number]["valid"]) == max(float(row["valid"]) for row in rows if row["valid"])
    found = settings.load(folder / BEST_FILE)
    wanted = with_values(CONFIG, best.values)
    assert (found.model, found.train, found.observe) == (wanted.model, wanted.train, wanted.observe)
    assert found.run.dir == str(folder / "best")
    texts = [element.text or "" for element in ElementTree.fromstring((folder / PICTURE_FILE).read_text())]
    assert set(SEARCH) <= set(texts)
    dots = [element for element in ElementTree.fromstring((folder / PICTURE_FILE).read_text()) if element.get("r")]
    assert len(dots) == 6


def test_without_a_score_there_is_but_the_table(tmp_path: Path) -> None:
    with owned_study(tmp_path / "out", PURPOSE) as study:
        suggestion = study.claim(1)
        assert suggestion is not None
        suggestion.fail("no", 1.0)
        assert write_outputs(study, CONFIG)["best"] is None
    assert (tmp_path / "out" / TRIALS_FILE).exists()
    assert not (tmp_path / "out" / BEST_FILE).exists()
