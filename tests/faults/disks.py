"""Cases of disks: full, read-only, or with a limit on the size of a file; each is told in one line."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.faults import answers
from tests.faults.commands import COMMANDS, Command, Place, place_for
from tests.faults.damaged import check_refused
from tests.faults.material import Material
from tests.faults.rule import Problem, Skipped, check_ending, left_aside
from tests.faults.serving import Server
from tests.faults.signals import STOPPED, check_again, check_right, known_of

FAMILY = "disk"
KINDS = ("full", "file-size", "read-only")
ROOM_BYTES = 64 << 20
READ_ONLY = {"evaluate": "run", "score": "run", "predict": "run", "resume": "interrupted", "train": "graph"}


def names(material: Material, server: Server, draw: random.Random, subjects: tuple[str, ...]) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        for kind in KINDS:
            for name in (name for name in STOPPED if kind != "read-only" or name in READ_ONLY):
                yield f"{FAMILY}:{kind}:{name}:{draw.choice(('tables', 'wide'))}:{number}"


def run(words: list[str], folder: Path, draw: random.Random, material: Material, server: Server) -> list[Problem]:
    """Run a command on a disk that has no room for it, make room, and run it again."""
    kind, name, subject, _ = words
    known_of(subject, name, material, server)  # made elsewhere, while there is room
    with ExitStack() as stack:
        if kind == "full":
            folder.mkdir(parents=True)
            _mount(stack, folder, "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs")
            folder = folder / "disk"
        place = place_for(folder, subject, name if name in COMMANDS else "train", material, server)
        runner = _on_read_only if kind == "read-only" else _on_full
        return runner(stack, place, kind, name, draw)


def _on_full(stack: ExitStack, place: Place, kind: str, name: str, draw: random.Random) -> list[Problem]:
    command, known = STOPPED[name], known_of(place.subject, name, place.material, place.server)
    before = command.outputs(place)
    # From hardly any to almost enough; where it is enough, the answer is right.
    room = int(2 ** draw.uniform(12, 17 if place.subject == "tables" else 21))
    if kind == "full":
        used = sum(path.lstat().st_size // 4096 + 1 for path in place.folder.rglob("*"))
        _mount(None, place.folder.parent, "-o", f"remount,size={(used + 4) * 4096 + room}")
    outcome = place.server.run(command.words(place), place.folder, file_bytes=room if kind == "file-size" else 0)
    problems = check_ending(outcome, known.outcome.peak_bytes) + left_aside(place.folder)
    if kind == "full":
        _mount(None, place.folder.parent, "-o", f"remount,size={ROOM_BYTES}")
    if problems:
        return problems
    if outcome.code == 0:
        return check_right(place, command, known, outcome)
    return check_refused(place, command, known, before) or check_again(place, name, command, known)


def _on_read_only(stack: ExitStack, place: Place, kind: str, name: str, draw: random.Random) -> list[Problem]:
    command, known = STOPPED[name], known_of(place.subject, name, place.material, place.server)
    tree = READ_ONLY[name]
    frozen = place.copy(tree)
    if tree == "graph":
        shutil.rmtree(place.folder / "graph.hops")  # which then cannot be kept
        kept = place.folder
        frozen = kept / "inside"
        frozen.mkdir()
        shutil.move(kept / "graph", frozen / "graph")
        place.copied.discard("graph")
        return _train_on_frozen(stack, place, frozen, command, name)
    before = answers.content_of(frozen)
    _freeze(stack, frozen)
    outcome = place.server.run(command.words(place), place.folder)
    problems = check_ending(outcome, known.outcome.peak_bytes)
    if answers.content_of(frozen) != before:
        problems.append(Problem("left", f"{tree} changed on a read-only disk"))
    if outcome.code == 0 and not problems:
        problems += check_right(place, command, known, outcome)
    return problems + left_aside(place.folder)


def _train_on_frozen(stack: ExitStack, place: Place, frozen: Path, command: Command, name: str) -> list[Problem]:
    """Train on a partition beside which nothing can be kept: that is slower, and right all the same."""
    known = known_of(place.subject, name, place.material, place.server)
    _freeze(stack, frozen)
    words = [f"data.partition={frozen}/graph" if word.startswith("data.") else word for word in command.words(place)]
    outcome = place.server.run(words, place.folder)
    problems = check_ending(outcome, known.outcome.peak_bytes, (0,))
    return problems or check_right(place, command, known, outcome) + left_aside(place.folder)


def _freeze(stack: ExitStack, folder: Path) -> None:
    _mount(stack, folder, "--bind", str(folder))
    _mount(None, folder, "-o", "remount,bind,ro")


def _mount(stack: ExitStack | None, folder: Path, *words: str) -> None:
    """Mount until the stack ends; None changes a mount that is there."""
    done = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"nothing can be mounted here: {done.stderr.strip()}")
    if stack is not None:
        stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=False)


def sample(material: Material, server: Server, draw: random.Random, count: int) -> list[str]:
    return [f"{FAMILY}:file-size:{name}:tables:{number}" for number, name in enumerate(("predict", "evaluate"))]
