"""nfdist demo: train NodeFormer on real images, without any graph and with a k-NN graph, in under a minute."""

import argparse
import json
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from nfdist import log, seeds
from nfdist.config import AttentionConfig, ModelConfig, RelationConfig
from nfdist.errors import ConfigError
from nfdist.model.nodeformer import Draw, NodeFormer
from nfdist.model.relation import Relation, build_relations
from nfdist.model.task import Task
from nfdist.sparse.knn import knn_graph


@dataclass(frozen=True)
class Digits:
    """scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, halved into training and held-out quarters."""

    features: Tensor
    labels: Tensor
    train: Tensor
    valid: Tensor
    test: Tensor

    @staticmethod
    def load(seed: int) -> "Digits":
        from sklearn.datasets import load_digits

        images = load_digits()
        order = torch.randperm(len(images.target), generator=seeds.generator(seed, "split"))
        half, quarter = len(order) // 2, len(order) // 4
        train, valid, test = order.split([half, quarter, len(order) - half - quarter])
        return Digits(torch.from_numpy(images.data).float() / 16, torch.from_numpy(images.target), train, valid, test)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=100, help="passes over the images for each of the two runs")
    parser.add_argument("--neighbors", type=int, default=5, help="k of the k-NN graph")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the results as one line, the last of stdout")


def run(options: argparse.Namespace) -> int:
    if options.epochs < 1:
        raise ConfigError(f"--epochs must be at least 1, got {options.epochs}")
    digits = Digits.load(options.seed)
    graph = knn_graph(digits.features, options.neighbors)
    print(
        f"digits: {len(digits.labels):,} images, {len(digits.train)} to train on; k-NN graph: {graph.num_edges:,} edges"
    )
    results = {}
    for name, order, edge_loss in (("no graph", 0, 0.0), ("k-NN graph", 2, 0.1)):
        relations = build_relations(graph, order) if order else []
        results[name] = train(digits, relations, edge_loss, options.epochs, options.seed, name)
        valid, test, seconds = results[name]
        print(f"{name:>12}: test accuracy {test:.4f} at the best validation accuracy {valid:.4f}, {seconds:.1f} s")
    if options.json:
        keys = ("valid", "test", "seconds")
        print(json.dumps({name: dict(zip(keys, result, strict=True)) for name, result in results.items()}))
    return 0


def train(
    digits: Digits, relations: list[Relation], edge_loss: float, epochs: int, seed: int, title: str
) -> tuple[float, float, float]:
    """Best validation accuracy, the test accuracy of that epoch, and seconds."""
    started = time.perf_counter()
    task = Task("single", 10)
    model = NodeFormer(
        digits.features.shape[1],
        task.num_classes,
        ModelConfig(layers=2, channels=64, heads=1, random_features=30, dropout=0.5, jumping_knowledge=True),
        AttentionConfig(noise_draws=5),
        RelationConfig(order=len(relations)),
        seed=seed,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    node_ids = torch.arange(len(digits.labels))
    scale = model.edge_scale(edge_loss, relations[0].adjacency.num_edges) if relations else 0.0
    best, best_test = 0.0, 0.0
    with log.progress(epochs, title) as progress:
        for epoch in range(epochs):
            model.train()
            output = model(digits.features, relations, Draw(seed, epoch, node_ids), edge_scale=scale)
            loss = task.loss(output.logits[digits.train], digits.labels[digits.train]).mean
            if output.edge_log_likelihood is not None:
                loss = loss + output.edge_log_likelihood
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                predicted = model(digits.features, relations, Draw(seed, epoch, node_ids)).logits.argmax(1)
            right = (predicted == digits.labels).float()
            valid, test = float(right[digits.valid].mean()), float(right[digits.test].mean())
            if valid > best:
                best, best_test = valid, test
            progress.advance(note=f"loss {loss.item():.3f}  valid {valid:.3f}")
    return best, best_test, time.perf_counter() - started
