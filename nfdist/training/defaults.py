"""Settings for a graph that nobody has written any for: `nfdist train PARTITION`."""

from typing import Any

from nfdist.store.store import Description

WHOLE_NODES = 60_000  # the largest graph of which every step takes all nodes
BATCH_NODES = 50_000
STEPS = 300  # most epochs of a graph that is one batch; larger ones have as many steps in fewer epochs
LEAST_EPOCHS = 60


def graph_settings(graph: Description, model_name: str = "nodeformer") -> tuple[dict[str, dict[str, Any]], str]:
    """Sections of settings that suit a graph and a model, and one line that says which of them follow from it."""
    batches = -(-graph.num_nodes // BATCH_NODES) if graph.num_nodes > WHOLE_NODES else 1
    epochs = max(LEAST_EPOCHS, STEPS // batches)
    linked, own = graph.num_edges > 0, model_name == "nodeformer"
    chosen: dict[str, dict[str, Any]] = {
        "model": {
            "channels": 64,
            "heads": 1,
            "dropout": 0.5,
            "activation": "elu",
            "graph_layers": 2 if linked and own else 0,
            "branch_share": 0.8,
        },
        "attention": {"scope": "world"},
        "relation": {"order": int(linked or not own), "gate": "identity", "scope": "world" if own else "rank"},
        "train": {
            "epochs": epochs,
            "early_stop": epochs // 5,
            "batch_nodes": 0 if batches == 1 else BATCH_NODES,
            "learning_rate": 0.01,
            "weight_decay": 5e-4,
            "schedule": "cosine",
            "warmup_steps": 10,
            "edge_loss": 0.1 if linked and own else 0.0,
        },
    }
    size = "all nodes in every step" if batches == 1 else f"batches of {BATCH_NODES:,} of its {graph.num_nodes:,} nodes"
    edges = f"{graph.num_edges:,} edges{' and a branch of graph convolutions' if linked and own else ''}"
    return chosen, f"settings for this graph: {size}, at most {epochs} epochs, {edges}; config.toml in the run has all"
