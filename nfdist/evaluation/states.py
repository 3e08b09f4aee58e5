"""States: what an evaluation leaves behind so that new nodes can be predicted without a pass over the graph.

summary/          every layer's summary of all keys, and what all of this was made from
hidden-0.npy ...  the hidden states [nodes, c] before each layer, by node id, if the model looks at the graph; of a
                  baseline, the rows before each sum over neighbors
hidden-0-partial-1.npy ...  the partial sums y_1, ... before each layer, if relations are powers (graph/neighbors.py)
branch-0.npy ...  those before each convolution of the graph branch, if there is one
roots.npy         one over the root of every node's out-degree, [nodes, hops], if relations are normalized
smoothing-*.npy   what smoothing_states.py tells of, if answers are smoothed
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfdist import files, layout
from nfdist.attention.summary import KeySummary
from nfdist.collectives import together
from nfdist.config import Config
from nfdist.errors import CheckpointError
from nfdist.evaluation.background import Background
from nfdist.evaluation.evaluation_graph import EvaluationGraph
from nfdist.evaluation.full import BranchListener, FullGraph, LayerInput, Listener
from nfdist.evaluation.gathered_writer import ROWS_AT_ONCE, rows_in_order, write_gathered
from nfdist.evaluation.smoothing_states import SmoothingStates
from nfdist.fields import each_setting
from nfdist.model.loading import TrainedModel
from nfdist.model.protocol import Model
from nfdist.runs.checkpoint import Checkpoint
from nfdist.store.arrow_files import read_only
from nfdist.store.gate import BlockDigests, Column, Gate, StoredFile
from nfdist.world import World

STATES_FOLDER = layout.STATES_FOLDER
SUMMARY_FOLDER = "summary"
ROOTS_FILE = "roots.npy"
HEADER_BYTES = 1 << 12
# The tensors of a summary: what the files call them, and the field of each.
NAMES = {"log_mass": "log_mass", "mean": "mean", "quiet_log_mass": "noise_free_log_mass", "peak": "peak"}


@dataclass(frozen=True)
class States:
    """Every layer's summary and, where there are any, mapped hidden states [nodes, c] and roots [nodes, hops]."""

    summaries: tuple[KeySummary, ...]
    hidden: tuple[Column, ...]
    roots: Column | None
    branch: tuple[Column, ...] = ()
    partials: tuple[tuple[Column, ...], ...] = ()
    smoothing: SmoothingStates | None = None

    @staticmethod
    def open(run_path: Path, trained: TrainedModel) -> "States":
        """The states that an evaluation of this very model has left in its run directory."""
        folder = run_path / STATES_FOLDER
        again = f"nfdist evaluate {run_path} makes them"
        if not folder.is_dir():
            raise CheckpointError(f"{run_path} holds no {STATES_FOLDER}, which predictions need: {again}")
        cure = f"{again} anew"
        try:
            kept = Checkpoint.open(folder / SUMMARY_FOLDER)
            made_from = dict(kept.state["model"])
            stored = {name: StoredFile(**facts) for name, facts in kept.state["files"].items()}
        except (CheckpointError, LookupError, TypeError, AttributeError):
            raise CheckpointError(f"{folder} was altered since it was written: {cure}") from None
        if made_from != _made_from(trained):
            raise CheckpointError(
                f"{folder} was made from seed {made_from.get('seed')}, step {made_from.get('step')}, the model is that "
                f"of seed {trained.seed}, step {trained.step}, with other weights or settings: {cure}, or name its "
                "checkpoint with --checkpoint"
            )
        mapped = {name: _map(Gate(folder / name, facts, cure, CheckpointError)) for name, facts in stored.items()}
        hidden, branch = (
            tuple(mapped[name] for name in map(file, range(len(mapped))) if name in mapped)
            for file in (_hidden_file, _branch_file)
        )
        powers = range(1, trained.config.relation.num_partials + 1)
        partials = tuple(tuple(mapped[_partial_file(layer, power)] for power in powers) for layer in range(len(hidden)))
        try:
            smoothing = SmoothingStates.of(kept.state.get("smoothing"), mapped)
        except (LookupError, TypeError) as error:
            raise CheckpointError(
                f"{folder} has a smoothing that this nfdist does not know ({error}): {cure}"
            ) from None
        summaries = _summaries(kept.tensors("summaries"))
        return States(summaries, hidden, mapped.get(ROOTS_FILE), branch, partials, smoothing)


