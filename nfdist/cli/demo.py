"""nfdist demo: make a graph, partition it, train and evaluate on it with two workers, label new nodes, and report.

That takes less than a minute. Every step is a command that is printed first, so that it can be repeated by hand.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nfdist.children import Children
from nfdist.errors import ConfigError, NfdistError

LOADS = ()
EXAMPLES = (
    ("nfdist demo", "in a new folder under /tmp"),
    ("nfdist demo --dir demo --epochs 30", "longer, in a folder of its own"),
    ("nfdist demo --workers 4 --scale 0.05", "more workers, a larger graph"),
)
CONFIG = """\
# The paper's Amazon2M setting, for a graph of its shape at a hundredth of its size.
[data]
partition = "{folder}/graph"

[model]
layers = 3
channels = 64
heads = 1
random_features = 50
activation = "elu"
jumping_knowledge = true

[attention]
noise_draws = 5
scope = "world"         # every node attends to the batches of both workers

[relation]
order = 1
gate = "identity"

[train]
epochs = {epochs}
batch_nodes = 2000      # of each worker
learning_rate = 1e-2
edge_loss = 0.01
evaluate_every = 2

[run]
dir = "{folder}/run"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="where graph and run go; must not exist (default: a new folder)")
    parser.add_argument("--scale", type=float, default=0.01, help="size of the graph, as a share of Amazon2M's nodes")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the results as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    for name in ("epochs", "workers"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {getattr(options, name)}")
    folder = _make_folder(options.dir)
    config = folder / "demo.toml"
    config.write_text(CONFIG.format(folder=folder, epochs=options.epochs))
    parts = ["--scale", f"{options.scale:g}", "--parts", str(2 * options.workers)]
    workers = ["torchrun", "--standalone", "--nproc-per-node", str(options.workers), "-m", "nfdist"]
    results = {
        "partition": _step(["nfdist", "partition", "amazon2m-like", *parts, "--out", f"{folder}/graph"]),
        "train": _step([*workers, "train", str(config)]),
        "evaluate": _step([*workers, "evaluate", f"{folder}/run"]),
    }
    likenesses = write_new_nodes(folder / "graph", folder / "new.parquet")
    out = f"{folder}/new-labels.parquet"
    results["predict"] = _step(["nfdist", "predict", f"{folder}/run", f"{folder}/new.parquet", "--out", out])
    print(describe_new_nodes(Path(out), likenesses))
    results["report"] = _step(["nfdist", "report", f"{folder}/run"])
    best = results["train"]["best"]
    print(
        f"\n{results['partition']['nodes']:,} nodes and {results['partition']['edges']:,} edges, "
        f"{options.workers} workers: test accuracy {best['test']:.3f} after epoch {best['epoch']}.\n"
        f"Everything is in {folder}. The page that explains the run, to open in a browser:\n{results['report']['out']}"
    )
    if options.json:
        print(json.dumps(results))
    return 0


def write_new_nodes(graph: Path, path: Path, count: int = 5) -> list[tuple[Any, int]]:
    """Write nodes that resemble some of a graph and have their neighbors; the ids and labels of these."""
    import pyarrow as pa  # here, since all other steps are processes of their own
    import pyarrow.parquet as pq
    import torch

    from nfdist import seeds
    from nfdist.store.store import Store

    store = Store.open(graph)
    chosen = torch.linspace(0, store.num_nodes - 1, count).long()
    features = store.take(chosen)
    features += 0.1 * torch.randn(features.shape, generator=seeds.generator(0, "new nodes"))
    around = store.induced(chosen, torch.arange(store.num_nodes))
    neighbors = [
        store.original_ids(sources.long()).tolist() for sources in around.sources.split(around.in_degrees.tolist())
    ]
    ids = [f"new-{number}" for number in range(count)]
    pq.write_table(pa.table({"id": ids, "features": features.tolist(), "neighbors": neighbors}), path)
    return list(zip(store.original_ids(chosen).tolist(), store.labels(chosen).tolist(), strict=True))


def describe_new_nodes(path: Path, likenesses: list[tuple[Any, int]]) -> str:
    """What was predicted of new nodes, beside the labels of those they resemble."""
    import pyarrow.parquet as pq

    rows = zip(pq.read_table(path).to_pylist(), likenesses, strict=True)
    return "\n".join(
        f"  {row['id']}: class {row['label']} with probability {row['probability']:.2f}; "
        f"it resembles node {node} of class {label}"
        for row, (node, label) in rows
    )


def _make_folder(wanted: str | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="nfdist-demo-"))
    folder = Path(wanted)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"--dir {folder} cannot be made: {error.strerror}") from None
    return folder


def _step(words: list[str]) -> dict[str, Any]:
    """Show a command, run it in this environment, and return what its --json line says."""
    print(f"$ {shlex.join(words)}", flush=True)
    module = {"nfdist": "nfdist", "torchrun": "nfdist.cli.torchrun"}[words[0]]
    # A worker with all the cores of the host would only be in the way of the others.
    environment = {"OMP_NUM_THREADS": "1", **os.environ} if module != "nfdist" else dict(os.environ)
    command = [sys.executable, "-m", module, *words[1:], "--json"]
    with Children() as children:
        process = children.start(command, environment, stdout=subprocess.PIPE, text=True)
        output, _ = process.communicate()
    lines = output.splitlines()
    print("\n".join(lines[:-1]), flush=True)
    if process.returncode:
        raise NfdistError(f"{words[0]} ended with exit code {process.returncode}: its own message is above")
    return dict(json.loads(lines[-1]))
