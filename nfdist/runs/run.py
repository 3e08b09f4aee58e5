"""A run directory: the configuration, the metrics, the checkpoints and the result of one training.

    config.toml  run.json  metrics.jsonl  result.json  checkpoints/seed-0/{best.json,step-00000100/}

One process writes, its owner (nfdist.runs.ownership); any number may read.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdist import __version__, files, log
from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from nfdist.runs.metrics_file import MetricsFile
from nfdist.runs.ownership import LOCK_SUFFIX
from nfdist.runs.ranking import better, rank
from nfdist.runs.records import parse_object, read, read_config, read_record, write_config, write_record

if TYPE_CHECKING:
    from torch import Tensor

UNCHECKED_KEYS = {"format_version", "nfdist", "owner"}  # of run.json in format version 1
RUN_FILE = "run.json"
CONFIG_FILE = "config.toml"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
STRENGTHS_FOLDER = "smoothing"  # strengths that validation scores chose, a file a checkpoint
EVALUATIONS_FILE = "evaluations.jsonl"  # what nfdist evaluate --follow adds
REPLACED = ".replaced"


@dataclass(frozen=True)
class Run:
    """`owner` is an opaque text that says which launch made the run; `id` is empty for one of format version 1."""

    path: Path
    config: Config
    owner: str
    id: str = ""

    @staticmethod
    def create(path: Path, config: Config, owner: str) -> "Run":
        """Begin a run in a directory that is absent or empty, or holds but the lock of its owner."""
        if Run.holds_run(path):
            raise CheckpointError(f"{path} already holds a run: continue it with --resume, or choose another run.dir")
        with files.disk_errors_as(CheckpointError, path):
            if path.exists() and not path.is_dir():
                raise CheckpointError(f"{path} is a file: choose another run.dir")
            path.mkdir(parents=True, exist_ok=True)
            files.remove_stale(path)
            for entry in path.iterdir():
                # A crash between the two files below leaves the first, which is as good as none.
                if entry.suffix != LOCK_SUFFIX and not _is_config(entry, config):
                    raise CheckpointError(f"{path} is no run, but holds {entry.name}: choose another run.dir")
        run = Run(path, config, owner, secrets.token_hex(8))
        write_config(path / CONFIG_FILE, run.id, config)
        write_record(path / RUN_FILE, run.id, {"nfdist": __version__, "owner": owner})
        return run

    @staticmethod
    def open(path: Path) -> "Run":
        """The run that a directory holds."""
        file = path / RUN_FILE
        written = read(file)
        if written is None:
            raise CheckpointError(f"{path} holds no {RUN_FILE}: it is no run, give the run.dir of a training")
        cure = "restore it, or train again in another run.dir"
        marker = parse_object(file, written, cure)
        unchecked = marker.keys() == UNCHECKED_KEYS and repr(marker["format_version"]) == "1"  # since True == 1.0 == 1
        if not unchecked:
            marker = read_record(file, None, cure) or {}
        run_id = "" if unchecked else str(marker.get("run"))
        return Run(path, read_config(path / CONFIG_FILE, run_id), str(marker.get("owner")), run_id)

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Whether a run was begun here; its last file tells."""
        return read(path / RUN_FILE) is not None

    def reconfigured(self, config: Config) -> "Run":
        """The run with another configuration from now on."""
        if config != self.config:
            write_config(self.path / CONFIG_FILE, self.id, config)
        return replace(self, config=config)

    @property
    def metrics_file(self) -> MetricsFile:
        return MetricsFile(self.path / METRICS_FILE)

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to the metrics; NaN and infinities become null."""
        self.metrics_file.append(line)

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of the metrics; the last one may be torn."""
        return self.metrics_file.lines()

    @property
    def seeds(self) -> list[int]:
        """The seeds that have a folder of checkpoints, ascending."""
        return [seed for seed, _ in _numbered(self.path / "checkpoints", r"seed-(0|[1-9]\d*)")]

    def checkpoint_paths(self, seed: int) -> dict[int, Path]:
        """The seed's checkpoints by their steps, ascending."""
        return dict(self.all_checkpoint_paths(seed))

    def all_checkpoint_paths(self, seed: int) -> list[tuple[int, Path]]:
        """Steps and checkpoints, ascending; one that was to be replaced comes before its successor, which wins."""
        return _numbered(self._folder(seed), rf"step-(\d{{8,}})({re.escape(REPLACED)})?")

    def save_checkpoint(
        self, seed: int, step: int, tensors: "Mapping[str, Mapping[str, Tensor]]", state: Mapping[str, Any], keep: int
    ) -> Checkpoint:
        """Save a checkpoint, over one of the same step, and remove all but the newest `keep` and the best."""
        path = self._folder(seed) / f"step-{step:08d}"
        replaced = path.with_name(path.name + REPLACED)
        with files.disk_errors_as(CheckpointError, path):
            if self.metrics_file.size_bytes:
                # The state may hold their size, which the disk must not forget.
                files.flush(self.path / METRICS_FILE)
            if path.exists():
                if replaced.exists():
                    files.remove(replaced)
                path.rename(replaced)
        checkpoint = Checkpoint.save(path, tensors, state)
        newest = list(self.checkpoint_paths(seed))[-keep:]
        with files.disk_errors_as(CheckpointError, path):
            self._remove_all_but(seed, {step, *newest, *self._best_steps(seed)})
            files.remove_stale(path.parent)
        return checkpoint

    def last_checkpoint(self, seeds: Sequence[int]) -> Checkpoint | None:
        """The newest checkpoint that is whole, if there is one; `seeds` are in the order they are trained."""
        for seed in reversed(seeds):
            for path in reversed(self.checkpoint_paths(seed).values()):
                try:
                    return Checkpoint.open(path)
                except CheckpointError as error:
                    log.warn(f"checkpoint skipped: {error}")
        return None

    def mark_best(self, seed: int, step: int, scores: Mapping[str, float | int | None]) -> None:
        """Remember a saved checkpoint as the seed's best."""
        path = self.checkpoint_paths(seed).get(step)
        if path is None:
            raise CheckpointError(f"{self._folder(seed)} holds no checkpoint of step {step}: save it first")
        content = {"step": step, **scores, "weights": _weights_checksum(path)}
        write_record(self._best_file(seed), self.id, content)

    def best_of(self, seed: int) -> dict[str, Any] | None:
        """The step and the scores of the seed's best checkpoint.

        The newest checkpoint knows it too, and alone after a crash that came before the mark, or when that was lost.
        """
        marked, known = self._marked(seed), self._known_best(seed)
        if known is None or marked is None:
            return known or marked
        first, second = sorted((marked, known), key=lambda best: int(best["step"]))
        return second if first["step"] < second["step"] and better(second, first) else first

    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the seed whose best has the highest "valid" score, of equal ones the first trained."""
        order = self.config.train.seeds
        seeds = sorted(self.seeds, key=lambda seed: order.index(seed) if seed in order else len(order))
        bests = {seed: best for seed in seeds if (best := self.best_of(seed))}
        if not bests:
            return None
        seed = max(bests, key=lambda seed: rank(bests[seed]))
        step = bests[seed]["step"]
        path = self.checkpoint_paths(seed).get(step)
        if path is None:
            raise CheckpointError(
                f"{self._folder(seed)} has its best scores from step {step}, which is gone: name another checkpoint"
            )
        return Checkpoint.open(path)

    def chosen_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint, else the last, which is told where an evaluation would have marked a best one."""
        best = self.best_checkpoint()
        if best is not None:
            return best
        last = self.last_checkpoint(self.config.train.seeds)
        if last is not None and (self.config.train.evaluate_every or (self.path / EVALUATIONS_FILE).exists()):
            log.notice(f"{self.path} has no best checkpoint yet: this is the last one, {last.path.name}")
        return last

    def forget_after(self, seed: int, step: int) -> None:
        """Remove the seed's checkpoints of later steps, and the mark of the best if it is one of them or unreadable."""
        try:
            best = self._marked(seed)
            forgotten = best is not None and best["step"] > step
        except CheckpointError as error:
            log.warn(f"{error}: it is marked anew")
            forgotten = True
        with files.disk_errors_as(CheckpointError, self._folder(seed)):
            if forgotten:
                self._best_file(seed).unlink()
            self._remove_all_but(seed, {saved for saved in self.checkpoint_paths(seed) if saved <= step})

    def mark_again(self, seed: int) -> None:
        """Mark the best checkpoint that the newest one knows of, where a crash or a loss left another mark or none."""
        best = self.best_of(seed)
        if best is not None and best != self._marked(seed) and best["step"] in self.checkpoint_paths(seed):
            self.mark_best(seed, best["step"], best)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result of the training; NaN and infinities become null."""
        write_record(self.path / RESULT_FILE, self.id, result)

    def result(self) -> dict[str, Any] | None:
        """The result, once there is one."""
        cure = "remove it, and nfdist train --resume writes it again"
        return read_record(self.path / RESULT_FILE, self.id, cure)

    def _folder(self, seed: int) -> Path:
        return self.path / "checkpoints" / f"seed-{seed}"

    def _best_file(self, seed: int) -> Path:
        return self._folder(seed) / "best.json"

    def _marked(self, seed: int) -> dict[str, Any] | None:
        """What best.json says."""
        path = self._best_file(seed)
        cure = "restore it, or remove it: the checkpoints know which is the best, unless nfdist evaluate --follow told"
        best = read_record(path, self.id, cure)
        if best is None:
            return None
        if type(best.get("step")) is not int:
            raise CheckpointError(f"{path} names no step: remove it")
        marked, weights = self.checkpoint_paths(seed).get(best["step"]), best.pop("weights", None)
        if weights is not None and marked is not None and _weights_checksum(marked) not in (weights, None):
            raise CheckpointError(f"{path} is not of the weights in {marked.name}: {cure}")
        return best

    def _best_steps(self, seed: int) -> set[int]:
        """The steps not to remove: that of the mark, and that which should be marked."""
        bests = [self._known_best(seed)]
        with suppress(CheckpointError):  # a training need not end for a mark that it can write again
            bests.append(self._marked(seed))
        return {best["step"] for best in bests if best is not None}

    def _known_best(self, seed: int) -> dict[str, Any] | None:
        """What the newest whole checkpoint says of the best until then."""
        for path in reversed(self.checkpoint_paths(seed).values()):
            try:
                best = Checkpoint.open(path, verify=False).state.get("best")
            except CheckpointError:  # told of by whoever needs that checkpoint
                continue
            return best if isinstance(best, dict) and type(best.get("step")) is int else None
        return None

    def _remove_all_but(self, seed: int, steps: set[int]) -> None:
        kept = self.checkpoint_paths(seed)
        for step, path in self.all_checkpoint_paths(seed):
            if step not in steps or path != kept[step]:
                files.remove(path)


def _weights_checksum(path: Path) -> str | None:
    """What tells the weights of a checkpoint from all others; None where its state cannot be read."""
    with suppress(CheckpointError, LookupError, TypeError):
        return str(Checkpoint.open(path, verify=False).files["weights"]["checksum"])
    return None


def _numbered(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """What has a number in its name, by that number; of two with the same, the shorter name is last."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [(int(match[1]), path) for path in paths if (match := re.fullmatch(pattern, path.name))]
    return sorted(found, key=lambda pair: (pair[0], -len(pair[1].name)))


def _is_config(path: Path, config: Config) -> bool:
    """Whether a file is the configuration that a crash left of a run like this one."""
    try:
        return path.name == CONFIG_FILE and read_config(path, None) == config
    except CheckpointError:
        return False
