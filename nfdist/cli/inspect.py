"""nfdist inspect: what a partition, run or checkpoint holds, and whether its checksums hold."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdist import log
from nfdist.errors import CheckpointError, PartitionError
from nfdist.layout import MANIFEST_NAME
from nfdist.runs.checkpoint import STATE_FILE, Checkpoint
from nfdist.runs.describe import checkpoint_lines, describe_checkpoint, describe_run, run_lines
from nfdist.runs.run import RUN_FILE, Run

if TYPE_CHECKING:
    from nfdist.store.manifest import Manifest
    from nfdist.store.store import Store

LOADS = ("nfdist.store.cache", "nfdist.store.store")
EXAMPLES = (
    ("nfdist inspect cora-partition --verify", "what a partition holds; every file is read and compared"),
    ("nfdist inspect runs/cora", "settings, checkpoints and scores of a run"),
    ("nfdist inspect runs/cora/checkpoints/seed-0/step-00000100 --json", "one checkpoint, for scripts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a partition, which may be a URI, a run or a checkpoint")
    parser.add_argument(
        "--verify", action="store_true", help="read every file of a partition too, and compare its checksum"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    from nfdist.store.cache import local_directory

    directory = local_directory(options.directory)
    if Run.holds_run(directory):
        facts = describe_run(Run.open(directory))
        lines = run_lines(facts)
    elif (directory / STATE_FILE).exists() or any(directory.glob("*.safetensors")):
        facts = describe_checkpoint(Checkpoint.open(directory))
        lines = checkpoint_lines(facts)
    else:
        facts, lines = read_partition(directory, options.verify)
    print(f"{options.directory}: " + "\n".join(lines))
    if options.json:
        print(json.dumps(facts))
    problems = facts.get("problems", ())
    if problems:
        others = f" (and {len(problems) - 1} more problems, see above)" if len(problems) > 1 else ""
        raise CheckpointError(f"{problems[0]}{others}")
    return 0


def read_partition(directory: Path, verify: bool) -> tuple[dict[str, Any], list[str]]:
    """The facts of a partition, and its table."""
    from nfdist.store.manifest import Manifest
    from nfdist.store.store import Store

    if directory.is_dir() and not (directory / MANIFEST_NAME).exists():
        raise PartitionError(
            f"{directory} holds no {MANIFEST_NAME}, {RUN_FILE} or {STATE_FILE}: it is no partition, run or checkpoint"
        )
    manifest = Manifest.read(directory)
    if verify:
        total = sum(stored.size_bytes for stored in manifest.files.values())
        with log.progress(total, "verify") as progress:
            manifest.verify(directory, progress.advance)
    facts = describe(manifest, label_histogram(Store.open(directory)), verify)
    return facts, table(facts, manifest)


def describe(manifest: "Manifest", histogram: list[int], verified: bool) -> dict[str, Any]:
    """The facts of a partition, for people and scripts alike."""
    sizes = [part.num_nodes for part in manifest.parts]
    edges = [part.edges for part in manifest.parts]
    return {
        "name": manifest.name,
        "task": manifest.task,
        "classes": manifest.num_classes,
        "nodes": manifest.num_nodes,
        "edges": manifest.num_edges,
        "features": manifest.num_features,
        "feature_kind": f"{manifest.feature_kind} {manifest.feature_dtype}",
        "directed": manifest.directed,
        "edge_weights": manifest.weighted,
        "split": manifest.split_counts,
        "parts": len(manifest.parts),
        "edge_cut": manifest.edge_cut,
        "node_balance": max(sizes) * len(sizes) / max(sum(sizes), 1),
        "edge_balance": max(edges) * len(edges) / max(sum(edges), 1),
        "halo_nodes": [part.halo_nodes for part in manifest.parts],
        "label_histogram": manifest.schema.by_class(histogram),
        "schema": asdict(manifest.schema),
        "bytes": sum(stored.size_bytes for stored in manifest.files.values()),
        "verified": verified,
    }


def label_histogram(store: "Store") -> list[int]:
    """Nodes of every class, or yes answers to every question."""
    import torch

    counts = torch.zeros(store.num_classes, dtype=torch.long)
    for part in store.parts:
        labels = store.labels(torch.arange(part.start, part.stop))
        if labels.ndim == 2:
            counts += (labels == 1).sum(0)
        else:
            counts += torch.bincount(labels[labels >= 0], minlength=store.num_classes)
    return [int(count) for count in counts]


def table(facts: dict[str, Any], manifest: "Manifest") -> list[str]:
    split = ", ".join(f"{name} {count:,}" for name, count in facts["split"].items())
    counted = facts["label_histogram"]
    named = list(counted.items() if isinstance(counted, dict) else enumerate(counted))
    labels = ", ".join(f"{label}: {count:,}" for label, count in sorted(named, key=lambda one: -one[1])[:8])
    share = facts["edge_cut"] / max(facts["edges"], 1)
    edges = f"{'as given' if facts['directed'] else 'both ways'}{', with weights' if manifest.weighted else ''}"
    lines = [
        f"{facts['name']}, {facts['bytes'] / 2**20:,.1f} MiB in {len(manifest.files)} files, "
        + ("checksums hold" if facts["verified"] else "sizes hold (--verify reads everything)"),
        f"  nodes {facts['nodes']:,}, edges {facts['edges']:,} ({edges}), "
        f"{facts['features']:,} features ({facts['feature_kind']}), {facts['task']} task of {facts['classes']} classes",
        f"  split: {split}",
        f"  labels: {labels}" + (", ..." if len(named) > 8 else ""),
        f"  cut edges {facts['edge_cut']:,} ({share:.1%}); the largest part holds {facts['node_balance']:.2f} times "
        f"the mean of nodes and {facts['edge_balance']:.2f} times that of edges",
        f"  {'part':>6}{'nodes':>12}{'edges':>14}{'cut':>14}{'halo':>12}{'train':>12}",
    ]
    for number, part in enumerate(manifest.parts):
        lines.append(
            f"  {number:>6}{part.num_nodes:>12,}{part.edges:>14,}{part.cut_edges:>14,}{part.halo_nodes:>12,}"
            f"{part.train_nodes:>12,}"
        )
    if manifest.schema.is_named:
        lines += [f"  {line}" for line in manifest.schema.lines()]
    return lines
