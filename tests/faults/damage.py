"""Kinds of damage to a file: each changes it in place, at a place that a generator draws."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path, random.Random], None]


def flip(path: Path, draw: random.Random) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def set_byte(path: Path, draw: random.Random) -> None:
    """One byte becomes another one."""
    content = bytearray(path.read_bytes())
    if content:
        place = draw.randrange(len(content))
        content[place] = (content[place] + draw.randrange(1, 256)) % 256
    path.write_bytes(content)


def zero_run(path: Path, draw: random.Random) -> None:
    """A run of bytes becomes zeros, as after a lost write; it begins at one that is none."""
    content = bytearray(path.read_bytes())
    places = [place for place in (draw.randrange(len(content)) for _ in range(200 if content else 0)) if content[place]]
    if places:
        stop = min(len(content), places[0] + draw.choice((1, 8, 64, 512, 4096)))
        content[places[0] : stop] = bytes(stop - places[0])
    path.write_bytes(content)


def truncate(path: Path, draw: random.Random) -> None:
    """The end is missing."""
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))] if content else b"")


def extend(path: Path, draw: random.Random) -> None:
    """Something follows the end."""
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.choice((1, 8, 1000))))


def empty(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def delete(path: Path, draw: random.Random) -> None:
    path.unlink()


def directory(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def swap(path: Path, draw: random.Random) -> None:
    """It changes places with another file of its kind, from the same tree."""
    own = path.read_bytes()
    others = [other for other in sorted(tree_of(path).rglob(f"*{path.suffix}")) if other.is_file()]
    others = [other for other in others if other.read_bytes() != own]
    if others:
        other = draw.choice([one for one in others if one.name == path.name] or others)
        theirs = other.read_bytes()
        other.write_bytes(own)
        path.write_bytes(theirs)


def tree_of(path: Path) -> Path:
    """The partition, hops, run or source that a file belongs to: the folder below the case's own."""
    return next(folder for folder in path.parents if (folder.parent / CASE_MARK).exists())


CASE_MARK = ".case"


def digit(path: Path, draw: random.Random) -> None:
    """One digit of a text becomes another one."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if chr(byte).isdecimal() and byte < 128]
    if places:
        place = draw.choice(places)
        content[place] = draw.choice([byte for byte in b"0123456789" if byte != content[place]])
    path.write_bytes(content)


def _spots(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every place of a JSON value: its container and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        _spots(value[key], found)
    return found


def _mutating(change: Callable[[Any, Any, random.Random], None], numbers: bool = False) -> Damage:
    """Damage that changes one place of a JSON file; of several lines, one line."""

    def damage(path: Path, draw: random.Random) -> None:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        chosen = draw.randrange(len(lines))
        content = json.loads(lines[chosen])
        spots = _spots(content, [])
        wanted = [spot for spot in spots if type(spot[0][spot[1]]) in (int, float)] if numbers else spots
        container, key = draw.choice(wanted or spots)
        change(container, key, draw)
        lines[chosen] = json.dumps(content, indent=None if path.suffix == ".jsonl" else 2)
        path.write_text("\n".join(lines) + "\n")

    return damage


def _drop(container: Any, key: Any, draw: random.Random) -> None:
    del container[key]


def _retype(container: Any, key: Any, draw: random.Random) -> None:
    others: tuple[Any, ...] = (None, True, "x", 1.5, [], {}, [[]], -1)
    container[key] = draw.choice([value for value in others if type(value) is not type(container[key])])


def _to(*values: Any) -> Callable[[Any, Any, random.Random], None]:
    def change(container: Any, key: Any, draw: random.Random) -> None:
        container[key] = draw.choice(values)

    return change


def nesting(path: Path, draw: random.Random) -> None:
    """JSON nested so deeply that a recursive parser gives up."""
    path.write_text('{"format_version": ' + "[" * 200_000 + "]" * 200_000 + "}")


def no_files(path: Path, draw: random.Random) -> None:
    """A manifest that lists nothing, so that there is nothing to compare."""
    content = json.loads(path.read_text())
    for key in ("files", "file_bytes"):
        if key in content:
            content[key] = {}
    path.write_text(json.dumps(content, indent=2) + "\n")


def bad_name(path: Path, draw: random.Random) -> None:
    """A manifest one of whose files has a name that is none."""
    content = json.loads(path.read_text())
    for key in ("files", "file_bytes"):
        names = content.get(key)
        if isinstance(names, dict) and names:
            bad = draw.choice(("", ".", "..", "a\0b", "/etc/passwd", "../x", "part-00000", "x" * 5000, "\ud800"))
            names[bad] = names.pop(draw.choice(sorted(names)))
    path.write_text(json.dumps(content, indent=2) + "\n")


BYTES: dict[str, Damage] = {
    "flip": flip,
    "set-byte": set_byte,
    "zero-run": zero_run,
    "truncate": truncate,
    "extend": extend,
    "empty": empty,
    "delete": delete,
    "directory": directory,
    "swap": swap,
}
TEXT: dict[str, Damage] = {"digit": digit}
JSON: dict[str, Damage] = {
    "drop-key": _mutating(_drop),
    "retype": _mutating(_retype),
    "huge": _mutating(_to(10**9, 10**20, 1e308, 2**63 - 1), numbers=True),
    "negative": _mutating(_to(-1, -(10**9)), numbers=True),
    "nan": _mutating(_to(float("nan"), float("inf")), numbers=True),
    "nesting": nesting,
}
MANIFEST: dict[str, Damage] = {"no-files": no_files, "bad-name": bad_name}
KINDS = {**BYTES, **TEXT, **JSON, **MANIFEST}
OTHER = "other"  # the file of the same name of another partition or run, which only the material knows


def kinds_for(path: Path) -> list[str]:
    """The kinds of damage that a file can have."""
    kinds = [*BYTES, OTHER]
    if path.suffix in (".json", ".jsonl", ".toml", ".txt", ".csv"):
        kinds += TEXT
    if path.suffix in (".json", ".jsonl"):
        kinds += JSON
    if path.name == "manifest.json":
        kinds += MANIFEST
    return kinds


def apply(kind: str, path: Path, draw: random.Random, other: Path | None = None) -> None:
    """Damage a file; `other` is what replaces it for the kind of that name."""
    if kind == OTHER:
        if other is not None and other.is_file():
            shutil.copyfile(other, path)
    else:
        KINDS[kind](path, draw)
