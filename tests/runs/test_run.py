"""A run directory survives a crash while it is begun, and never mixes with what is not its own."""

import errno
import os
from pathlib import Path

import pytest

from nfdist.errors import CheckpointError
from nfdist.runs.records import sealed
from nfdist.runs.run import Run
from tests.runs.building import CONFIG, fail_with, names, save, steps


def test_what_was_created_is_what_is_opened(run: Run) -> None:
    assert Run.open(run.path) == run
    assert (run.config, run.owner) == (CONFIG, "launch-1")
    assert Run.holds_run(run.path)
    assert names(run.path) == ["config.toml", "run.json"]


def test_a_run_is_begun_in_an_absent_or_empty_directory_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep" / "er"):
        assert Run.create(path, CONFIG, "") == Run.open(path)
    with pytest.raises(CheckpointError, match=r"run already holds a run: continue it with --resume, or choose another"):
        Run.create(run.path, CONFIG, "launch-2")
    assert Run.open(run.path) == run
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"file is a file: choose another run\.dir"):
        Run.create(tmp_path / "file", CONFIG, "")
    with pytest.raises(CheckpointError, match="cannot be written"):
        Run.create(tmp_path / "file" / "run", CONFIG, "")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.toml").write_text("mine = 1")
    with pytest.raises(CheckpointError, match=r"full is no run, but holds config\.toml: choose another run\.dir"):
        Run.create(tmp_path / "full", CONFIG, "")
    assert (tmp_path / "full" / "config.toml").read_text() == "mine = 1"
    assert names(tmp_path / "full") == ["config.toml"]


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("renamed", [True, False])
def test_a_crash_while_a_run_is_begun_is_no_run_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, renamed: bool
) -> None:
    """The process ends before or after the rename of either file."""
    replace = Path.replace
    replaced: list[Path] = []

    def replace_or_die(self: Path, target: Path) -> None:
        if renamed or len(replaced) < after:
            replace(self, target)
        if len(replaced) == after:
            os._exit(9)
        replaced.append(target)

    if (child := os.fork()) == 0:
        try:
            monkeypatch.setattr(Path, "replace", replace_or_die)
            Run.create(tmp_path / "run", CONFIG, "first")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert names(tmp_path / "run") != []
    if after and renamed:  # both files are there
        assert (Run.open(tmp_path / "run").config, Run.open(tmp_path / "run").owner) == (CONFIG, "first")
        return
    assert not Run.holds_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"holds no run\.json: it is no run"):
        Run.open(tmp_path / "run")
    assert Run.create(tmp_path / "run", CONFIG, "second").owner == "second"
    assert names(tmp_path / "run") == ["config.toml", "run.json"]


def test_what_is_no_usable_run_is_refused(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", run.path / "config.toml"):
        assert not Run.holds_run(path)
        with pytest.raises(CheckpointError, match=r"holds no run\.json: it is no run"):
            Run.open(path)
    for text, message in (("[modle]\n", "unknown section modle"), ("[\n", "config.toml is not valid TOML")):
        (run.path / "config.toml").write_text(sealed(text, run.id))
        with pytest.raises(CheckpointError, match=f"config.toml cannot be used: .*{message}"):
            Run.open(run.path)
    (run.path / "config.toml").unlink()
    with pytest.raises(CheckpointError, match=r"config.toml cannot be read \(No such file"):
        Run.open(run.path)
    for text, message in (
        ('{"format_version": 4}', "format version 4, this nfdist reads version 3"),
        ('{"format_version": 2.0}', "format version 2.0, this nfdist reads version 3"),
        ('{"format_version": 2, "nfdist": "0.1.0", "owner": ""}', "run.json was altered since it was written"),
        ('{"format_version": 1, "nfdist": "0.1.0"}', "format version 1, this nfdist reads version 3"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a JSON object"),
    ):
        (run.path / "run.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            Run.open(run.path)


def test_the_result_is_absent_until_it_is_written(run: Run) -> None:
    assert run.result() is None
    for result in ({"metric": "accuracy"}, {"metric": "accuracy", "best": {"test": 0.5}}):
        run.write_result(result)
        assert run.result() == result
    assert names(run.path) == ["config.toml", "result.json", "run.json"]


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "the disk that holds .* is full"), (errno.EACCES, "Permission denied")]
)
def test_trouble_of_the_disk_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    save(run, 0, 1)
    fail_with(monkeypatch, number)
    for act in (
        lambda: Run.create(tmp_path / "other", CONFIG, ""),
        lambda: save(run, 0, 2),
        lambda: run.mark_best(0, 1, {}),
        lambda: run.write_result({}),
    ):
        with pytest.raises(CheckpointError, match=message) as caught:
            act()
        assert "\n" not in str(caught.value)
    assert (steps(run, 0), run.best_of(0), run.result()) == ([1], None, None)
    (run.path / "metrics.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl cannot be written: .*Is a directory"):
        run.append({})