class StatesWriter:
    """Listens to an evaluation and writes its states; `folder` is None on all ranks but the first.

    With a `background` the states before a layer are written while it makes the next ones.
    """

    def __init__(
        self,
        folder: Path | None,
        world: World,
        nodes: range,
        num_nodes: int,
        rows_at_once: int = ROWS_AT_ONCE,
        background: Background | None = None,
    ) -> None:
        self._folder, self._world, self._num_nodes = folder, world, num_nodes
        self._background = background
        self._pieces = rows_in_order(world, nodes, rows_at_once)
        self._digests: dict[str, BlockDigests] = {}

    def __call__(self, seen: LayerInput) -> None:
        """Write the states before a layer. Every rank must call this."""
        if not seen.shard.hops:
            return  # no layer looks at single nodes
        self._settle()  # the next states take the place of those before these
        if seen.index == 1 and seen.shard.factors is not None:
            self._begin(ROOTS_FILE, len(seen.shard.hops), seen.states.dtype, seen.shard.source_factors)
        self._begin(_hidden_file(seen.index - 1), seen.states.shape[1], seen.states.dtype, seen.hidden)
        for power, sums in enumerate(seen.partials, start=1):
            read = partial(seen.shard.load, sums)
            self._begin(_partial_file(seen.index - 1, power), sums.shape[1], sums.dtype, read)
        if seen.partials:  # whose place and that of the states the next ones take
            self._settle()

    def listeners(self, graph: EvaluationGraph, model: Model) -> tuple[list[Listener], BranchListener]:
        """Whom an evaluation of the model must tell. Every rank must call this."""
        if isinstance(graph, FullGraph):
            return [self], self.write_branch
        if model.needs_graph:
            factors = graph.source_factors()
            self.write(ROOTS_FILE, factors.shape[1], factors.dtype, factors.__getitem__)
        return [], self.write_propagated

    def write_branch(self, index: int, hidden: Callable[[slice], Tensor]) -> None:
        """Write the states [rows, c] before a convolution of the graph branch. Every rank must call this."""
        like = hidden(slice(0, 0))
        self.write(_branch_file(index - 1), like.shape[1], like.dtype, hidden)

    def write_propagated(self, index: int, rows: Callable[[slice], Tensor]) -> None:
        """Write the rows [rows, c] before a baseline's sum `index`, from 1. Every rank must call this."""
        like = rows(slice(0, 0))
        self.write(_hidden_file(index - 1), like.shape[1], like.dtype, rows)

    def write_summaries(
        self, summaries: Sequence[KeySummary], trained: TrainedModel, smoothing: Mapping[str, Any] | None = None
    ) -> None:
        """Write the summaries, what they were made from and how answers are smoothed. Every rank must call this."""

        self._settle()

        def save() -> None:
            if self._folder is not None:
                stored = {name: asdict(digests.stored()) for name, digests in self._digests.items()}
                state = {"model": _made_from(trained), "files": stored}
                if smoothing is not None:
                    state["smoothing"] = dict(smoothing)
                Checkpoint.save(self._folder / SUMMARY_FOLDER, {"summaries": _tensors(summaries)}, state)

        together(self._world, save)

    def write(self, name: str, width: int, dtype: torch.dtype, read: Callable[[slice], Tensor]) -> None:
        """Write rows of all ranks as one array [nodes, width]. Every rank must call this."""
        self._begin(name, width, dtype, read)
        self._settle()

    def _begin(self, name: str, width: int, dtype: torch.dtype, read: Callable[[slice], Tensor]) -> None:
        """`write`, which is done when it is settled: so long the rows must stay as they are."""
        background = self._background
        world = self._world if background is None else background.world
        pieces = self._pieces if background is None else background.while_wanted(self._pieces)
        digests = self._digests[name] = BlockDigests()

        def write(content: Tensor) -> None:
            assert self._folder is not None
            path = self._folder / name
            with files.disk_errors_as(CheckpointError, path), path.open("ab") as file:
                pieces = [content.numpy().data]
                if file.tell() == 0:
                    pieces.insert(0, memoryview(_header((self._num_nodes, width), dtype)))
                for piece in pieces:
                    file.write(piece)
                    digests.update(piece)

        def flush() -> None:
            if self._folder is not None and self._pieces:
                with files.disk_errors_as(CheckpointError, self._folder / name):
                    files.flush(self._folder / name)

        def work() -> None:
            write_gathered(world, pieces, lambda rows: _as_bytes(read(rows)), write)
            together(world, flush)

        if background is None:
            work()
        else:
            background.begin(work)

    def _settle(self) -> None:
        if self._background is not None:
            self._background.settle()


