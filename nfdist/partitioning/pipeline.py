"""From a source to a partition on disk: read, order the edges by target, divide, write."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist import log
from nfdist.collectives import largest, raised_on_all_ranks, together, total
from nfdist.errors import PartitionError
from nfdist.files import existing_ancestor
from nfdist.memory import MemoryWatch, format_bytes, host_bytes, peak_resident_bytes
from nfdist.partitioning.assign import check_parts
from nfdist.partitioning.dividing import divide
from nfdist.partitioning.planning import least_bytes, plan
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts, counts, load
from nfdist.partitioning.sources.formats.source_format import Located
from nfdist.partitioning.sources.locate import locate
from nfdist.partitioning.sources.raw_graph import NO_EDGES
from nfdist.partitioning.workspace import ALONE, Workspace
from nfdist.remote import fetched, refuse_uri, without_file_scheme
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.cache import sent
from nfdist.store.manifest import Manifest
from nfdist.store.source_graph import SourceGraph
from nfdist.store.writing import part_shares, write_partition
from nfdist.world import World

_ASIDE_CHARACTERS = 60  # what a name gains while its directory is written


@dataclass(frozen=True)
class Outcome:
    """What was written, the seconds of every stage, what the rank that held the most held, and what all ranks sent."""

    manifest: Manifest
    seconds: dict[str, float] = field(default_factory=dict)
    peak_private_bytes: int = 0
    peak_memory_bytes: int = 0
    sent_bytes: int = 0


def partition(recipe: Recipe, world: World = ALONE, local_size: int = 1) -> Outcome:
    """Write the partition that a recipe describes; the directory must not exist yet.

    Either end may be a URI: a source is fetched first, and what is to be elsewhere is sent there in the end. Of a world
    of several ranks, `local_size` of them on a host, each reads a share and writes parts of its own, of which every
    host then has those of its ranks. Every rank must call this with the same recipe.
    """
    with ExitStack() as stack:
        if world.size > 1:
            refuse_uri("--out", without_file_scheme(recipe.out), "workers write to folders of their hosts: name one")
        out = stack.enter_context(sent(recipe.out))
        source = together(world, lambda: stack.enter_context(fetched(recipe.source, PartitionError)), PartitionError)
        return _partition(recipe, source, out, world, local_size)


def _partition(recipe: Recipe, source: str, out: Path, world: World, local_size: int) -> Outcome:
    """From a source on this host to a directory on this host; the recipe is recorded as the user gave it."""
    together(world, lambda: _check_before(recipe, source, out, local_size / world.size), PartitionError)
    seconds: dict[str, float] = {}
    title = f"partition {recipe.source}"
    shown = log.progress(4, title) if world.rank == 0 else nullcontext(log.Silent())
    with shown as progress, MemoryWatch() as watch, ExitStack() as stack:
        told = _Told(progress)

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            started = time.perf_counter()
            told.begin(name)
            with world.watch.doing(name):
                yield
            seconds[name] = time.perf_counter() - started
            progress.advance(note=f"{name} {seconds[name]:.1f} s")

        limits = Workspace.within(recipe.memory_bytes, out, told, world, local_size)
        workspace = together(world, lambda: stack.enter_context(limits), PartitionError)
        with stage("read"), raised_on_all_ranks():
            graph = load(source, recipe.options, workspace)
            if not recipe.assignment:
                check_parts(graph, recipe.parts)  # before anything is told of a graph that is refused
        together(world, lambda: _check_room(recipe, graph, out, local_size), PartitionError)
        for note in (*_shown_columns(graph), *graph.notes) if world.rank == 0 else ():
            log.notice(note)
        recipe, assignment, in_edges = divide(recipe, graph, workspace, stage, existing_ancestor(out) / out.name)
        graph = replace(graph, sources=NO_EDGES, targets=NO_EDGES, weights=None)  # they are ordered now
        workspace.engine.close()  # its memory and disk are needed no more
        with stage("write"):
            manifest = _write(recipe, graph, in_edges, assignment, out, workspace)
    held = torch.tensor([watch.peak_private_bytes, peak_resident_bytes()])
    private, resident = largest(world, held, "memory").tolist()
    sent_bytes = int(total(world, torch.tensor([world.watch.sent_bytes]), "traffic"))
    return Outcome(manifest, seconds, private, resident, sent_bytes)


def _check_before(recipe: Recipe, source: str, out: Path, share: float) -> None:
    """Refuse what is known to fail before anything is read; `share` of the graph is for this host."""
    located = locate(source)  # a source that is not there should not look like one that was begun
    _check_out(out, located)
    _check_memory(recipe, located, out, share)
    if recipe.assignment and not _is_file(recipe.assignment):
        raise PartitionError(f"assignment {recipe.assignment:.200} is not a file: give one part number a line")


def _write(
    recipe: Recipe,
    graph: SourceGraph,
    in_edges: Adjacency,
    assignment: NDArray[np.int64],
    out: Path,
    workspace: Workspace,
) -> Manifest:
    own = part_shares(workspace.world, recipe.parts).own
    written = list(itertools.accumulate(np.bincount(assignment, minlength=recipe.parts)[own].tolist()))
    done = iter(written)
    return write_partition(
        out,
        graph,
        in_edges.indptr.numpy(),
        in_edges.sources.numpy(),
        assignment,
        recipe.parts,
        recipe.as_dict(),
        recipe.directed,
        progress=lambda rows: workspace.told(next(done), written[-1]),
        edges_at_once=workspace.rows_at_once,
        weights=None if in_edges.weights is None else in_edges.weights.numpy(),
        scratch=workspace.scratch,
        world=workspace.world,
    )


class _Told:
    """Tells by the notes of a progress how far the stage at hand has come."""

    def __init__(self, progress: log.Progress) -> None:
        self._progress = progress
        self._name, self._started = "", 0.0

    def begin(self, name: str) -> None:
        self._name, self._started = name, time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        left = (time.perf_counter() - self._started) * max(total - done, 0) / max(done, 1)
        self._progress.advance(0, f"{self._name} {100 * done // max(total, 1)}%, {left:,.0f} s left")


def _shown_columns(graph: SourceGraph) -> list[str]:
    """What becomes of the columns of a table; other sources have none that are named."""
    return graph.schema.lines() if graph.schema and graph.schema.is_named else []


def _check_out(out: Path, located: Located) -> None:
    """Refuse a directory that could not be written in the end, or would become a part of its own source."""
    try:
        if os.path.lexists(out) or out.name in ("", ".."):
            raise PartitionError(f"{out} exists: choose another --out or remove it first")
        nearest = next(folder for folder in out.absolute().parents if os.path.lexists(folder))
        if not nearest.is_dir():
            raise PartitionError(f"{out} cannot be made, {nearest} is not a folder: choose another --out")
        tempfile.TemporaryFile(dir=nearest).close()
        out.with_name(out.name + _ASIDE_CHARACTERS * ".").exists()
    except OSError as error:
        raise PartitionError(f"{out} cannot be written: {error.strerror or error}: choose another --out") from None
    folder = located.path
    if folder is not None and folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
        raise PartitionError(f"{out} is inside its own source {folder}: choose an --out elsewhere")


def _check_memory(recipe: Recipe, located: Located, out: Path, share: float) -> None:
    """Refuse a made graph that this machine cannot hold; files are limited by their own size."""
    if "scale" not in located.format.options:
        return
    planned = plan(recipe, counts(recipe.source, recipe.options))
    memory = recipe.memory_bytes or host_bytes()
    for needed, available, what in (
        (planned.peak_bytes, memory, "--memory allows" if recipe.memory else "this machine has"),
        ((planned.disk_bytes + planned.scratch_bytes) * share, _free_bytes(out), "its disk has free"),
    ):
        if needed > available:
            raise PartitionError(
                f"{recipe.source} at scale {recipe.options.scale:g} needs about {needed / 2**30:,.0f} GiB, and {what} "
                f"{available / 2**30:.1f}: choose a smaller --scale"
            )


def _check_room(recipe: Recipe, graph: SourceGraph, out: Path, local_size: int) -> None:
    """Refuse a graph that was read, and cannot be ordered and written; `local_size` ranks do so on this disk."""
    found = replace(SourceCounts.of_graph(graph), nodes=graph.features.shape[0])  # of a share, if this is one
    least, limit = least_bytes(graph.num_nodes), recipe.memory_bytes
    if limit is not None and least > limit:
        text = f"--memory {recipe.memory} is too little for {graph.num_nodes:,} nodes: give at least "
        raise PartitionError(text + format_bytes(least))
    planned = plan(recipe, found)
    needed, free = local_size * (planned.disk_bytes + planned.stages[1].scratch_bytes), _free_bytes(out)
    if needed > free:
        raise PartitionError(
            f"the disk that holds {out.parent} has {free / 2**30:,.1f} GiB free, and ordering and writing this graph "
            f"takes about {needed / 2**30:,.1f}: free some space or choose another --out"
        )


def _free_bytes(out: Path) -> int:
    return shutil.disk_usage(existing_ancestor(out)).free


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # a name too long for one
        return False
