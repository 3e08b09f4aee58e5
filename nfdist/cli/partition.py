"""nfdist partition: turn a graph into partitions on disk, once, alone or under torchrun (-m nfdist partition ...)."""

import argparse
import dataclasses
import json
import os
from typing import TYPE_CHECKING

from nfdist.config import RunConfig
from nfdist.errors import ConfigError
from nfdist.partitioning.choices import METHODS, USES

if TYPE_CHECKING:
    from nfdist.partitioning.pipeline import Outcome
    from nfdist.partitioning.recipe import Recipe

LOADS = ("nfdist.partitioning.pipeline",)
EXAMPLES = (
    ("nfdist partition cora --parts 2 --out cora-partition", "a data set by its name"),
    (
        "torchrun --standalone --nproc-per-node 2 -m nfdist partition shop --parts 4 --out shop-partition",
        "nodes.parquet and edges.parquet, a share of them for each of two workers",
    ),
    ("nfdist partition partitions/cora.toml", "a recipe, which has all of that"),
    ("nfdist partition amazon2m-like --scale 0.01 --parts 2 --out made --method random", "a made graph, to try with"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--out", metavar="DIR", help="the directory or URI to make; a recipe has one of its own")
    parser.add_argument("--method", choices=METHODS, help="how to divide the nodes (default metis where it fits)")
    parser.add_argument("--assignment", metavar="FILE", help="with --method file: a part number a line, by node")
    parser.add_argument("--json", action="store_true", help="print the outcome as one line, the last of stdout")


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """What `partition` and `plan` both need to know of a source; nothing has a default, so a recipe's values stay."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a name, a path, a URI, or a recipe such as partitions/cora.toml"
    )
    parser.add_argument("--memory", metavar="SIZE", help="the most that may be held privately, such as 4GiB")
    parser.add_argument("--parts", type=int, metavar="P", help="how many parts")
    parser.add_argument("--split", help="official, or random:0.5/0.25/0.25 of the labeled nodes")
    parser.add_argument("--split-index", type=int, help="which of several official splits (from 0)")
    parser.add_argument("--seed", type=int, help="of random splits, random parts and made graphs (default 0)")
    parser.add_argument("--knn", type=int, metavar="K", help="replace the edges by a k-NN graph of the features")
    parser.add_argument("--normalize-features", choices=("none", "row"), help="row: each row sums to 1")
    parser.add_argument("--task", choices=("single", "binary", "multi"), help="when the labels do not tell")
    parser.add_argument("--directed", action="store_true", default=None, help="keep the edges exactly as given")
    parser.add_argument("--scale", type=float, help="of made graphs: 0.01 is a hundredth of the nodes")
    for column in ("id", "label", "split", "source", "target"):
        parser.add_argument(f"--{column}-column", metavar="NAME", help=f"the {column} column of tables")
    parser.add_argument("--feature-columns", nargs="+", metavar="NAME", help="the feature columns of tables")
    parser.add_argument(
        "--column",
        action="append",
        dest="columns",
        metavar="NAME=USE",
        help=f"use a column of tables as {', '.join(USES)}; may be given again",
    )


def recipe_of(options: argparse.Namespace) -> "Recipe":
    """The recipe of a command line: what was not said keeps the recipe file's or the default value."""
    from nfdist.partitioning.recipe import Recipe

    given = {key: value for key, value in vars(options).items() if value is not None}
    for key in ("source", "run", "json"):
        given.pop(key, None)
    return Recipe.build(options.source, given)


def run(options: argparse.Namespace) -> int:
    from nfdist.collectives import agree, together
    from nfdist.partitioning.pipeline import partition
    from nfdist.rendezvous import Place, join, patient
    from nfdist.world import CPU

    place = Place.read(os.environ)
    with join(place, CPU, RunConfig().timeout_seconds) as world:
        recipe = together(world, lambda: recipe_of(options), ConfigError)
        agree(world, {f"the recipe's {key}": str(value) for key, value in dataclasses.asdict(recipe).items()})
        outcome = partition(recipe, patient(world), place.local_size)
    if place.rank == 0:
        _tell(recipe, outcome, options.json)
    return 0


def _tell(recipe: "Recipe", outcome: "Outcome", as_json: bool) -> None:
    manifest, seconds = outcome.manifest, sum(outcome.seconds.values())
    share = manifest.edge_cut / max(manifest.num_edges, 1)
    print(
        f"{recipe.out}: {len(manifest.parts)} parts, {manifest.num_nodes:,} nodes, {manifest.num_edges:,} edges, "
        f"{share:.1%} of them cut, in {seconds:.1f} s and {outcome.peak_private_bytes / 2**30:.2f} GiB, "
        f"{outcome.peak_memory_bytes / 2**30:.2f} GiB with mapped files"
    )
    if as_json:
        result = {
            "parts": len(manifest.parts),
            "nodes": manifest.num_nodes,
            "edges": manifest.num_edges,
            "edge_cut": manifest.edge_cut,
            "seconds": seconds,
            "peak_memory_bytes": outcome.peak_memory_bytes,
            "peak_private_bytes": outcome.peak_private_bytes,
            "sent_bytes": outcome.sent_bytes,
            "stage_seconds": outcome.seconds,
        }
        print(json.dumps(result))
