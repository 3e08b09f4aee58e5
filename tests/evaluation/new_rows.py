"""Files of new nodes, and of nodes of a graph as if they were new."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from nfdist.store.store import Store


def own_rows(store: Store, path: Path, chosen: list[int]) -> Path:
    """Nodes of the graph as if they were new: their own ids, features and in-edges."""
    graph = store.induced(torch.arange(store.num_nodes))
    ends = [slice(int(graph.indptr[node]), int(graph.indptr[node + 1])) for node in chosen]
    names = [list(store.original_ids(graph.sources[end].long())) for end in ends]
    return write_new_nodes(
        path, store, store.original_ids(torch.tensor(chosen)), store.take(torch.tensor(chosen)), names
    )


def write_new_nodes(path: Path, store: Store, ids: Any, features: Tensor, neighbors: list[list[Any]]) -> Path:
    columns = {"id": ids, "features": features.tolist(), "neighbors": neighbors}
    pq.write_table(pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path)
    return path
