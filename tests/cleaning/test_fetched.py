"""The cache is emptied of what no process uses."""

import fcntl
from pathlib import Path

import pytest

from nfdist.cleaning.candidates import Kept
from nfdist.cleaning.fetched import unused
from nfdist.cleaning.removal import remove


def test_what_a_process_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NFDIST_CACHE", str(tmp_path))
    assert unused() == []
    for name in ("a", "b"):
        (tmp_path / name / "graph").mkdir(parents=True)
        (tmp_path / name / "graph" / "ids.arrow").write_text("ids")
        (tmp_path / f"{name}.lock").touch()
    both = unused()
    with (tmp_path / "a.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert [(one.path.name, one.size_bytes) for one in unused()] == [("b", 3)]
        assert [isinstance(one, Kept) for one in remove(both)] == [True, False]
    assert (tmp_path / "a" / "graph" / "ids.arrow").exists()
    assert not (tmp_path / "b").exists()
