"""Edges in order and nodes in parts: by one process, or by ranks that each get the in-edges of their own parts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nfdist import log
from nfdist.collectives import broadcast, broadcast_text, together, total
from nfdist.errors import PartitionError
from nfdist.memory import host_bytes, private_bytes
from nfdist.partitioning.assign import assign, read_assignment
from nfdist.partitioning.edge_exchange import move_rows
from nfdist.partitioning.ordering import order_edges
from nfdist.partitioning.planning import choose_method, metis_bytes
from nfdist.partitioning.recipe import Recipe
from nfdist.partitioning.streaming import least_memory
from nfdist.partitioning.workspace import Workspace
from nfdist.sparse.adjacency import Adjacency
from nfdist.store.row_shares import RowShares
from nfdist.store.source_graph import SourceGraph
from nfdist.store.writing import part_shares

StageOf = Callable[[str], AbstractContextManager[None]]
Divided = tuple[Recipe, NDArray[np.int64], Adjacency]


def divide(recipe: Recipe, graph: SourceGraph, workspace: Workspace, stage: StageOf, beside: Path) -> Divided:
    """The recipe with its method, the part of every row, and the in-edges of the rows that this process writes.

    Files that METIS needs lie beside `beside` meanwhile. Every rank must call this.
    """
    if workspace.world.size > 1:
        return _divide_among_ranks(recipe, graph, workspace, stage, beside)
    with stage("order edges"):
        in_edges = order_edges(graph, recipe.directed, workspace)
    with stage("divide"):
        recipe = _with_method(recipe, graph.num_nodes, in_edges.num_edges * (1 + recipe.directed), workspace)
        if recipe.directed and not recipe.assignment and recipe.method != "random":
            return recipe, _assigned(recipe, graph, order_edges(graph, False, workspace), beside), in_edges
        return recipe, _assigned(recipe, graph, in_edges, beside), in_edges


def _divide_among_ranks(
    recipe: Recipe, graph: SourceGraph, workspace: Workspace, stage: StageOf, beside: Path
) -> Divided:
    """The same by several ranks: what needs the edges to divide the nodes has them on rank 0 for as long as that takes.

    Without `assignment` and but for random parts, every rank orders the edges of as many rows as the others; rank 0
    gets them all in order, and then every rank those of its parts.
    """
    world, num_nodes = workspace.world, graph.num_nodes
    if recipe.assignment or recipe.method == "random":
        with stage("divide"):
            no_edges = Adjacency(torch.zeros(num_nodes + 1, dtype=torch.int32), torch.empty(0, dtype=torch.int32))
            parts = together(world, lambda: _assigned(recipe, graph, no_edges, beside), PartitionError)
        with stage("order edges"):
            return recipe, parts, _order_for_parts(recipe, graph, parts, workspace)
    rows = RowShares.equal(world, num_nodes)
    with stage("order edges"):
        both_ways = order_edges(graph, False, workspace, rows.owners)
    with stage("divide"):
        listed, ordered = total(world, torch.tensor([len(graph.sources), both_ways.num_edges]), "edges").tolist()
        stored = 2 * listed if recipe.directed else ordered  # METIS takes both directions of every edge
        chosen = together(world, lambda: _chosen_method(recipe, num_nodes, stored, workspace), PartitionError)
        recipe = replace(recipe, method=broadcast_text(world, chosen, 0))
        parts = _assigned_by_first_rank(recipe, graph, both_ways, rows, workspace, beside)
        if recipe.directed:
            return recipe, parts, _order_for_parts(recipe, graph, parts, workspace)
        owners = part_shares(world, recipe.parts).owners(parts)
        return recipe, parts, move_rows(both_ways, rows, owners, workspace.rows_at_once, workspace.scratch)


def _order_for_parts(recipe: Recipe, graph: SourceGraph, parts: NDArray[np.int64], workspace: Workspace) -> Adjacency:
    """The in-edges of the rows of this rank's parts."""
    shares = part_shares(workspace.world, recipe.parts)
    return order_edges(graph, recipe.directed, workspace, lambda rows: shares.owners(parts[rows]))


def _assigned_by_first_rank(
    recipe: Recipe, graph: SourceGraph, both_ways: Adjacency, rows: RowShares, workspace: Workspace, beside: Path
) -> NDArray[np.int64]:
    """The part of every row, from all edges on rank 0."""
    world = workspace.world
    to_first = np.zeros(graph.num_nodes, np.int8)
    if recipe.method == "random" or recipe.parts == 1:  # which asks no edges
        whole = both_ways
    else:
        whole = move_rows(both_ways, rows, to_first, workspace.rows_at_once, workspace.scratch)
    nothing = np.empty(graph.num_nodes, np.int64)

    def assigned() -> NDArray[np.int64]:
        return _assigned(recipe, graph, whole, beside) if world.rank == 0 else nothing

    found = together(world, assigned, PartitionError)
    narrow = torch.from_numpy(found.astype(np.int32))
    return broadcast(world, narrow, 0, "parts").numpy().astype(np.int64)


def _chosen_method(recipe: Recipe, num_nodes: int, stored_edges: int, workspace: Workspace) -> str:
    """What rank 0 chooses, which divides the nodes."""
    return "" if workspace.world.rank else _with_method(recipe, num_nodes, stored_edges, workspace).method


def _with_method(recipe: Recipe, num_nodes: int, stored_edges: int, workspace: Workspace) -> Recipe:
    """The recipe with a method: METIS, which cuts the fewest edges, where its estimate fits into memory."""
    if recipe.assignment:
        return recipe
    held, limit = private_bytes(), workspace.memory_bytes or host_bytes()
    needed, streamed = held + metis_bytes(num_nodes, stored_edges), held + least_memory(num_nodes)
    of = "--memory" if workspace.memory_bytes else "this machine's memory"
    told = f"METIS needs about {needed / 2**30:,.1f} GiB of the {limit / 2**30:,.1f} GiB of {of}"
    method = choose_method(recipe, needed, streamed, limit)
    if not recipe.method:
        log.notice(f"the nodes are divided by --method {method}: {told}")
    elif method == "metis" and workspace.memory_bytes and needed > limit and recipe.parts > 1:
        raise PartitionError(f"{told}: give more, or choose --method stream or random")
    return replace(recipe, method=method)


def _assigned(recipe: Recipe, graph: SourceGraph, both_ways: Adjacency, beside: Path) -> NDArray[np.int64]:
    """The part of every row, as a file says or by the method of the recipe."""
    if recipe.assignment:
        return read_assignment(Path(recipe.assignment), graph, recipe.parts)
    room = recipe.memory_bytes and recipe.memory_bytes // 2  # of the limit alone: what is held differs from run to run
    return assign(graph, both_ways, recipe.parts, recipe.method, recipe.options.seed, True, room, beside)
