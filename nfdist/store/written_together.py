"""A directory that several ranks write, on one host or on hosts without a common disk: whole everywhere, or nowhere."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nfdist import files
from nfdist.collectives import fail_together, gather_text, together
from nfdist.errors import NfdistError, WorldError
from nfdist.world import World


@contextmanager
def written_together(
    world: World, directory: Path, needed_bytes: int, noun: str, refusal: type[NfdistError], own: Sequence[str] = ()
) -> Iterator[tuple[Path, bool]]:
    """`files.written_aside` by all ranks; whether this one leads those of its disk, and writes what all of them need.

    `own` are the folders inside that this rank makes. Every rank must enter and leave.
    """
    directory = directory.absolute()
    if world.size == 1:
        with files.written_aside(directory, needed_bytes, noun, refusal) as aside:
            yield aside, True
        return
    leader = _leader(world, directory, refusal)
    leads = leader == world.rank
    with ExitStack() as stack:
        written = files.written_aside(directory, needed_bytes, noun, refusal)
        aside = together(world, lambda: stack.enter_context(written) if leads else directory, refusal)
        name = gather_text(world, aside.name)[leader]
        if not leads:
            aside = directory.with_name(name)
            need = f"the {noun} needs about {needed_bytes / 2**20:,.1f} MiB; "
            stack.enter_context(files.disk_errors_as(refusal, directory, need))
            stack.enter_context(_joined(world, aside, directory, own))
        yield aside, leads
        fail_together(world, None)  # before anything has its name, all must be there
        closing = stack.pop_all()
    placed: list[Path] = []

    def put_in_place() -> None:
        closing.close()
        if leads:
            placed.append(directory)

    try:
        together(world, put_in_place, refusal)
    except BaseException:
        for path in placed:
            files.remove(path)
        raise


def _leader(world: World, directory: Path, refusal: type[NfdistError]) -> int:
    """The first of the ranks for which this directory is the same one."""
    nearest = files.existing_ancestor(directory)
    with ExitStack() as stack:

        def mark() -> Path:
            with files.disk_errors_as(refusal, directory):
                return stack.enter_context(files.folder_aside(nearest / directory.name))

        marks = gather_text(world, together(world, mark, refusal).name)
        seen = [rank for rank, name in enumerate(marks) if (nearest / name).exists()]
        fail_together(world, None)  # no mark goes before all were looked for
    return seen[0]


@contextmanager
def _joined(world: World, aside: Path, directory: Path, own: Sequence[str]) -> Iterator[None]:
    """Writing in the folder of another rank: what this one has made there goes if it fails."""
    try:
        yield
    except BaseException as error:
        is_gone = not aside.exists()  # with the rank whose folder it is
        for name in own:
            shutil.rmtree(aside / name, ignore_errors=True)
        with suppress(OSError):
            files.remove_stale(directory.parent, directory.name)  # as it is if the other one was killed
            aside.rmdir()
        if is_gone and isinstance(error, OSError):
            raise WorldError(f"{world.watch.phase}: {world.watch.explain()}") from error
        raise
