"""Pictures of what a trained run has learned: its embeddings with their strongest links, and its latent structure."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from experiments import ROOT
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nfdist import seeds
from nfdist.runs.run import Run
from nfdist.store.store import Store

SHOWN_POINTS, SHOWN_LINKS, SHOWN_ROWS = 2000, 1500, 250


@dataclass(frozen=True)
class EvaluatedRun:
    """What an evaluation wrote about some nodes of a graph, with the nodes in the order of `chosen`."""

    store: Store
    chosen: NDArray[np.int64]
    labels: NDArray[np.int64]
    embeddings: NDArray[np.float32]
    neighbors: pd.DataFrame


def evaluated_run(run: Path, count: int) -> EvaluatedRun:
    """Evaluate a run and ask for the strongest neighbors of some of its labeled nodes: `count`, or 0 for all."""
    store = Store.open(Run.open(run).config.data.partition)
    limit = SHOWN_POINTS if count else SHOWN_ROWS
    every = ["--count", str(count or store.num_nodes)]
    evaluate(run, [])
    known = pd.read_parquet(run / "predictions.parquet", columns=["id", "true_label"])
    known = known[known.true_label.notna() & (known.true_label >= 0)]
    order = seeds.numpy_generator(0, "picture").permutation(len(known))[:limit]
    known = known.iloc[np.sort(order)].sort_values("true_label", kind="stable")
    listed = run / "chosen.txt"
    listed.write_text("".join(f"{original_id}\n" for original_id in known.id))
    evaluate(run, ["--top-neighbors", str(listed), *every])
    embeddings = pd.read_parquet(run / "embeddings.parquet").set_index("id").embedding.loc[known.id]
    return EvaluatedRun(
        store,
        known.id.to_numpy(),
        known.true_label.to_numpy().astype(np.int64),
        np.stack(embeddings.to_numpy()),
        pd.read_parquet(run / "neighbors.parquet"),
    )


def evaluate(run: Path, options: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "nfdist", "evaluate", str(run), "--no-states", *options]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


def draw_embeddings(run: EvaluatedRun) -> Figure:
    """The chosen nodes by t-SNE of their embeddings, joined where the last layer's weights are largest."""
    from sklearn.manifold import TSNE  # imported late: only the pictures need it

    places = TSNE(init="pca", random_state=0, perplexity=30).fit_transform(run.embeddings)
    links = strongest_links(run, SHOWN_LINKS)
    figure, panel = plt.subplots(figsize=(7, 6.5), constrained_layout=True)
    segments = [(places[source], places[target]) for source, target in links]
    panel.add_collection(LineCollection(segments, colors="0.6", linewidths=0.3, alpha=0.5, zorder=1))
    panel.scatter(places[:, 0], places[:, 1], c=run.labels, cmap="tab10", s=6, zorder=2)
    panel.set_xticks([])
    panel.set_yticks([])
    return figure


def strongest_links(run: EvaluatedRun, most: int) -> list[tuple[int, int]]:
    """The pairs of chosen nodes with the largest weights in the last layer, by their rows, without self-links."""
    rows = {original_id: row for row, original_id in enumerate(run.chosen)}
    last = run.neighbors[run.neighbors.layer == run.neighbors.layer.max()]
    found = [
        (weight, rows[neighbor], rows[own])
        for own, neighbors, weights in zip(last.id, last.neighbors, last.weights, strict=True)
        for neighbor, weight in zip(neighbors, weights, strict=True)
        if neighbor in rows and neighbor != own
    ]
    return [(source, target) for _, source, target in sorted(found, reverse=True)[:most]]


def draw_structure(run: EvaluatedRun) -> Figure:
    """The attention weights of every layer among the chosen nodes, sorted by class, beside the input graph."""
    layers = sorted(run.neighbors.layer.unique())
    figure, panels = plt.subplots(1, len(layers) + 1, figsize=(4.4 * (len(layers) + 1), 4.4), constrained_layout=True)
    graph = run.store.induced(run.store.node_ids(run.chosen))
    pattern = np.zeros((len(run.chosen), len(run.chosen)))
    pattern[graph.targets.numpy(), graph.sources.numpy()] = 1
    panels[0].imshow(pattern, cmap="gray_r", interpolation="nearest")
    panels[0].set_title("input graph")
    for panel, layer in zip(panels[1:], layers, strict=True):
        weights = weights_among(run, layer)
        low, high = np.quantile(weights, [0.01, 0.999])
        shown = panel.imshow(weights, cmap="viridis", norm=LogNorm(max(low, 1e-12), max(high, 1e-11)))
        panel.set_title(f"attention of layer {layer}")
        figure.colorbar(shown, ax=panel, shrink=0.7)
    borders = np.flatnonzero(np.diff(run.labels)) + 0.5
    for panel in panels:
        panel.set_xticks(borders, [])
        panel.set_yticks(borders, [])
    return figure


def weights_among(run: EvaluatedRun, layer: int) -> NDArray[np.float64]:
    """The weights [chosen, chosen] of a layer, a row for each listening node."""
    rows = {original_id: row for row, original_id in enumerate(run.chosen)}
    matrix = np.zeros((len(run.chosen), len(run.chosen)))
    own = run.neighbors[run.neighbors.layer == layer]
    for original_id, neighbors, weights in zip(own.id, own.neighbors, own.weights, strict=True):
        for neighbor, weight in zip(neighbors, weights, strict=True):
            if neighbor in rows:
                matrix[rows[original_id], rows[neighbor]] = weight
    return matrix
