"""nfdist plan: peak memory, disk and rough time of every stage, from counts alone, before anything is loaded."""

import argparse
import json
import os
import shutil
from dataclasses import asdict

from nfdist import log
from nfdist.cli.partition import add_source_arguments, recipe_of
from nfdist.errors import PartitionError
from nfdist.remote import fetched

LOADS = ("nfdist.partitioning.planning",)
EXAMPLES = (
    ("nfdist plan ogbn-products --parts 8", "what partitioning it would take"),
    ("nfdist plan partitions/cora.toml --json", "the same of a recipe, as one line for scripts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--method", choices=("metis", "random"), help="how the nodes will be divided (default metis)")
    parser.set_defaults(out=".")
    parser.add_argument("--json", action="store_true", help="print the plan as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    from nfdist.partitioning.planning import plan
    from nfdist.partitioning.sources import counts

    recipe = recipe_of(options)
    with fetched(recipe.source, PartitionError) as source:
        found = counts(source, recipe.options)
    planned = plan(recipe, found)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = shutil.disk_usage(".").free
    print(
        f"{recipe.source}: {found.nodes:,} nodes, {found.edges:,} edges listed, {planned.stored_edges:,} to store, "
        f"{found.features:,} features"
    )
    for stage in planned.stages:
        print(f"  {stage.name:<12} {stage.peak_bytes / 2**30:8.2f} GiB {stage.seconds:8.0f} s")
    print(f"  disk         {planned.disk_bytes / 2**30:8.2f} GiB of {free / 2**30:.0f} GiB free")
    if planned.peak_bytes > memory:
        log.warn(
            f"this machine has {memory / 2**30:.1f} GiB, too little for a peak of {planned.peak_bytes / 2**30:.1f} GiB"
        )
    if planned.disk_bytes > free:
        log.warn(f"this disk has {free / 2**30:.1f} GiB free, too little for {planned.disk_bytes / 2**30:.1f} GiB")
    if options.json:
        result = {"stages": [asdict(stage) for stage in planned.stages], "stored_edges": planned.stored_edges}
        fits = planned.peak_bytes <= memory and planned.disk_bytes <= free
        print(json.dumps({**result, "peak_bytes": planned.peak_bytes, "disk_bytes": planned.disk_bytes, "fits": fits}))
    return 0
