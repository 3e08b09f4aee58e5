"""States: what an evaluation leaves behind so that new nodes can be predicted without a pass over the graph.

summary/          every layer's summary of all keys, and what all of this was made from
hidden-0.npy ...  the hidden states [nodes, c] that each layer hears, by node id, if the model looks at the graph
roots.npy         one over the root of every node's out-degree, [nodes, order], if relations are normalized
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nfdist import files
from nfdist.attention.summary import KeySummary
from nfdist.collectives import together
from nfdist.errors import CheckpointError
from nfdist.evaluate.delivery import deliver, pieces_in_order
from nfdist.evaluate.full import LayerInput
from nfdist.evaluate.loading import TrainedModel
from nfdist.runs.checkpoint import Checkpoint
from nfdist.world import World

STATES_FOLDER = "states"
SUMMARY_FOLDER = "summary"
ROOTS_FILE = "roots.npy"


@dataclass(frozen=True)
class States:
    """Every layer's summary and, where there are any, mapped hidden states [nodes, c] and roots [nodes, order]."""

    summaries: tuple[KeySummary, ...]
    hidden: tuple[Tensor, ...]
    roots: Tensor | None

    @staticmethod
    def open(run_path: Path, trained: TrainedModel) -> "States":
        """The states that an evaluation of this very model has left in its run directory."""
        folder = run_path / STATES_FOLDER
        again = f"nfdist evaluate {run_path} makes them"
        if not folder.is_dir():
            raise CheckpointError(f"{run_path} holds no {STATES_FOLDER}, which predictions need: {again}")
        try:
            kept = Checkpoint.open(folder / SUMMARY_FOLDER)
            sizes = {name: (folder / name).stat().st_size for name in kept.state["files"]}
            whole = sizes == kept.state["files"]
        except (CheckpointError, OSError):
            whole = False
        if not whole:
            raise CheckpointError(f"{folder} was altered since it was written: {again} anew")
        made_from = kept.state["model"]
        if made_from != trained.facts():
            raise CheckpointError(
                f"{folder} was made from seed {made_from['seed']}, step {made_from['step']}, the model is that of seed "
                f"{trained.seed}, step {trained.step}: {again} anew, or name its checkpoint with --checkpoint"
            )
        mapped = {name: _map(folder / name) for name in sizes}
        hidden = tuple(mapped[name] for name in map(_hidden_file, range(len(mapped))) if name in mapped)
        return States(_summaries(kept.tensors("summaries")), hidden, mapped.get(ROOTS_FILE))


class StatesWriter:
    """Listens to an evaluation and writes what it hears; `folder` is None on all ranks but the first."""

    def __init__(self, folder: Path | None, world: World, nodes: range, num_nodes: int) -> None:
        self._folder, self._world, self._num_nodes = folder, world, num_nodes
        self._pieces = pieces_in_order(world, nodes)
        self._names: list[str] = []

    def __call__(self, heard: LayerInput) -> None:
        """Write the states before a layer. Every rank must call this."""
        if not heard.neighborhood.hops:
            return  # nobody hears single nodes
        if heard.index == 1 and heard.neighborhood.root is not None:
            self._write(ROOTS_FILE, len(heard.neighborhood.hops), heard.states.dtype, partial(_roots, heard))
        self._write(_hidden_file(heard.index - 1), heard.states.shape[1], heard.states.dtype, heard.hidden)

    def finish(self, summaries: Sequence[KeySummary], trained: TrainedModel) -> None:
        """Write the summaries and what they were made from. Every rank must call this."""

        def save() -> None:
            if self._folder is not None:
                for name in self._names:
                    files.flush(self._folder / name)
                sizes = {name: (self._folder / name).stat().st_size for name in self._names}
                state = {"model": trained.facts(), "files": sizes}
                Checkpoint.save(self._folder / SUMMARY_FOLDER, {"summaries": _tensors(summaries)}, state)

        together(self._world, save)

    def _write(self, name: str, width: int, dtype: torch.dtype, read: Callable[[slice], Tensor]) -> None:
        """Write rows of all ranks as one array [nodes, width]. Every rank must call this."""
        begun: list[Path] = []

        def write(content: Tensor) -> None:
            assert self._folder is not None
            path = self._folder / name
            with files.disk_errors_as(CheckpointError, path), path.open("ab") as file:
                if not begun:
                    begun.append(path)
                    descr = np.lib.format.dtype_to_descr(torch.empty(0, dtype=dtype).numpy().dtype)
                    header = {"descr": descr, "fortran_order": False, "shape": (self._num_nodes, width)}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(content.numpy().data)

        deliver(self._world, self._pieces, lambda rows: _as_bytes(read(rows)), write)
        self._names.append(name)


@contextmanager
def writing_states(run_path: Path, world: World, nodes: range, num_nodes: int) -> Iterator[StatesWriter]:
    """A writer whose states replace those of the run when the block ends well. Every rank must enter this."""
    path = run_path / STATES_FOLDER
    with ExitStack() as stack:

        def begin() -> Path | None:
            if world.rank != 0:
                return None
            with files.disk_errors_as(CheckpointError, path):
                if path.exists():
                    files.remove(path)
            return stack.enter_context(files.written_aside(path, 0, "folder of states", CheckpointError))

        yield StatesWriter(together(world, begin), world, nodes, num_nodes)


def _hidden_file(layer: int) -> str:
    return f"hidden-{layer}.npy"


def _roots(heard: LayerInput, rows: slice) -> Tensor:
    """The roots [rows, order]: the first hop's multiply the states, the others' weights are relative to these."""
    first = heard.neighborhood.root
    assert first is not None
    weights = [hop.weights for hop in heard.neighborhood.hops]
    return torch.stack([first[rows] if one is None else first[rows] * one[rows] for one in weights], 1)


def _as_bytes(rows: Tensor) -> Tensor:
    return rows.contiguous().view(torch.uint8).flatten()


def _map(path: Path) -> Tensor:
    # Mapped for writing on paper only: torch warns of arrays that it could not write to.
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def _tensors(summaries: Sequence[KeySummary]) -> dict[str, Tensor]:
    named = {f"{layer}.{name}": value for layer, one in enumerate(summaries) for name, value in vars(one).items()}
    return {name: value for name, value in named.items() if value is not None}


def _summaries(tensors: dict[str, Tensor]) -> tuple[KeySummary, ...]:
    by_layer: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        layer, _, field = name.partition(".")
        by_layer.setdefault(int(layer), {})[field] = value
    return tuple(KeySummary(**by_layer[layer]) for layer in sorted(by_layer))
