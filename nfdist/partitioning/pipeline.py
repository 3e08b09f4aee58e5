"""From a source to a partition on disk: read, order the edges by target, divide, write."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nfdist import log
from nfdist.errors import PartitionError
from nfdist.files import existing_ancestor
from nfdist.memory import MemoryWatch, format_bytes, host_bytes, peak_resident_bytes, private_bytes
from nfdist.partitioning.assign import assign, check_parts, read_assignment
from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.planning import choose_method, least_bytes, metis_bytes, plan
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import SourceCounts, counts, load
from nfdist.partitioning.sources.formats.source_format import Located
from nfdist.partitioning.sources.locate import locate
from nfdist.partitioning.sources.raw_graph import NO_EDGES
from nfdist.partitioning.streaming import least_memory
from nfdist.partitioning.workspace import Workspace
from nfdist.remote import fetched
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.cache import sent
from nfdist.store.manifest import Manifest
from nfdist.store.source_graph import SourceGraph
from nfdist.store.writing import write_partition

_ASIDE_CHARACTERS = 60  # what a name gains while its directory is written


@dataclass(frozen=True)
class Outcome:
    """What was written, and the seconds of every stage."""

    manifest: Manifest
    seconds: dict[str, float] = field(default_factory=dict)
    peak_private_bytes: int = 0

    @property
    def peak_memory_bytes(self) -> int:
        """The largest resident set of this process so far."""
        return peak_resident_bytes()


def partition(recipe: Recipe) -> Outcome:
    """Write the partition that a recipe describes; the directory must not exist yet.

    Either end may be a URI: a source is fetched first, and what is to be elsewhere is sent there in the end.
    """
    with sent(recipe.out) as out, fetched(recipe.source, PartitionError) as source:
        return _partition(recipe, source, out)


def _partition(recipe: Recipe, source: str, out: Path) -> Outcome:
    """From a source on this host to a directory on this host; the recipe is recorded as the user gave it."""
    located = locate(source)  # a source that is not there should not look like one that was begun
    _check_out(out, located)
    _check_memory(recipe, located, out)
    if recipe.assignment and not _is_file(recipe.assignment):
        raise PartitionError(f"assignment {recipe.assignment:.200} is not a file: give one part number a line")
    seconds: dict[str, float] = {}
    with log.progress(4, f"partition {recipe.source}") as progress, MemoryWatch() as watch:
        told = _Told(progress)

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            started = time.perf_counter()
            told.begin(name)
            yield
            seconds[name] = time.perf_counter() - started
            progress.advance(note=f"{name} {seconds[name]:.1f} s")

        with Workspace.within(recipe.memory_bytes, out, told) as workspace:
            with stage("read"):
                graph = load(source, recipe.options, workspace)
                if not recipe.assignment:
                    check_parts(graph, recipe.parts)  # before anything is told of a graph that is refused
                _check_room(recipe, graph, out)
            for note in (*_shown_columns(graph), *graph.notes):
                log.notice(note)
            with stage("order edges"):
                in_edges = order_edges(graph, recipe.directed, workspace)
            with stage("divide"):
                recipe = _with_method(recipe, in_edges, workspace)
                assignment = _divide(recipe, graph, in_edges, workspace, out)
            graph = replace(graph, sources=NO_EDGES, targets=NO_EDGES, weights=None)  # they are ordered now
            workspace.engine.close()  # its memory and disk are needed no more
            with stage("write"):
                manifest = _write(recipe, graph, in_edges, assignment, out, workspace)
    return Outcome(manifest, seconds, watch.peak_private_bytes)


def _write(
    recipe: Recipe,
    graph: SourceGraph,
    in_edges: Adjacency,
    assignment: NDArray[np.int64],
    out: Path,
    workspace: Workspace,
) -> Manifest:
    written = itertools.accumulate(np.bincount(assignment, minlength=recipe.parts).tolist())
    return write_partition(
        out,
        graph,
        in_edges.indptr.numpy(),
        in_edges.sources.numpy(),
        assignment,
        recipe.parts,
        recipe.as_dict(),
        recipe.directed,
        progress=lambda rows: workspace.told(next(written), graph.num_nodes),
        edges_at_once=workspace.rows_at_once,
        weights=None if in_edges.weights is None else in_edges.weights.numpy(),
        scratch=workspace.scratch,
    )


def _with_method(recipe: Recipe, in_edges: Adjacency, workspace: Workspace) -> Recipe:
    """The recipe with a method: METIS, which cuts the fewest edges, where its estimate fits into memory."""
    if recipe.assignment:
        return recipe
    stored = in_edges.num_edges * (1 + recipe.directed)  # METIS takes both directions of every edge
    held, limit = private_bytes(), workspace.memory_bytes or host_bytes()
    needed, streamed = held + metis_bytes(in_edges.num_nodes, stored), held + least_memory(in_edges.num_nodes)
    of = "--memory" if workspace.memory_bytes else "this machine's memory"
    told = f"METIS needs about {needed / 2**30:,.1f} GiB of the {limit / 2**30:,.1f} GiB of {of}"
    method = choose_method(recipe, needed, streamed, limit)
    if not recipe.method:
        log.notice(f"the nodes are divided by --method {method}: {told}")
    elif method == "metis" and workspace.memory_bytes and needed > limit and recipe.parts > 1:
        raise PartitionError(f"{told}: give more, or choose --method stream or random")
    return replace(recipe, method=method)


def _divide(
    recipe: Recipe, graph: SourceGraph, in_edges: Adjacency, workspace: Workspace, out: Path
) -> NDArray[np.int64]:
    """The part of every row, as a file says or by the method of the recipe."""
    if recipe.assignment:
        return read_assignment(Path(recipe.assignment), graph, recipe.parts)
    both_ways = order_edges(graph, False, workspace) if recipe.directed and recipe.method != "random" else in_edges
    room = recipe.memory_bytes and recipe.memory_bytes // 2  # of the limit alone: what is held differs from run to run
    beside = existing_ancestor(out) / out.name  # on the disk of the partition
    return assign(graph, both_ways, recipe.parts, recipe.method, recipe.options.seed, True, room, beside)


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


def _check_memory(recipe: Recipe, located: Located, out: Path) -> None:
    """Refuse a made graph that this machine cannot hold; files are limited by their own size."""
    if "scale" not in located.format.options:
        return
    planned = plan(recipe, counts(recipe.source, recipe.options))
    memory = recipe.memory_bytes or host_bytes()
    for needed, available, what in (
        (planned.peak_bytes, memory, "--memory allows" if recipe.memory else "this machine has"),
        (planned.disk_bytes + planned.scratch_bytes, _free_bytes(out), "its disk has free"),
    ):
        if needed > available:
            raise PartitionError(
                f"{recipe.source} at scale {recipe.options.scale:g} needs about {needed / 2**30:,.0f} GiB, and {what} "
                f"{available / 2**30:.1f}: choose a smaller --scale"
            )


def _check_room(recipe: Recipe, graph: SourceGraph, out: Path) -> None:
    """Refuse a graph that was read, and cannot be ordered and written."""
    found = SourceCounts.of_graph(graph)
    least, limit = least_bytes(graph.num_nodes), recipe.memory_bytes
    if limit is not None and least > limit:
        text = f"--memory {recipe.memory} is too little for {graph.num_nodes:,} nodes: give at least "
        raise PartitionError(text + format_bytes(least))
    planned = plan(recipe, found)
    needed, free = planned.disk_bytes + planned.stages[1].scratch_bytes, _free_bytes(out)
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
