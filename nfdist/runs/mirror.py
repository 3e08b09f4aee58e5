"""A run's mirror: whole checkpoints and results of a run directory, copied to a URI, and fetched again on a new host.

The mirror has the names of the run directory. A checkpoint's state.json, which has the checksums of its other files, is
sent last and removed first, so that what has one is whole; the run's own marker, run.json, is the first of all files.
"""

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from nfdist import files, log
from nfdist.errors import CheckpointError
from nfdist.remote import Remote
from nfdist.runs.checkpoint import STATE_FILE, Checkpoint
from nfdist.runs.ownership import LOCK_SUFFIX, owning_directory
from nfdist.runs.run import CONFIG_FILE, METRICS_FILE, RESULT_FILE, RUN_FILE, STRENGTHS_FOLDER, Run

BEST_FILE = "best.json"
_SMALL_FILES = (RUN_FILE, CONFIG_FILE, METRICS_FILE, RESULT_FILE)
_CHECKPOINT = re.compile(r"(checkpoints/seed-(?:0|[1-9]\d*)/step-\d{8,})/[^/]+")


class Mirror:
    """Copies in a thread of its own, since no other rank should wait for a network; its failures end no training."""

    def __init__(self, run: Run, uri: str) -> None:
        self._run, self._remote = run, Remote.open(uri, CheckpointError)
        self._wanted, self._closing = threading.Event(), False
        self._sent: dict[str, object] = {}  # what of each file was sent, by its name
        self._failure: str | None = None
        self._check()
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def update(self) -> None:
        """Copy what is new, soon; what failed before is tried again."""
        self._wanted.set()

    def close(self) -> None:
        """Copy what is new once more and wait for it; what is still missing then is told."""
        self._closing = True
        self._wanted.set()
        self._thread.join()
        if self._failure:
            log.warn(
                f"run.mirror lacks the last of {self._run.path}, which is whole here: {self._failure}; "
                "nfdist train --resume sends it again"
            )

    def _check(self) -> dict[str, int]:
        """What the mirror holds; refused if that is another run, or this one with later checkpoints, which would go."""
        uri, path, there = self._remote.uri, self._run.path, self._remote.files()
        if there and self._remote.read(RUN_FILE) != (path / RUN_FILE).read_bytes():
            raise CheckpointError(f"run.mirror {uri} does not hold the run in {path}: choose another run.mirror")
        order = self._run.config.train.seeds
        here = [(_turn(seed, order), step) for seed in self._run.seeds for step in self._run.checkpoint_paths(seed)]
        whole = [folder for name in there if name.endswith(f"/{STATE_FILE}") and (folder := _checkpoint_of(name))]
        later = [folder for folder in whole if _place(folder, order) > max(here, default=(0, -1))]
        if later:
            raise CheckpointError(
                f"run.mirror {uri} has gone on to {later[-1]} while {path} has not: continue it with --resume in an "
                "empty run.dir, or choose another run.mirror"
            )
        return there

    def _work(self) -> None:
        closing = False
        while not closing:
            self._wanted.wait()
            self._wanted.clear()
            closing = self._closing  # looked at before the copy, so that a last one follows whatever was written
            try:
                self._copy()
                self._failure = None
            except Exception as error:  # whatever it is, the training must not end for it, nor may it be kept quiet
                if not self._failure:
                    log.warn(f"run.mirror was not updated, the training goes on: {error}")
                self._failure = str(error) or type(error).__name__

    def _copy(self) -> None:
        """Make the mirror what the run directory is: new files first, in the order that keeps it whole."""
        there = self._check()  # again, since no lock keeps another host away
        saved = {seed: self._run.checkpoint_paths(seed) for seed in self._run.seeds}
        if RUN_FILE not in there:
            self._send_file(RUN_FILE)
        for name in (CONFIG_FILE, METRICS_FILE):  # the metrics tell at least of the checkpoints found above
            self._send_file(name)
        kept = set()
        for seed, paths in saved.items():
            for step, path in paths.items():
                name = f"checkpoints/seed-{seed}/step-{step:08d}"
                with suppress(FileNotFoundError):  # it made way for a newer one meanwhile
                    self._send_checkpoint(path, name, there)
                    kept.add(name)
            self._send_file(f"checkpoints/seed-{seed}/{BEST_FILE}")
        for path in sorted((self._run.path / STRENGTHS_FOLDER).glob("*.json")):
            self._send_file(f"{STRENGTHS_FOLDER}/{path.name}")
        self._send_file(RESULT_FILE)
        for folder in {folder for name in there if (folder := _checkpoint_of(name))} - kept:
            self._remote.remove(f"{folder}/{STATE_FILE}")
            self._remote.remove_folder(folder)
            self._sent.pop(f"{folder}/{STATE_FILE}", None)

    def _send_checkpoint(self, path: Path, name: str, there: dict[str, int]) -> None:
        state = (path / STATE_FILE).read_bytes()
        if self._sent.get(f"{name}/{STATE_FILE}") == state:
            return
        if f"{name}/{STATE_FILE}" in there:
            if self._remote.read(f"{name}/{STATE_FILE}") == state:
                self._sent[f"{name}/{STATE_FILE}"] = state
                return
            self._remote.remove(f"{name}/{STATE_FILE}")
        for file in sorted(path.glob("*.safetensors")):
            self._remote.send(file, f"{name}/{file.name}")
        self._remote.send(path / STATE_FILE, f"{name}/{STATE_FILE}")
        self._sent[f"{name}/{STATE_FILE}"] = state

    def _send_file(self, name: str) -> None:
        path = self._run.path / name
        with suppress(FileNotFoundError):
            facts = path.stat()
            mark = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            if self._sent.get(name) != mark:
                self._remote.send(path, name)
                self._sent[name] = mark


