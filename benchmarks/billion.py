"""A graph of 10^9 nodes on paper: what a host would hold, send and need, by the performance model of `nfdist plan`."""

from dataclasses import replace

from nfdist import settings
from nfdist.config import Config
from nfdist.graph.counts import GraphCounts
from nfdist.graph.division import divide
from nfdist.plan.planned_job import PlannedJob
from nfdist.plan.rates import HostRates, KnownRates
from nfdist.plan.stages import plan_evaluation, plan_training
from nfdist.store.manifest import Part

NODES, DEGREE = 10**9, 29  # stored in-edges a node, as ogbn-papers100M has both ways
FEATURES, CLASSES, LABELED = 128, 172, 0.0139
HOSTS = (8, 16, 32, 64, 128)
BATCH_NODES, LIMIT_BYTES = 100_000, 64 << 30
CUT = 0.31  # of the edges, as --method stream leaves on papers100m-like
GIB = 2**30
SETTINGS = {
    "data": {"partition": "none"},
    "model": {"standardize": False, "layers": 2, "channels": 64, "heads": 1, "random_features": 50}
    | {"activation": "elu", "jumping_knowledge": True},
    "attention": {"noise_draws": 5, "scope": "world"},
    "relation": {"order": 1, "gate": "identity"},
    "train": {"batch_nodes": BATCH_NODES, "edge_loss": 0.01, "evaluate_every": 0, "epochs": 1, "checkpoint_every": 0},
    "evaluate": {"smoothing": "none"},
}


def config() -> Config:
    return settings.parse(SETTINGS, [])


def graph(hosts: int) -> GraphCounts:
    """The counts of the graph with a part for every host."""
    edges = NODES * DEGREE
    parts = tuple(
        Part(
            start=own.start,
            stop=own.stop,
            edges=edges // hosts,
            cut_edges=round(CUT * edges / hosts),
            halo_nodes=min(NODES - len(own), round(CUT * edges / hosts)),
            train_nodes=round(LABELED * len(own)),
        )
        for own in (range(NODES * rank // hosts, NODES * (rank + 1) // hosts) for rank in range(hosts))
    )
    return GraphCounts(
        nodes=NODES,
        edges=edges,
        features=FEATURES,
        outputs=CLASSES,
        entries=None,
        feature_bytes=2,
        label_bytes=8,
        trained=round(LABELED * NODES),
        validated=0,
        parts=parts,
        directed=False,
        weighted=False,
        gaps=False,
        patterns=(edges + NODES,),
    )


def job(hosts: int, rates: HostRates) -> PlannedJob:
    """One rank a host, with attention over all of them and edges within each."""
    return PlannedJob(config(), graph(hosts), KnownRates(rates, True), ranks=hosts, threads=rates.threads)


def part_bytes(counts: GraphCounts, hosts: int) -> float:
    """What a host's part takes on disk: features, labels, ids and splits of nodes, sources and offsets of edges."""
    own = len(divide(counts.parts, hosts)[0])
    source = 4 if counts.nodes < 2**31 else 8
    return own * (counts.row_bytes(counts.feature_bytes) + 8 + 8 + 1 + 8) + counts.edges / hosts * source


def billion_lines(rates: HostRates, link_bytes: float, disk_bytes: float) -> list[str]:
    """A table by the number of hosts, of hosts as fast as the one with these rates, with other links and disks."""
    rates = replace(rates, link_bytes=link_bytes, link_latency_seconds=rates.link_latency_seconds or 2e-4)
    rates = replace(rates, disk_read_bytes=disk_bytes, disk_written_bytes=disk_bytes)
    lines = [
        "| hosts | part on disk | train: memory | bytes sent a step | s a step | an epoch | evaluate: memory | "
        "in files | bytes sent | an evaluation |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for hosts in HOSTS:
        one = job(hosts, rates)
        training = plan_training(one)
        limited = replace(one, limit_bytes=LIMIT_BYTES)
        evaluation = plan_evaluation(limited)
        assert training.step_seconds is not None
        assert training.steps is not None
        cells = [
            str(hosts),
            f"{part_bytes(one.graph, hosts) / GIB:.0f} GiB",
            f"{training.memory_bytes / GIB:.1f} GiB",
            f"{training.sent_bytes:,.0f}",
            f"{training.step_seconds:.2f}",
            _duration(training.step_seconds * training.steps),
            f"{evaluation.memory_bytes / GIB:.1f} GiB",
            f"{limited.sweep(writes=True).in_files / GIB:.0f} GiB",
            f"{evaluation.sent_bytes / GIB:.0f} GiB",
            _duration(evaluation.seconds),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [
        *lines,
        "",
        f"By the model, of {NODES:,} nodes with {DEGREE} in-edges each, {FEATURES} features in float16 and {CLASSES} "
        f"classes; {config().model.layers} layers of {config().model.channels} channels, batches of {BATCH_NODES:,} "
        f"nodes a host, evaluation with --memory {LIMIT_BYTES // GIB}GiB and all its files. A host is one worker of "
        f"{rates.threads} {'thread' if rates.threads == 1 else 'threads'} with the speeds measured here: products "
        f"{rates.product_flops / 1e9:.1f} GFLOP/s, memory {rates.passed_bytes / 1e9:.1f} GB/s, rows gathered "
        f"{rates.gathered_bytes / 1e9:.1f} GB/s; links of {link_bytes / 1e9:g} GB/s and disks of "
        f"{disk_bytes / 1e9:g} GB/s are assumed.",
    ]


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
