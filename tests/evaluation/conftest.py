"""All that evaluation writes about one graph, by worlds of 1, 2 and 3 ranks, from partitions of 1, 2 and 7 parts."""

from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as distributed

from nfdist.evaluation.attention_export import EdgeWeights, TopNeighbors
from nfdist.evaluation.background import Background
from nfdist.evaluation.full import FullGraph
from nfdist.evaluation.outputs import write_embeddings, write_predictions
from nfdist.evaluation.states import writing_states
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import write_graph
from tests.evaluation.trained import CHOSEN, WRITTEN, trained_model
from tests.worlds import run_world

ROWS_AT_ONCE = 23
SIZES, PARTS, WRITTEN_KINDS = (1, 2, 3), (1, 2, 7), ("directed", "undirected")


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graphs `<kind> <parts>` and what is written about them, `<kind> <parts> by <ranks>`."""
    folder = tmp_path_factory.mktemp("written")
    for kind, parts in product(WRITTEN_KINDS, PARTS):
        store = Store.open(write_graph(folder / f"{kind} {parts}", kind, parts))
        Hops.open(store, 2)
        for size in SIZES:
            (folder / f"{kind} {parts} by {size}").mkdir()
    write_all(World(), folder)
    for size in SIZES[1:]:
        run_world(size, write_all, folder)
    return folder


def write_all(world: World, folder: Path) -> None:
    """Write in many small chunks."""
    for kind, parts in product(WRITTEN_KINDS, PARTS):
        background = Background(world.meeting_in(distributed.new_group(backend="gloo") if world.size > 1 else None))
        store, out = Store.open(folder / f"{kind} {parts}"), folder / f"{kind} {parts} by {world.size}"
        trained = trained_model(WRITTEN[kind], store)
        model = trained.nodeformer("this test")
        full = FullGraph(
            store, Hops.open(store, model.relation.num_patterns), model.relation, world, dtype=torch.float64
        )
        edges = EdgeWeights(store, world, full.nodes, model.model.layers, edges_at_once=97)
        links = TopNeighbors(world, full.nodes, store.node_ids(CHOSEN), 5, pairs_at_once=40)
        with (
            writing_states(out, world, full.nodes, store.num_nodes, ROWS_AT_ONCE, background) as states,
            background,
        ):
            evaluation = full.evaluate(model, trained.seed, listeners=[states, edges, links])
            states.write_summaries(evaluation.summaries, trained)
        assert evaluation.hidden is not None
        split = store.split(torch.arange(store.num_nodes))
        task = Task("single", 4)
        write_predictions(
            out / "predictions.parquet", store, world, task, full.nodes, evaluation.logits, split, 3, ROWS_AT_ONCE
        )
        write_embeddings(out / "embeddings.parquet", store, world, full.nodes, evaluation.hidden, ROWS_AT_ONCE)
        edges.write(out / "edges.parquet")
        links.write(out / "neighbors.parquet", store)
