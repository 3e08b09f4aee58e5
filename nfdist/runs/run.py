"""A run directory: the configuration, the metrics, the checkpoints and the result of one training.

    config.toml  run.json  metrics.jsonl  result.json  checkpoints/seed-0/{best.json,step-00000100/}

One process writes; any number may read.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nfdist import __version__, files, log, settings
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError
from nfdist.runs.checkpoint import Checkpoint

FORMAT_VERSION = 1
RUN_FILE = "run.json"
CONFIG_FILE = "config.toml"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
REPLACED = ".replaced"


@dataclass(frozen=True)
class Run:
    """`owner` is an opaque text that says which launch made the run."""

    path: Path
    config: Config
    owner: str

    @staticmethod
    def create(path: Path, config: Config, owner: str) -> "Run":
        """Begin a run in a directory that is absent or empty."""
        if Run.holds_run(path):
            raise CheckpointError(f"{path} already holds a run: continue it with --resume, or choose another run.dir")
        text = settings.dump(config)
        with files.disk_errors_as(CheckpointError, path):
            if path.exists() and not path.is_dir():
                raise CheckpointError(f"{path} is a file: choose another run.dir")
            path.mkdir(parents=True, exist_ok=True)
            files.remove_stale(path)
            for entry in path.iterdir():
                # A crash between the two files below leaves the first, which is as good as none.
                if entry.name != CONFIG_FILE or entry.read_bytes() != text.encode():
                    raise CheckpointError(f"{path} is no run, but holds {entry.name}: choose another run.dir")
            files.replace_file(path / CONFIG_FILE, text)
            marker = {"format_version": FORMAT_VERSION, "nfdist": __version__, "owner": owner}
            files.replace_file(path / RUN_FILE, _json(marker, indent=2))
        return Run(path, config, owner)

    @staticmethod
    def open(path: Path) -> "Run":
        """The run that a directory holds."""
        marker = _read_json(path / RUN_FILE)
        if marker is None:
            raise CheckpointError(f"{path} holds no {RUN_FILE}: it is no run, give the run.dir of a training")
        version = marker.get("format_version")
        if repr(version) != repr(FORMAT_VERSION):  # since True == 1.0 == 1
            raise CheckpointError(
                f"{path} is a run of format version {version!r}, this nfdist reads version {FORMAT_VERSION}: "
                "use the nfdist that wrote it"
            )
        try:
            config = settings.load(path / CONFIG_FILE)
        except ConfigError as error:
            raise CheckpointError(f"{path} is a run whose {CONFIG_FILE} cannot be used: {error}") from None
        return Run(path, config, str(marker.get("owner")))

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Whether a run was begun here; its last file tells."""
        return _read(path / RUN_FILE) is not None

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to the metrics; NaN and infinities become null."""
        path = self.path / METRICS_FILE
        with files.disk_errors_as(CheckpointError, path), path.open("a", encoding="utf-8") as file:
            file.write(_json(line))

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines; the last one may be torn."""
        path = self.path / METRICS_FILE
        content = _read(path) or b""
        lines = []
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise CheckpointError(f"{path} has no JSON in line {number} ({error}): remove that line") from None
        return lines

    @property
    def metrics_bytes(self) -> int:
        """The size of the metrics so far, for `truncate_metrics` later."""
        path = self.path / METRICS_FILE
        return path.stat().st_size if path.exists() else 0

    def truncate_metrics(self, size: int) -> None:
        """Cut the metrics back to an earlier size, and with it whatever a crash left at their end."""
        path = self.path / METRICS_FILE
        if self.metrics_bytes < size:
            raise CheckpointError(
                f"{path} has {self.metrics_bytes:,} bytes, but had {size:,} at the checkpoint: "
                "restore the file, or train again in another run.dir"
            )
        if self.metrics_bytes > size:
            with files.disk_errors_as(CheckpointError, path):
                os.truncate(path, size)

    @property
    def seeds(self) -> list[int]:
        """The seeds that have a folder of checkpoints, ascending."""
        return [seed for seed, _ in _numbered(self.path / "checkpoints", r"seed-(0|[1-9]\d*)")]

    def checkpoint_paths(self, seed: int) -> dict[int, Path]:
        """The seed's checkpoints by their steps, ascending."""
        return dict(self._saved(seed))

    def save_checkpoint(
        self, seed: int, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
    ) -> Checkpoint:
        """Save a checkpoint, over one of the same step, and remove all but the newest `keep` and the best."""
        path = self._folder(seed) / f"step-{step:08d}"
        replaced = path.with_name(path.name + REPLACED)
        with files.disk_errors_as(CheckpointError, path):
            if self.metrics_bytes:
                # The state may hold their size, which the disk must not forget.
                files.flush(self.path / METRICS_FILE)
            if path.exists():
                if replaced.exists():
                    files.remove(replaced)
                path.rename(replaced)
        checkpoint = Checkpoint.save(path, tensors, state)
        best = self.best_of(seed)
        newest = list(self.checkpoint_paths(seed))[-keep:]
        with files.disk_errors_as(CheckpointError, path):
            self._remove_all_but(seed, {step, *newest, best["step"] if best else step})
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
        if step not in self.checkpoint_paths(seed):
            raise CheckpointError(f"{self._folder(seed)} holds no checkpoint of step {step}: save it first")
        path = self._best_file(seed)
        with files.disk_errors_as(CheckpointError, path):
            files.replace_file(path, _json({"step": step, **scores}, indent=2))

    def best_of(self, seed: int) -> dict[str, Any] | None:
        """The step and the scores of the seed's best checkpoint."""
        best = _read_json(self._best_file(seed))
        if best is not None and type(best.get("step")) is not int:
            raise CheckpointError(f"{self._best_file(seed)} names no step: remove it")
        return best

    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the seed whose best has the highest "valid" score."""
        bests = {seed: best for seed in self.seeds if (best := self.best_of(seed))}
        if not bests:
            return None
        seed = max(bests, key=lambda seed: _order(bests[seed].get("valid")))
        step = bests[seed]["step"]
        path = self.checkpoint_paths(seed).get(step)
        if path is None:
            raise CheckpointError(f"{self._best_file(seed)} names step {step}, which is gone: name another checkpoint")
        return Checkpoint.open(path)

    def forget_after(self, seed: int, step: int) -> None:
        """Remove the seed's checkpoints of later steps, and the mark of the best if it is one of them."""
        best = self.best_of(seed)
        with files.disk_errors_as(CheckpointError, self._folder(seed)):
            if best and best["step"] > step:
                self._best_file(seed).unlink()
            self._remove_all_but(seed, {saved for saved in self.checkpoint_paths(seed) if saved <= step})

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the result of the training; NaN and infinities become null."""
        path = self.path / RESULT_FILE
        with files.disk_errors_as(CheckpointError, path):
            files.replace_file(path, _json(result, indent=2))

    def result(self) -> dict[str, Any] | None:
        """The result, once there is one."""
        return _read_json(self.path / RESULT_FILE)

    def _folder(self, seed: int) -> Path:
        return self.path / "checkpoints" / f"seed-{seed}"

    def _best_file(self, seed: int) -> Path:
        return self._folder(seed) / "best.json"

    def _saved(self, seed: int) -> list[tuple[int, Path]]:
        """Steps and checkpoints, ascending; one that was to be replaced comes before its successor, which wins."""
        return _numbered(self._folder(seed), rf"step-(\d{{8,}})({re.escape(REPLACED)})?")

    def _remove_all_but(self, seed: int, steps: set[int]) -> None:
        kept = self.checkpoint_paths(seed)
        for step, path in self._saved(seed):
            if step not in steps or path != kept[step]:
                files.remove(path)


def _order(score: float | None) -> float:
    return -math.inf if score is None else score


def _numbered(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """What has a number in its name, by that number; of two with the same, the shorter name is last."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [(int(match[1]), path) for path in paths if (match := re.fullmatch(pattern, path.name))]
    return sorted(found, key=lambda pair: (pair[0], -len(pair[1].name)))


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(_finite(value), indent=indent, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The value with null for the numbers that JSON has no words for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _read(path: Path) -> bytes | None:
    """The content of a file, or None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None


def _read_json(path: Path) -> dict[str, Any] | None:
    content = _read(path)
    if content is None:
        return None
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): restore or remove it") from None
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is not a JSON object: restore or remove it")
    return parsed
