"""What a command answered, in a form that can be compared: without times, memory and paths, large things as digests."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

NOT_THE_ANSWER = ("seconds", "per_second", "peak", "versions", "restarts", "partition", "owner", "pid", "time")
ANSWERED_TABLES = ("predictions.parquet", "embeddings.parquet")
SHOWN_LENGTH = 300


def timeless(value: Any) -> Any:
    """A JSON value without what differs from run to run."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not any(word in key for word in NOT_THE_ANSWER)}
        return {key: timeless(item) for key, item in kept.items()}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def table(path: Path) -> str:
    """The content of a Parquet file, however it is encoded."""
    try:
        return hashlib.blake2b(repr(pq.read_table(path).to_pydict()).encode(), digest_size=8).hexdigest()
    except Exception as error:  # any: what cannot be read is not the right answer
        return f"unreadable: {str(error).splitlines()[0]:.80}"


def training(run: Path, with_metrics: bool = True) -> dict[str, Any]:
    """All that must come out the same however a training went: weights, lines and scores."""
    result = _json(run / "result.json")
    found: dict[str, Any] = {
        "result": timeless({key: result.get(key) for key in ("metric", "best", "final", "per_seed")})
    }
    for folder in sorted((run / "checkpoints").glob("seed-*")):
        last = max((path for path in folder.glob("step-*") if path.is_dir()), default=None)
        if last is not None:
            found[folder.name] = [last.name, *(digest(file) for file in sorted(last.glob("*.safetensors")))]
            found[f"{folder.name} best"] = _best(folder / "best.json")
    if with_metrics:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        found["metrics"] = [timeless(json.loads(line)) for line in lines]
    return found


def evaluation_files(run: Path) -> dict[str, str]:
    """What an evaluation leaves in the run directory."""
    found = {name: table(run / name) for name in ANSWERED_TABLES if (run / name).exists()}
    states = run / "states"
    for file in sorted(states.rglob("*")) if states.is_dir() else ():
        if file.suffix in (".npy", ".safetensors"):
            found[str(file.relative_to(run))] = digest(file) if file.is_file() else "directory"
    return found


def content_of(folder: Path) -> dict[str, str]:
    """Every file of a folder, to see whether anything changed."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): digest(path) for path in files}


def difference(found: Any, wanted: Any, where: str = "") -> str:
    """The first difference of two answers, in a few words; empty if there is none."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            if key not in found or key not in wanted:
                return f"{where}{key} is {'missing' if key not in found else 'more than there was'}"
            text = difference(found[key], wanted[key], f"{where}{key}.")
            if text:
                return text
        return ""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        texts = (difference(*pair, f"{where}{index}.") for index, pair in enumerate(zip(found, wanted, strict=True)))
        return next((text for text in texts if text), "")
    same = json.dumps(found) == json.dumps(wanted)  # as text, in which NaN is NaN
    return "" if same else f"{where.rstrip('.')} is {found!r:.60}, not {wanted!r:.60}"


def _best(path: Path) -> Any:
    try:
        return {key: value for key, value in timeless(_json(path)).items() if key not in ("run", "checksum")}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return f"unreadable: {error!r:.80}"


def _json(path: Path) -> dict[str, Any]:
    """Plain values of a file that may carry its own checksum."""
    if not path.exists():
        return {}
    content = dict(json.loads(path.read_text()))
    return {key: value for key, value in content.items() if key not in ("checksum", "format_version")}
