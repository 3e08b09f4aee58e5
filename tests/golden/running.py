"""From cases to facts."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as distributed

from nfdist import settings
from nfdist.config import Config
from nfdist.fields import each_setting
from nfdist.world import World
from tests.golden.adapter import Rows, new_node_logits, train_runs
from tests.golden.cases import Case
from tests.golden.facts import Facts, evaluation_facts, flat, training_facts, write_new_nodes
from tests.golden.graphs import build_graph
from tests.worlds import run_world

# What settings that were added since had been before: the numbers are of that time.
EARLIER = [
    f"{name}={json.dumps(field.metadata['before'])}"
    for name, field in each_setting(Config)
    if field.metadata["before"] is not None
]


def run_cases(cases: Sequence[Case], folder: Path, precision: str) -> dict[str, Facts]:
    """The facts of every case by its name; all that need several ranks are trained by the same processes."""
    with one_thread():
        configs = {case.name: _config_text(case, folder, precision) for case in cases}
        logits: dict[str, Rows] = {}
        sizes = sorted({case.world for case in cases} - {1}, reverse=True)
        wanted = {size: [configs[case.name] for case in cases if case.world == size] for size in sizes}
        for size, rows in (_train_by_ranks(wanted) if wanted else {}).items():
            logits |= zip([case.name for case in cases if case.world == size], rows, strict=True)
        for case in cases:
            if case.world == 1:
                (logits[case.name],) = train_runs(World(), [configs[case.name]])
        return {case.name: _facts(case, folder, logits[case.name]) for case in cases}


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order then, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_of(case: Case, folder: Path) -> Path:
    return folder / "runs" / case.name


def _config_text(case: Case, folder: Path, precision: str) -> str:
    graph, run = build_graph(folder, case.graph), _run_of(case, folder)
    places = (f'data.partition="{graph}"', f'run.dir="{run}"', f"train.precision={precision}")
    return settings.dump(settings.parse({}, [*EARLIER, *case.overrides, *places]))


def _train_by_ranks(wanted: Mapping[int, Sequence[str]]) -> dict[int, list[Rows]]:
    """The logits of the whole graph for the configurations of each world size."""
    with tempfile.TemporaryDirectory() as meeting:
        by_rank = run_world(max(wanted), _train_as_rank, meeting, wanted)
    whole: dict[int, list[Rows]] = {}
    for size in wanted:
        parts = zip(*(by_rank[rank][size] for rank in range(size)), strict=True)
        whole[size] = [[row for rows in one for row in rows] for one in parts]
    return whole


def _train_as_rank(world: World, meeting: str, wanted: Mapping[int, Sequence[str]]) -> dict[int, list[Rows]]:
    """The logits of one rank; the first ranks of the largest world go on as smaller ones, which saves their start."""
    found: dict[int, list[Rows]] = {}
    for size, configs in wanted.items():
        if world.rank >= size:
            break
        if size < world.size:
            distributed.destroy_process_group()
            method, timeout = (Path(meeting) / str(size)).as_uri(), timedelta(seconds=60)
            distributed.init_process_group("gloo", method, timeout, size, world.rank)
        found[size] = train_runs(World(world.rank, size), configs)
    return found


def _facts(case: Case, folder: Path, logits: Rows) -> Facts:
    run = _run_of(case, folder)
    facts = {**training_facts(run), **evaluation_facts(run, *case.exports), "logits": flat(logits)}
    if case.new_nodes:
        facts["new node logits"] = flat(new_node_logits(run, write_new_nodes(folder / "new.parquet")))
    return facts
