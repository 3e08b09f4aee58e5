"""The small files of a run, each with its own checksum since format version 2: no byte can change unnoticed.

Each also names its run by an id that was drawn for it, so that none can stand in for that of another run. Runs of
version 1 had neither, and their id is empty. Which version a file has shows in its content, so that none can pass for
an older one. In version 3 the configuration has sections inside sections (nfdist.runs.migration reads all).
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfdist import files, settings
from nfdist.config import Config
from nfdist.errors import CheckpointError, ConfigError
from nfdist.runs.migration import parse_config

FORMAT_VERSION = 3
OLDER_VERSIONS = (2,)  # with a checksum
SEAL = re.compile(r"^# run (\w*), checksum of the lines above: \w+\n\Z", re.MULTILINE)


def write_record(path: Path, run_id: str, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum; NaN and infinities become null."""
    with files.disk_errors_as(CheckpointError, path):
        files.replace_bytes(path, files.dump_checked(FORMAT_VERSION, {"run": run_id, **finite(content)}))


def read_record(path: Path, run_id: str | None, cure: str) -> dict[str, Any] | None:
    """What `write_record` was given, None where there is no file; without a `run_id` of any run, and with its "run"."""
    written = read(path)
    if written is None:
        return None
    if run_id == "":
        parsed = parse_object(path, written, cure)
        if not {"format_version", "checksum"} & parsed.keys():
            return parsed
    try:
        content = files.load_checked(written, FORMAT_VERSION, cure, *OLDER_VERSIONS)
    except ValueError as error:
        raise CheckpointError(f"{path} {error}") from None
    if run_id is not None and content.pop("run", "") != run_id:
        raise CheckpointError(f"{path} is that of another run: {cure}")
    return content


def parse_object(path: Path, written: bytes, cure: str) -> dict[str, Any]:
    """The JSON object that a file holds."""
    try:
        parsed = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): {cure}") from None
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is not a JSON object: {cure}")
    return parsed


def write_config(path: Path, run_id: str, config: Config) -> None:
    """Write a configuration, and under it its run and its checksum."""
    with files.disk_errors_as(CheckpointError, path):
        files.replace_file(path, sealed(settings.dump(config), run_id))


def read_config(path: Path, run_id: str | None) -> Config:
    """The configuration that was written, of any run without a `run_id`."""
    try:
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be read ({reason}): restore it") from None
    seal = SEAL.search(text)
    cure = "restore it (a setting is changed by nfdist train --resume)"
    if sealed(text[: seal.start()], seal[1]) != text if seal else run_id != "":
        raise CheckpointError(f"{path} was altered since it was written: {cure}")
    if seal and run_id not in (seal[1], "", None):
        raise CheckpointError(f"{path} is that of another run: {cure}")
    try:
        return parse_config(text, str(path))
    except ConfigError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from None


def sealed(text: str, run_id: str) -> str:
    """A text with its run and its checksum in one more line."""
    return f"{text}# run {run_id}, checksum of the lines above: {files.checksum_of((text + run_id).encode())}\n"


def read(path: Path) -> bytes | None:
    """The content of a file, or None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def finite(value: Any) -> Any:
    """The value with null for the numbers that JSON has no words for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