def check_free(uri: str) -> None:
    """Refuse a mirror that holds anything, for a run that is about to begin."""
    if Remote.open(uri, CheckpointError).files():
        raise CheckpointError(
            f"run.mirror {uri} already holds files: continue the run there with --resume, or choose another run.mirror"
        )


def fetch_mirrored(path: Path, uri: str, launch: str) -> bool:
    """Fetch the run of a mirror into a run directory that has none; whether there was one.

    Checkpoints that are not whole are left out.
    """
    remote = Remote.open(uri, CheckpointError)
    there = remote.files()
    if RUN_FILE not in there:
        return False
    states = {_checkpoint_of(name) for name in there if name.endswith(f"/{STATE_FILE}")} - {None}
    sizes = {name: size for name, size in there.items() if _is_wanted(name, states)}
    with owning_directory(path, "train", "trained", launch):
        files.remove_stale(path)
        for entry in path.iterdir():
            if entry.suffix != LOCK_SUFFIX:
                raise CheckpointError(f"{path} is no run, but holds {entry.name}: choose another run.dir")
        fetched = path / "fetched"
        with files.written_aside(fetched, sum(sizes.values()), "run", CheckpointError) as aside:
            with log.progress(sum(sizes.values()), f"fetch {uri}") as progress:
                remote.fetch_all(sizes, aside, progress.advance)
            _drop_damaged(aside)
            for name in sorted({PurePosixPath(name).parts[0] for name in sizes} - {RUN_FILE}):
                (aside / name).rename(path / name)
            (aside / RUN_FILE).rename(path / RUN_FILE)  # which makes it a run
        files.remove(fetched)
    log.notice(f"{path} was fetched from run.mirror {uri}")
    return True


def _drop_damaged(folder: Path) -> None:
    for state in sorted(folder.glob(f"checkpoints/seed-*/step-*/{STATE_FILE}")):
        try:
            Checkpoint.open(state.parent)
        except CheckpointError as error:
            log.warn(f"checkpoint of the mirror skipped: {error}")
            files.remove(state.parent)


def _checkpoint_of(name: str) -> str | None:
    """The folder of a checkpoint's file, by the names of a run directory."""
    match = _CHECKPOINT.fullmatch(name)
    return match[1] if match else None


def _is_wanted(name: str, states: set[str | None]) -> bool:
    """Whether a file of a mirror is one that a mirror writes, and whole if it is a checkpoint's."""
    parts = PurePosixPath(name).parts
    if len(parts) == 3 and parts[0] == "checkpoints":
        return parts[2] == BEST_FILE
    if len(parts) == 2 and parts[0] == STRENGTHS_FOLDER:
        return parts[1].endswith(".json")
    return name in _SMALL_FILES or _checkpoint_of(name) in states


def _place(folder: str, order: Sequence[int]) -> tuple[int, int]:
    """When a checkpoint was written, among all of its run; `order` are the seeds as they are trained."""
    seed, step = (int(part.partition("-")[2]) for part in folder.split("/")[1:])
    return _turn(seed, order), step


def _turn(seed: int, order: Sequence[int]) -> int:
    return order.index(seed) if seed in order else -1
