"""What has its name is whole, and what a dead process left is cleared away."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from nfdist import files
from nfdist.errors import CheckpointError, NfdistError, PartitionError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=60)
    return process.pid


def write(directory: Path, act: Callable[[Path], object], refusal: type[NfdistError] = CheckpointError) -> None:
    with files.written_aside(directory, 3 << 20, "thing", refusal) as aside:
        (aside / "file").write_text("text")
        act(aside)


def fail(error: BaseException) -> Callable[[object], None]:
    def act(_: object) -> None:
        raise error

    return act


def test_a_directory_has_its_name_only_once_it_is_whole(tmp_path: Path) -> None:
    seen: list[bool] = []
    write(tmp_path / "a" / "d", lambda _: seen.append((tmp_path / "a" / "d").exists()))
    assert seen == [False]
    assert names(tmp_path / "a") == ["d"]
    assert (tmp_path / "a" / "d" / "file").read_text() == "text"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_no_directory(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        write(tmp_path / "d", fail(error()))
    assert names(tmp_path) == []


@pytest.mark.parametrize("refusal", [CheckpointError, PartitionError])
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"is full: the thing needs about 3\.0 MiB; free some space"),
        (errno.EACCES, r"d cannot be written: .*Permission denied"),
    ],
)
def test_the_noun_and_the_class_of_messages_are_the_callers(
    tmp_path: Path, refusal: type[NfdistError], number: int, message: str
) -> None:
    with pytest.raises(refusal, match=message):
        write(tmp_path / "d", fail(OSError(number, os.strerror(number))), refusal)
    assert names(tmp_path) == []


def test_a_directory_that_is_there_or_appears_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(CheckpointError, match="d already exists"):
        write(tmp_path / "d", lambda _: pytest.fail("the block began"))
    with pytest.raises(CheckpointError, match="e appeared while"):
        write(tmp_path / "e", lambda _: (tmp_path / "e" / "theirs").mkdir(parents=True))
    assert names(tmp_path) == ["d", "e"]
    assert names(tmp_path / "e") == ["theirs"]


def test_a_file_holds_the_old_text_or_the_new_and_never_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.replace_file(path, "old")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail(OSError(errno.EIO, "no")))
        with pytest.raises(OSError, match="no"):
            files.replace_file(path, "new")
    assert (names(tmp_path), path.read_text()) == (["file"], "old")
    files.replace_file(path, "käse")
    assert (names(tmp_path), path.read_text(encoding="utf-8")) == (["file"], "käse")


def test_only_what_dead_processes_of_this_host_left_is_stale(tmp_path: Path, dead: int) -> None:
    host = socket.gethostname()
    kept = [
        f".a.tmp-{os.getpid()}-{host}-00000000",
        f".a.tmp-{dead}-{host}-elsewhere-00000000",
        f".a.tmp-{dead}-{host}",
        f"a.tmp-{dead}-{host}-00000000",
    ]
    for name in (*kept, f".a.tmp-{dead}-{host}-00000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    (tmp_path / f".b.tmp-{dead}-{host}-00000000").write_text("")
    files.remove_stale(tmp_path, "a")
    assert names(tmp_path) == sorted([*kept, f".b.tmp-{dead}-{host}-00000000"])
    files.remove_stale(tmp_path)
    assert names(tmp_path) == sorted(kept)


def test_a_directory_that_is_removed_loses_its_name_before_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # killed here
        files.remove(tmp_path / "d")
    (left,) = names(tmp_path)
    assert left.startswith(f".d.tmp-{os.getpid()}-")
    (tmp_path / left).rename(tmp_path / "d")
    files.remove(tmp_path / "d")
    assert names(tmp_path) == []


@pytest.mark.parametrize("size", [0, 1, files.BLOCK_BYTES, files.BLOCK_BYTES + 1])
def test_the_checksum_does_not_depend_on_the_blocks(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    content = content[:size]
    (tmp_path / "file").write_bytes(content)
    seen: list[int] = []
    expected = blake2b(content, digest_size=16).hexdigest()
    assert files.checksum(tmp_path / "file", seen.append) == files.checksum_of(content) == expected
    assert sum(seen) == size


@pytest.mark.parametrize("content", [{}, {"step": 3, "score": 0.5, "name": "käse"}])
def test_a_checked_file_is_refused_after_the_change_of_any_byte(content: dict[str, object]) -> None:
    written = files.dump_checked(2, content)
    assert files.load_checked(written, 2, "restore it") == content
    for place in range(len(written)):
        for byte in (written[place] ^ 1, ord("2"), ord(" ")):
            altered = written[:place] + bytes([byte]) + written[place + 1 :]
            if altered != written:
                with pytest.raises(ValueError, match=r"altered since it was written: restore it|format version"):
                    files.load_checked(altered, 2, "restore it")


def test_what_is_replaced_stays_until_its_successor_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "old").touch()

    def replaced() -> None:
        with files.written_aside(tmp_path / "states", 0, "folder", CheckpointError, replace=True) as aside:
            (aside / "new").touch()
            assert names(tmp_path / "states") == ["old"]

    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if target.name == "states" and ".tmp-" in path.name and (path / "new").exists():
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing)
        with pytest.raises(CheckpointError, match="Input/output error"):
            replaced()
    assert names(tmp_path) == ["states"]
    assert names(tmp_path / "states") == ["old"]
    replaced()
    assert names(tmp_path) == ["states"]
    assert names(tmp_path / "states") == ["new"]


def test_what_is_abandoned_cannot_be_finished(tmp_path: Path) -> None:
    def write() -> None:
        with files.written_aside(tmp_path / "graph", 0, "graph", PartitionError) as aside:
            (aside / "half").write_text("a")
            files.abandon()
            assert list(tmp_path.iterdir()) == []

    with pytest.raises(PartitionError):
        write()
    assert list(tmp_path.iterdir()) == []
    files.replace_file(tmp_path / "whole", "a")
    files.abandon()
    assert (tmp_path / "whole").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        files.remove(tmp_path / "nothing")
    assert not {path for path in files._UNFINISHED if path.parent == tmp_path}


def test_a_process_is_known_by_its_start() -> None:
    assert files.process_start(os.getpid()) == files.process_start(os.getpid()) is not None
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, though its parent has not taken notice
    assert files.process_start(process.pid) is None
    process.wait()
    assert files.process_start(process.pid) is None
