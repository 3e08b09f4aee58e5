"""METIS, through the library that DGL ships or else through pymetis; where it takes long, in a process of its own.

It runs in C until it is done, takes SIGTERM for itself meanwhile, and writes large graphs to files `metis<pid>.N` in
the current folder: in a process of its own, in a folder of its own, none of it is felt.
"""

import ctypes
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import nfdist
from nfdist.children import Children
from nfdist.errors import ConfigError, NfdistError, PartitionError
from nfdist.files import disk_errors_as, folder_aside
from nfdist.log import notice
from nfdist.memory import count_resident, counted, peak_resident_bytes
from nfdist.sparse.adjacency import Adjacency
from nfdist.sparse.dgl_door import dgl

# Weights of nodes, and ends of edges: of more, METIS is begun as a process, which costs two seconds for its libraries
# where METIS itself takes about as long. From twice as many on it writes graphs to files.
NUMBERS_HERE = 1 << 23
_ARRAYS, _ANSWER, _PARTS, _SAID = ("indptr", "sources", "weights"), "answer.json", "parts.npy", "said"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl


def metis(
    graph: Adjacency,
    num_parts: int,
    node_weights: NDArray[np.int64],
    beside: Path | None = None,
    numbers_here: int = NUMBERS_HERE,
) -> NDArray[np.int64]:
    """The part [n] of every node of a symmetric graph, with few edges cut and each column of weights [n, w] balanced.

    pymetis balances one column, the first, which must be the one that matters most. Graphs of more than `numbers_here`
    are divided in a process whose files lie in a folder beside `beside`.
    """
    library = metis_library()
    if library is None:
        raise PartitionError("--method metis needs DGL or pymetis: pip install pymetis, or use --method stream")
    if library == "pymetis" and node_weights.shape[1] > 1:
        notice("METIS through pymetis balances the nodes of parts; their edges and training nodes may be uneven")
    if node_weights.size + 2 * graph.num_edges > numbers_here:
        found = _in_process(graph, num_parts, node_weights, beside or Path(tempfile.gettempdir()) / "nfdist-metis")
    else:
        found = _divided(library, graph, num_parts, node_weights)
    if len(found) != graph.num_nodes:
        raise PartitionError(
            f"METIS could not divide {graph.num_nodes:,} nodes into {num_parts} parts: try --method stream"
        )
    return found


def metis_library() -> str | None:
    """The package through which METIS is called: "dgl", which balances several weights, "pymetis", or None."""
    try:
        dgl()
    except ConfigError:
        try:
            import pymetis  # noqa: F401
        except ImportError:
            return None
        return "pymetis"
    return "dgl"


def _divided(library: str, graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    return (_through_dgl if library == "dgl" else _through_pymetis)(graph, num_parts, node_weights)


def _in_process(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64], beside: Path) -> NDArray[np.int64]:
    """The same by a process that ends when this one is stopped, whatever METIS is doing."""
    arrays = (graph.indptr.numpy(), graph.sources.numpy(), node_weights)
    needed = f"METIS needs about {8 * sum(array.size for array in arrays) / 2**20:,.0f} MiB for its files; "
    with disk_errors_as(PartitionError, beside, needed), folder_aside(beside) as aside:
        folder = aside.absolute()
        for name, array in zip(_ARRAYS, arrays, strict=True):
            _write(folder / f"{name}.npy", array)
        places = [str(Path(nfdist.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        command = [sys.executable, "-m", "nfdist.sparse.metis", str(num_parts)]
        with (folder / _SAID).open("wb") as said, Children() as children:
            process = children.start(command, environment, cwd=folder, stdout=said, stderr=said)
            try:
                with counted(process.pid):
                    code = process.wait()
            except BaseException:
                process.kill()  # it would hear of nothing else
                raise
        answer = json.loads((folder / _ANSWER).read_text()) if (folder / _ANSWER).exists() else {}
        if "error" in answer:
            raise PartitionError(answer["error"])
        if code or not answer:
            raise _failed(RuntimeError(_last_words(code, folder / _SAID)))
        count_resident(answer["peak_memory_bytes"])
        parts: NDArray[np.int64] = np.load(folder / _PARTS)
        return parts


def _write(path: Path, array: NDArray[np.int64], numbers_at_once: int = 1 << 22) -> None:
    """An array as numbers of 64 bits, some at a time: it may be mapped from a file itself."""
    written = np.lib.format.open_memmap(path, "w+", np.int64, array.shape)
    for start in range(0, len(array), numbers_at_once):
        written[start : start + numbers_at_once] = array[start : start + numbers_at_once]
    written.flush()


def _last_words(code: int, said: Path) -> str:
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}, as where memory is short"
    return (said.read_text(errors="replace").strip().splitlines() or [f"its process ended with code {code}"])[-1]


def _answer(num_parts: int) -> None:
    """What the process of its own does, in a folder with the arrays."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    indptr, sources, weights = (np.load(f"{name}.npy", mmap_mode="c") for name in _ARRAYS)
    answer: dict[str, object]
    try:
        graph = Adjacency(torch.from_numpy(indptr), torch.from_numpy(sources), len(indptr) - 1)
        np.save(_PARTS, _divided(metis_library() or "", graph, num_parts, weights))
        answer = {"peak_memory_bytes": peak_resident_bytes()}
    except NfdistError as error:
        answer = {"error": str(error)}
    Path(_ANSWER).write_text(json.dumps(answer))


def _through_dgl(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Through what DGL's wrapper calls, which itself would symmetrize the graph again, at twice the memory."""
    library, backend = dgl().partition, dgl().backend
    arrays = (graph.indptr.long(), graph.sources.long(), torch.empty(0, dtype=torch.long))
    index = dgl().graph(("csc", arrays), num_nodes=graph.num_nodes)._graph
    weights = backend.to_dgl_nd(torch.from_numpy(np.ascontiguousarray(node_weights)).flatten())
    try:
        with _quiet():
            found = library._CAPI_DGLMetisPartition_Hetero(index, num_parts, weights, "k-way", True)
    except dgl().DGLError as error:
        raise _failed(error) from error
    return np.asarray(dgl().utils.toindex(found).tousertensor().numpy(), dtype=np.int64)


def _through_pymetis(graph: Adjacency, num_parts: int, node_weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of 64 bits are taken as they are; of more than one weight pymetis would read the first numbers only."""
    import pymetis

    adjacency = pymetis.CSRAdjacency(graph.indptr.long().numpy(), graph.sources.long().numpy())
    weights = np.ascontiguousarray(node_weights[:, 0])
    try:
        with _quiet():
            found = pymetis.part_graph(num_parts, adjacency, vweights=weights, recursive=False)
    except RuntimeError as error:
        raise _failed(error) from error
    return np.asarray(found.vertex_part, dtype=np.int64)


def _failed(error: Exception) -> PartitionError:
    return PartitionError(f"METIS failed ({str(error).splitlines()[0]}): try --method stream")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's own log line off stderr; it is written below Python, so the file itself is turned away."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if __name__ == "__main__":
    _answer(int(sys.argv[1]))
