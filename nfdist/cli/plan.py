"""nfdist plan: peak memory, disk and rough time of every stage, from counts alone, before anything is loaded."""

import argparse
import json
import shutil
from dataclasses import asdict

from nfdist import log
from nfdist.cli.partition import add_source_arguments, recipe_of
from nfdist.errors import PartitionError
from nfdist.memory import host_bytes
from nfdist.partitioning.assign import METHODS
from nfdist.partitioning.planning import plan
from nfdist.partitioning.sources import counts
from nfdist.remote import fetched

PLANNED = tuple(method for method in METHODS if method != "file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--method", choices=PLANNED, help="how the nodes will be divided (default metis where it fits)")
    parser.set_defaults(out=".")
    parser.add_argument("--json", action="store_true", help="print the plan as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    recipe = recipe_of(options)
    with fetched(recipe.source, PartitionError) as source:
        found = counts(source, recipe.options)
    planned = plan(recipe, found)
    memory = recipe.memory_bytes or host_bytes()
    free = shutil.disk_usage(".").free
    print(
        f"{recipe.source}: {found.nodes:,} nodes, {found.edges:,} edges listed, {planned.stored_edges:,} to store, "
        f"{found.features:,} features"
    )
    for stage in planned.stages:
        beside = f"{stage.scratch_bytes / 2**30:8.2f} GiB of files for a while" if stage.scratch_bytes else ""
        by = f" ({planned.method})" if stage.name == "divide" else ""
        print(f"  {stage.name + by:<16} {stage.peak_bytes / 2**30:8.2f} GiB {stage.seconds:8.0f} s {beside}".rstrip())
    print(f"  disk             {planned.disk_bytes / 2**30:8.2f} GiB of {free / 2**30:.0f} GiB free")
    if planned.peak_bytes > memory:
        has = "--memory allows" if recipe.memory else "this machine has"
        log.warn(f"{has} {memory / 2**30:.1f} GiB, too little for a peak of {planned.peak_bytes / 2**30:.1f} GiB")
    needed = planned.disk_bytes + planned.scratch_bytes
    if needed > free:
        log.warn(f"this disk has {free / 2**30:.1f} GiB free, too little for {needed / 2**30:.1f} GiB")
    if options.json:
        result = {"stages": [asdict(stage) for stage in planned.stages], "stored_edges": planned.stored_edges}
        fits = planned.peak_bytes <= memory and needed <= free
        disk = {"disk_bytes": planned.disk_bytes, "scratch_bytes": planned.scratch_bytes}
        told = {"method": planned.method, "peak_bytes": planned.peak_bytes, **disk, "fits": fits}
        print(json.dumps({**result, **told}))
    return 0
