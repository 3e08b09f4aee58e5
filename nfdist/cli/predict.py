"""nfdist predict: labels of nodes that training never saw, from what nfdist evaluate has left in the run."""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from nfdist.config import TRACKERS, Device
from nfdist.errors import ConfigError
from nfdist.remote import fetched, refuse_uri

LOADS = ("nfdist.evaluation.predict",)
EXAMPLES = (
    ("nfdist predict runs/cora new.parquet --out answers.parquet", "the classes of new nodes"),
    ("nfdist predict runs/cora new.csv --out answers.parquet --probabilities --top-k 5", "with what is likely, too"),
    ("nfdist predict runs/cora new.csv --edges links.csv --together --out answers.parquet", "joined to each other"),
)
_OF_RUN = (  # what no answers may be written over
    *("states", "checkpoints", "smoothing", "run.json", "config.toml", "metrics.jsonl", "result.json"),
    *("evaluations.jsonl", "evaluation.json", "report.html"),
    *("predictions.parquet", "embeddings.parquet", "edges.parquet", "neighbors.parquet"),
    *TRACKERS,
)
_NOT_PARQUET = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".arrow", ".feather", ".xlsx")
_ASIDE_CHARACTERS = 60  # what a name gains while its file is written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir",
        metavar="RUN_DIR",
        help="a run that nfdist evaluate has evaluated; of a model that can answer for new nodes",
    )
    parser.add_argument(
        "nodes",
        metavar="NEW",
        help="the new nodes, Parquet or CSV: the columns of the graph's own by name, and neighbors (lists of ids)",
    )
    parser.add_argument("--edges", metavar="FILE", help="edges between new nodes and the graph, Parquet or CSV")
    parser.add_argument("--together", action="store_true", help="new nodes may be joined, and hear each other")
    parser.add_argument("--probabilities", action="store_true", help="a column more for the probability of each class")
    parser.add_argument("--out", metavar="FILE", required=True, help="the Parquet file to write")
    parser.add_argument("--top-k", type=int, default=3, metavar="K", help="how many likely classes to list (default 3)")
    parser.add_argument("--partition", metavar="DIR", help="where the run's graph is, if no longer in data.partition")
    parser.add_argument(
        "--device",
        choices=get_args(Device),
        default="cpu",
        help="what works out the layers (default cpu, which is done with a few nodes before a GPU has begun)",
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="the one that was evaluated (default: the best, else last)")
    parser.add_argument("--json", action="store_true", help="print the outcome as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    if options.top_k < 1:
        raise ConfigError(f"--top-k must be at least 1, got {options.top_k}")
    from nfdist.api import Predictor
    from nfdist.evaluation.gathered_writer import write_table
    from nfdist.evaluation.new_nodes import NewNodes

    started = time.perf_counter()
    refuse_uri("--out", options.out, "name a file here, and copy it there")
    out = Path(options.out)
    given = {"checkpoint": options.checkpoint, "partition": options.partition, "device": options.device}
    predictor = Predictor(options.run_dir, **given)
    with ExitStack() as stack:
        here = [stack.enter_context(fetched(one, ConfigError)) for one in (options.nodes, options.edges) if one]
        nodes, *edges = map(Path, here)
        _check_out(out, [nodes, *edges, predictor.store.directory], Path(options.run_dir))
        new_nodes = NewNodes.read(nodes, predictor.store, edges[0] if edges else None, options.together)
    loaded = time.perf_counter()
    columns = predictor.answers(new_nodes, options.top_k, options.probabilities)
    predicted = time.perf_counter()
    write_table(out, columns)
    outcome: dict[str, Any] = {
        "nodes": len(new_nodes),
        "known_nodes": int((new_nodes.node_ids >= 0).sum()),
        "neighbors": len(new_nodes.neighbors[1]),
        "joined": 0 if new_nodes.among is None else len(new_nodes.among[1]),
        "labels": _counted(columns["label"]),
        "smoothed": predictor.smoothed,
        "load_seconds": loaded - started,
        "predict_seconds": predicted - loaded,
        "write_seconds": time.perf_counter() - predicted,
    }
    print(
        f"{options.out}: {outcome['nodes']:,} nodes with {outcome['neighbors']:,} neighbors"
        f"{', smoothed' if predictor.smoothed else ''}; loaded in "
        f"{outcome['load_seconds']:.3f} s, predicted in {outcome['predict_seconds']:.3f} s"
    )
    if options.json:
        print(json.dumps(outcome))
    return 0


def _counted(labels: Any) -> dict[str, int]:
    """How many nodes got each label, by its name; nothing where every node has a list of answers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(labels.type):
        return {}
    counted = pc.value_counts(labels).sort(by="values")
    return {str(name): count for name, count in zip(*(field.to_pylist() for field in counted.flatten()), strict=True)}


def _check_out(out: Path, inputs: Sequence[Path], run_dir: Path) -> None:
    """Refuse, before the work, a file that could not be written, or that is another's."""
    try:
        if out.is_dir() or not out.name:
            raise ConfigError(f"--out {out} cannot be written, it is a directory: name a file in it")
        place = out.resolve()
        for kept in (*inputs, *(run_dir / name for name in _OF_RUN)):
            if place.is_relative_to(kept.resolve()) or (out.exists() and kept.exists() and out.samefile(kept)):
                raise ConfigError(
                    f"--out {out} is in the place of {kept}, which belongs to the run, its graph or the new nodes: "
                    "name another file"
                )
        if out.suffix.lower() in _NOT_PARQUET:
            raise ConfigError(f"--out {out} would be a Parquet file by another name: name it {out.stem}.parquet")
        tempfile.TemporaryFile(dir=out.parent).close()
        out.with_name(out.name + "." * _ASIDE_CHARACTERS).exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--out {str(out)!r} cannot be written ({reason}): name a file in a folder that is there"
        ) from None
