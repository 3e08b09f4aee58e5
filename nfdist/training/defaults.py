"""Settings for a graph that nobody has written any for: `nfdist train PARTITION`."""

from typing import Any

import torch

from nfdist.config import Config
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Description, Store

WHOLE_NODES = 60_000  # the largest graph of which every step takes all nodes
BATCH_NODES = 50_000
STEPS = 300  # most epochs of a graph that is one batch; larger ones have as many steps in fewer epochs
LEAST_EPOCHS = 60
LEARNING_RATE = 0.01
SAMPLED_NODES = 50_000
LEAST_EDGES = 50  # among the sampled nodes, to say anything of them
# Of hidden states, and of features where all nodes are one batch, by which a model can learn a graph by heart. Smoothed
# test scores, on 1 to 3 splits:
DROPOUT = 0.5
# Where there are few nodes for each of the words and the like that features are: 0.3 points more than without on Cora
# and 1.1 on Citeseer. On WordNet, in batches, 0.4 less.
SCARCE_INPUT_DROPOUT = 0.5
UNLIKE_DROPOUT = 0.7  # and neighbors are not alike: with both, raw scores rose from 36.65 to 37.75 on Actor
# Where there are many nodes for each of many features there is less to fear: 1.5 points more than with the first on
# 20News, k = 5, most of them by the dropout of features, and 0.8 on Pubmed's validation nodes (raw, 1 split).
LIGHT_DROPOUT, LIGHT_INPUT_DROPOUT = 0.3, 0.2
MANY_FEATURES, MANY_NODES = 100, 10  # for a feature; seen: Citeseer 1, Cora 2, Actor 8, Pubmed 39, 20News 41
# Where alike neighbors are many, their mean says more than a node's own features, which a branch that adds them learns
# by heart: without, a made co-purchase graph (18 neighbors, 767 weak features) rose from 94.1 to 97.1, where a GCN has
# 98.0; Citeseer, with 3 neighbors of many words each, fell from 76.5 to 75.0. Between these nothing was seen.
MANY_NEIGHBORS = 10
# Fewer draws of noise cost less: as good on Pubmed, 0.4 less on Cora (5 splits, smoothed).
SMALL_NODES, DRAWS, FEW_DRAWS = 5_000, 10, 2
ALIKE = 0.3  # more alike than this, and the branch has most of the say; seen: Cora 0.77, Actor 0.0, Deezer 0.05


def training_homophily(store: Store, sampled_nodes: int = SAMPLED_NODES) -> float | None:
    """How much more often than by chance the ends of an edge among training nodes are of one class; 1 is always.

    None where it cannot be said: too few such edges or one class, several labels a node, or parts on other hosts.
    """
    if store.task == "multi" or len(store.held_parts) < len(store.parts):
        return None
    everyone = torch.arange(store.num_nodes)
    trained = (store.split(everyone) == TRAIN).nonzero()[:, 0]
    trained = trained[:: -(-len(trained) // sampled_nodes) or 1]
    graph, labels = store.induced(trained), store.labels(trained)
    ends = torch.stack([labels[graph.sources.long()], labels[graph.targets.long()]])
    ends = ends[:, (graph.sources != graph.targets) & (ends >= 0).all(0)].long()
    if ends.shape[1] < LEAST_EDGES:
        return None
    shares = torch.bincount(ends.flatten(), minlength=store.num_classes) / ends.numel()
    chance = float(shares.square().sum())
    if chance == 1:
        return None  # of one class
    return (float((ends[0] == ends[1]).double().mean()) - chance) / (1 - chance)


def graph_settings(
    graph: Description, model_name: str = "nodeformer", homophily: float | None = None
) -> dict[str, dict[str, Any]]:
    """Sections of settings that suit a graph and a model."""
    alike = homophily is None or homophily >= ALIKE
    crowded = alike and graph.num_edges >= MANY_NEIGHBORS * graph.num_nodes
    batches = -(-graph.num_nodes // BATCH_NODES) if graph.num_nodes > WHOLE_NODES else 1
    epochs = max(LEAST_EPOCHS, STEPS // batches)
    linked, own = graph.num_edges > 0, model_name == "nodeformer"
    dropout, input_dropout = _dropouts(graph, alike) if batches == 1 else (DROPOUT, 0.0)
    return {
        "model": {
            "channels": 64,
            "heads": 1,
            "dropout": dropout,
            "input_dropout": input_dropout,
            "activation": "elu",
            "graph_layers": 2 if linked and own else 0,
            "branch_share": 0.8 if alike else 0.2,
            "branch_residual": not (own and crowded),
            "jumping_knowledge": not alike,
        },
        "attention": {"scope": "world", "noise_draws": DRAWS if graph.num_nodes <= SMALL_NODES else FEW_DRAWS},
        "relation": {"order": int(linked or not own), "gate": "identity", "scope": "world" if own else "rank"},
        "train": {
            "epochs": epochs,
            "early_stop": epochs // 5,
            "batch_nodes": 0 if batches == 1 else BATCH_NODES,
            "learning_rate": LEARNING_RATE,
            "weight_decay": 5e-4,
            "schedule": "cosine",
            "warmup_steps": 10,
            "edge_loss": 0.1 if linked and own else 0.0,
        },
    }


def _dropouts(graph: Description, alike: bool) -> tuple[float, float]:
    """Of hidden states and of features, where all nodes are one batch."""
    if graph.num_features >= MANY_FEATURES and graph.num_nodes >= MANY_NODES * graph.num_features:
        return LIGHT_DROPOUT, LIGHT_INPUT_DROPOUT
    if graph.manifest.feature_kind == "sparse":
        return DROPOUT if alike else UNLIKE_DROPOUT, SCARCE_INPUT_DROPOUT
    return DROPOUT, 0.0


def describe_choice(graph: Description, config: Config, homophily: float | None) -> str:
    """One line that says how a training without settings of its own goes about a graph."""
    batch, model = config.train.batch_nodes, config.model
    said = "all nodes in every step" if batch == 0 else f"batches of {batch:,} of its {graph.num_nodes:,} nodes"
    train = config.train
    said += f", at most {train.epochs} epochs, learning rate {train.learning_rate:g} ({train.schedule})"
    said += f", early stop after {train.early_stop} without progress" if train.early_stop else ""
    said += f", {graph.num_edges:,} edges"
    if homophily is not None:
        more = "more" if homophily >= ALIKE else "hardly more"
        said += f", whose ends are of one class {more} often than by chance ({homophily:.2f}; 0 is chance, 1 always)"
    if model.graph_layers:
        said += f", with {model.branch_share:.0%} of the answer by a branch of graph convolutions"
    if model.input_dropout:
        said += f", {model.input_dropout:.0%} of the features left out of each step"
    return f"settings for this graph: {said}; config.toml in the run has all"
