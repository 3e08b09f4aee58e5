"""From a source to a partition on disk: read, order the edges by target, divide, write."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from nfdist import log
from nfdist.errors import PartitionError
from nfdist.memory import peak_resident_bytes
from nfdist.partitioning.assign import assign, check_parts, read_assignment
from nfdist.partitioning.edge_weights import edge_weights
from nfdist.partitioning.planning import plan
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.sources import counts, load
from nfdist.partitioning.sources.formats.source_format import Located
from nfdist.partitioning.sources.locate import locate
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
    _check_memory(recipe, located)
    if recipe.assignment and not _is_file(recipe.assignment):
        raise PartitionError(f"assignment {recipe.assignment:.200} is not a file: give one part number a line")
    seconds: dict[str, float] = {}
    with log.progress(4, f"partition {recipe.source}") as progress:

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            started = time.perf_counter()
            yield
            seconds[name] = time.perf_counter() - started
            progress.advance(note=f"{name} {seconds[name]:.1f} s")

        with stage("read"):
            graph = load(source, recipe.options)
            if not recipe.assignment:
                check_parts(graph, recipe.parts)  # before anything is told of a graph that is refused
        for note in (*_shown_columns(graph), *graph.notes):
            log.notice(note)
        with stage("order edges"):
            in_edges = order_edges(graph, recipe.directed)
        with stage("divide"):
            if recipe.assignment:
                assignment = read_assignment(Path(recipe.assignment), graph, recipe.parts)
            else:
                seed = recipe.options.seed
                assignment = assign(graph, in_edges, recipe.parts, recipe.method, seed, not recipe.directed)
        with stage("write"):
            indptr, sources = in_edges.indptr.numpy(), in_edges.sources.numpy()
            weights = None if in_edges.weights is None else in_edges.weights.numpy()
            how = recipe.parts, recipe.as_dict(), recipe.directed
            manifest = write_partition(out, graph, indptr, sources, assignment, *how, weights=weights)
    return Outcome(manifest, seconds)


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


def _check_memory(recipe: Recipe, located: Located) -> None:
    """Refuse a made graph that this machine cannot hold; files are limited by their own size."""
    if "scale" in located.format.options:
        needed = plan(recipe, counts(recipe.source, recipe.options)).peak_bytes
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            raise PartitionError(
                f"{recipe.source} at scale {recipe.options.scale:g} needs about {needed / 2**30:,.0f} GiB, and this "
                f"machine has {memory / 2**30:.1f}: choose a smaller --scale"
            )


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # a name too long for one
        return False


def order_edges(graph: SourceGraph, directed: bool) -> Adjacency:
    """The in-edges of every row: as given if directed, otherwise in both directions and each once; with any weights."""
    ordered = _ordered_edges(graph, directed)
    return ordered if graph.weights is None else replace(ordered, weights=edge_weights(graph, ordered, directed))


def _ordered_edges(graph: SourceGraph, directed: bool) -> Adjacency:
    if not directed:
        # What Arrow read is not writable, which torch's tensors must be.
        sources, targets = (
            torch.from_numpy(np.require(ends, requirements="W")) for ends in (graph.sources, graph.targets)
        )
        return Adjacency.from_edges(sources, targets, graph.num_nodes).symmetrized()
    order = np.lexsort((graph.sources, graph.targets))
    indptr = np.concatenate([[0], np.bincount(graph.targets, minlength=graph.num_nodes).cumsum()])
    index_type = np.int32 if max(len(order), graph.num_nodes) < 2**31 else np.int64
    ordered = graph.sources[order].astype(index_type, copy=False)
    return Adjacency(torch.from_numpy(indptr.astype(index_type)), torch.from_numpy(ordered))