@contextmanager
def writing_states(
    run_path: Path,
    world: World,
    nodes: range,
    num_nodes: int,
    rows_at_once: int = ROWS_AT_ONCE,
    background: Background | None = None,
) -> Iterator[StatesWriter]:
    """A writer whose states replace those of the run when the block ends well. Every rank must enter this."""
    path = run_path / STATES_FOLDER
    with ExitStack() as stack:

        def begin() -> Path | None:
            if world.rank != 0:
                return None
            aside = files.written_aside(path, 0, "folder of states", CheckpointError, replace=True)
            return stack.enter_context(aside)

        yield StatesWriter(together(world, begin), world, nodes, num_nodes, rows_at_once, background)


def _hidden_file(layer: int) -> str:
    return f"hidden-{layer}.npy"


def _partial_file(layer: int, power: int) -> str:
    return f"hidden-{layer}-partial-{power}.npy"


def _branch_file(layer: int) -> str:
    return f"branch-{layer}.npy"


def _as_bytes(rows: Tensor) -> Tensor:
    return rows.cpu().contiguous().view(torch.uint8).flatten()


def _made_from(trained: TrainedModel) -> dict[str, Any]:
    """What decides the states: the weights, the graph, and the settings by which they answer.

    A setting counts where it is not what it was before it existed: states are good for as long as nothing they depend
    on has changed, whatever settings are added.
    """
    answering = {}
    for name, field in each_setting(Config):
        value = attrgetter(name)(trained.config)
        if name.startswith(("model.", "attention.", "relation.")) and value != field.metadata["before"]:
            answering[field.metadata["was"] or name] = value
    return {**trained.facts(), "settings": files.checksum_of(json.dumps(answering, sort_keys=True).encode())}


def _header(shape: tuple[int, int], dtype: torch.dtype) -> bytes:
    """What a .npy file of this shape begins with."""
    descr = np.lib.format.dtype_to_descr(torch.empty(0, dtype=dtype).numpy().dtype)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _map(gate: Gate) -> Column:
    """The rows of a .npy file."""
    gate.check(0, min(HEADER_BYTES, len(gate.content)))
    begin = io.BytesIO(gate.content[:HEADER_BYTES])
    try:
        np.lib.format.read_magic(begin)
        shape, _, dtype = np.lib.format.read_array_header_1_0(begin)
        rows = np.frombuffer(gate.content, dtype, offset=begin.tell()).reshape(shape)
    except (ValueError, SyntaxError, TypeError) as error:
        raise CheckpointError(f"{gate.path} holds no states ({error}): evaluate the run anew") from None
    return Column(read_only(rows), gate, begin.tell())


def _tensors(summaries: Sequence[KeySummary]) -> dict[str, Tensor]:
    fields = (
        (layer, name, getattr(one, field)) for layer, one in enumerate(summaries) for name, field in NAMES.items()
    )
    return {f"{layer}.{name}": value.cpu() for layer, name, value in fields if value is not None}


def _summaries(tensors: dict[str, Tensor]) -> tuple[KeySummary, ...]:
    by_layer: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        layer, _, field = name.partition(".")
        by_layer.setdefault(int(layer), {})[NAMES[field]] = value
    return tuple(KeySummary(**by_layer[layer]) for layer in sorted(by_layer))
