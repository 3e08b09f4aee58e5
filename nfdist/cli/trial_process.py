"""What the doctor lets a process of its own try, so that a library that hangs or dies takes nobody along.

    python -m nfdist.cli.trial_process NAME [FOLDER RANK SIZE]

The process prints "ready" when its libraries are loaded, and one line of JSON when it is done.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS_TO_MEET = 10.0


def try_collective(backend: str, folder: str, rank: int, size: int) -> dict[str, Any]:
    """An all-reduce among processes of this host that meet in a folder."""
    import torch
    import torch.distributed as distributed

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    _ready()
    started = time.perf_counter()
    distributed.init_process_group(
        backend,
        init_method=(Path(folder) / "meeting").as_uri(),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=SECONDS_TO_MEET),
    )
    numbers = torch.full((1000,), float(rank + 1), device=device)
    distributed.all_reduce(numbers)
    wanted = size * (size + 1) / 2
    if not bool((numbers == wanted).all()):
        raise RuntimeError(f"the sum of {size} ranks is {float(numbers[0]):g}, and not {wanted:g}")
    seconds = time.perf_counter() - started
    distributed.destroy_process_group()
    return {"processes": size, "seconds": seconds}


def try_dgl() -> dict[str, Any]:
    """METIS on a ring of nodes, and a sum over neighbors by DGL beside torch's own."""
    import numpy as np
    import torch

    from nfdist.sparse.adjacency import Adjacency
    from nfdist.sparse.dgl_door import dgl
    from nfdist.sparse.metis import metis, metis_library
    from nfdist.sparse.spmm import spmm

    library = metis_library()
    _ready()
    started = time.perf_counter()
    nodes = torch.arange(64)
    ring = Adjacency.from_edges(torch.cat([nodes, (nodes + 1) % 64]), torch.cat([(nodes + 1) % 64, nodes]), 64)
    facts: dict[str, Any] = {"metis": library}
    if library is not None:
        parts = np.bincount(metis(ring, 2, np.ones((64, 1), dtype=np.int64)), minlength=2)
        if parts.min() < 16:
            raise RuntimeError(f"METIS has divided 64 nodes of a ring into parts of {parts.tolist()}")
    if library == "dgl":
        rows = torch.arange(128.0).view(64, 2)
        sums = dgl().ops.copy_u_sum(ring.dgl_graph, rows)
        if not torch.equal(sums, spmm(ring, rows)):
            raise RuntimeError("sums over the neighbors of a ring are others by DGL than by torch")
    return {**facts, "seconds": time.perf_counter() - started}


def _ready() -> None:
    print("ready", flush=True)


def main(words: list[str]) -> None:
    name, *rest = words
    facts = try_dgl() if name == "dgl" else try_collective(name, rest[0], int(rest[1]), int(rest[2]))
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
