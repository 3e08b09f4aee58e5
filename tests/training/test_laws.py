"""Law (c) through the real trainer: worlds of 1, 2 and 3 train the same weights, and a resumed run is bit-equal."""

from pathlib import Path

import pytest
import torch

from nfdist import seeds, settings
from nfdist.config import Config
from nfdist.graph.relation import Relation
from nfdist.model.nodeformer import NodeFormer
from nfdist.model.protocol import Draw
from nfdist.model.task import Task
from nfdist.store.hops import Hops
from nfdist.store.source_graph import TRAIN
from nfdist.store.store import Store
from nfdist.training.sampling import Pools, Position
from nfdist.world import World
from tests.comparing import difference
from tests.training.building import (
    build_lopsided_partition,
    build_partition,
    config_of,
    flat_weights,
    resumed,
    run_training,
    several,
    step_losses,
)
from tests.training.launching import training_of
from tests.worlds import run_world

SIZES = (1, 2, 3)
WAYS = ((1, 0.0), (4, 0.4))  # batches a step, and the share of labels that are inputs


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.fixture(scope="module")
def lopsided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lopsided_partition(tmp_path_factory.mktemp("lopsided") / "partition")


# A world of R with batches of B, and what one process does with batches of R x B: five or more steps, of one epoch
# where that has as many.
SAME = {
    "batches": ["train.batch_nodes={batch}", "train.epochs=2"],
    "training nodes only": ["train.batch_nodes={batch}", "train.batch_from=train"],
    "whole graph": ["train.batch_nodes=0", "train.epochs=5"],
    # Of three ranks the first has nothing to train on.
    "own parts": ["train.batch_nodes=400", "train.sampling=local", "train.epochs=5", "train.batch_from=train"],
    "edges by node, clipped": ["train.batch_nodes={batch}", "train.edge_loss_mean=nodes", "train.clip_norm=0.1"],
    "epsilon, order 1": ["train.batch_nodes={batch}", "attention.epsilon=1e-6", "relation.order=1"],
    "accumulated, averaged": ["train.batch_nodes={batch}", "train.accumulate=2", "train.ema=0.9", "train.epochs=2"],
    "powers, feed-forward": [
        "train.batch_nodes={batch}",
        "relation.kind=power",
        "relation.order=3",
        "model.feed_forward=2",
    ],
    "no graph": ["train.batch_nodes={batch}", "relation.order=0", "train.edge_loss=0"],
    "recomputed": ["train.batch_nodes=0", "train.epochs=5", "train.recompute=always"],
    "labels given": ["train.batch_nodes=0", "train.epochs=5", "train.label_inputs=0.4", "model.graph_layers=1"],
}


def test_worlds_of_any_size_train_the_same_weights(graph: Path, lopsided: Path, tmp_path: Path) -> None:
    for size in SIZES:
        configs = [
            config_of(
                lopsided if name == "own parts" else graph,
                tmp_path / f"{name}-{size}",
                "train.epochs=1",
                *(text.format(batch=48 // size) for text in overrides),
            )
            for name, overrides in SAME.items()
        ]
        run_world(size, several, [settings.dump(config) for config in configs])
    for name in SAME:
        alone = tmp_path / f"{name}-1"
        assert len(step_losses(alone)) >= 5
        for size in SIZES[1:]:
            together = tmp_path / f"{name}-{size}"
            losses, wanted = (torch.tensor(step_losses(run), dtype=torch.float64) for run in (together, alone))
            assert difference(losses, wanted) < 1e-9, (name, size)
            assert difference(flat_weights(together), flat_weights(alone)) < 1e-8, (name, size)
    kept, again = (torch.tensor(step_losses(tmp_path / f"{name}-1")) for name in ("whole graph", "recomputed"))
    assert difference(again, kept) < 1e-10


def test_ranks_by_themselves_average_their_batches(graph: Path, tmp_path: Path) -> None:
    """Scope "rank": the world's weights are those of one process that adds up the losses of every rank's batch.

    With several batches a step, of which an epoch's last has fewer, their gradients are averaged.
    """
    scopes = ["attention.scope=rank", "relation.scope=rank", "train.batch_nodes=41"]
    for size in SIZES:
        ways = {(accumulate, share): tmp_path / f"run-{size}-{accumulate}-{share}" for accumulate, share in WAYS}
        epochs = f"train.epochs={min(size, 2)}"
        given = [(epochs, f"train.accumulate={count}", f"train.label_inputs={share}") for count, share in ways]
        configs = [config_of(graph, run, *scopes, *own) for run, own in zip(ways.values(), given, strict=True)]
        run_world(size, several, [settings.dump(config) for config in configs])
        for (accumulate, share), run in ways.items():
            wanted = explicit(graph, size, accumulate, share, steps=len(step_losses(run)))
            assert difference(flat_weights(run), wanted) < 1e-8


def explicit(graph: Path, size: int, accumulate: int, share: float, steps: int) -> torch.Tensor:
    """The training loop of several ranks and batches a step, spelled out in one process."""
    store = Store.open(graph)
    config = config_of(graph, graph)
    task = Task(store.task, store.num_classes)
    model = NodeFormer(
        store.num_features,
        task.num_classes,
        config.model,
        config.attention,
        config.relation,
        seed=0,
        label_inputs=share > 0,
    ).double()
    trained = store.take((store.split(torch.arange(store.num_nodes)) == TRAIN).nonzero()[:, 0]).double()
    model.input.set_statistics(trained.mean(0), trained.std(0, correction=0))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.learning_rate)
    hops = Hops.open(store, config.relation.order)
    pools, position = Pools([torch.arange(store.num_nodes)], None, size, 41, seed=0), Position()
    for _ in range(steps):
        losses: list[torch.Tensor] = []
        epoch = position.epoch
        while len(losses) < accumulate and position.epoch == epoch:
            number = position.batch
            batches, position = pools.take(position)
            losses.append(ranks_loss(store, hops, model, task, config, batches, number, share))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    return torch.cat([tensor.detach().flatten() for _, tensor in sorted(model.state_dict().items())])


def ranks_loss(
    store: Store,
    hops: Hops,
    model: NodeFormer,
    task: Task,
    config: Config,
    batches: list[torch.Tensor],
    number: int,
    share: float,
) -> torch.Tensor:
    """The loss of the batches that all ranks take at once.

    Training nodes whose hash is low give their labels, which neither the loss nor its count has.
    """
    patterns = [[hops.induced(hop, ids) for hop in (1, 2)] for ids in batches]
    edges = sum(pattern[0].num_edges for pattern in patterns)
    everyone = torch.arange(store.num_nodes)
    hashes = seeds.hash_ids(torch.tensor(seeds.derive(0, "label inputs", number)), everyone)
    given = (store.split(everyone) == TRAIN) & (hashes % 2**31 < share * 2**31)
    trained_on = (store.split(everyone) == TRAIN) & ~given
    labels = sum(int(trained_on[ids].sum()) for ids in batches)
    loss = torch.zeros((), dtype=torch.float64)
    for ids, (near, far) in zip(batches, patterns, strict=True):
        relations = [Relation.build(pattern, dtype=torch.float64) for pattern in (near, far)]
        scale = model.auxiliary_scale(config.train.edge_loss, edges)
        draw = Draw(0, number, ids, store.labels(ids).where(given[ids], -1) if share else None)
        output = model(store.take(ids).double(), relations, draw, auxiliary_scale=scale)
        chosen = trained_on[ids]
        loss = loss + task.loss(output.logits[chosen], store.labels(ids)[chosen]).total / labels
        loss = loss + output.auxiliary_loss
    return loss


# Of worlds of two tests/training/test_torchrun.py has some.
@pytest.mark.parametrize(
    ("size", "step", "more"),
    [
        (1, 4, ("train.accumulate=2", "train.ema=0.9", "model.input_dropout=0.2")),
        (1, 6, ("train.recompute=always", "model.graph_layers=1")),
        (3, 5, ()),
        (3, 7, ("relation.kind=power", "model.feed_forward=2", "train.label_inputs=0.3")),
        (3, 4, ("train.accumulate=2", "train.ema=0.9", "model.input_dropout=0.2")),
        (3, 6, ("train.recompute=always", "model.graph_layers=1")),
    ],
)
def test_a_resumed_run_is_bit_equal(graph: Path, tmp_path: Path, size: int, step: int, more: tuple[str, ...]) -> None:
    """Ten batches at once, and some, an end (between epochs or within one), and the rest; all randomness on."""
    options = ["train.precision=float32", f"train.batch_nodes={-(-245 // 5 // size)}", "train.evaluate_every=1"]
    keeping = ["train.checkpoint_every=1", "train.keep=20", "attention.scope=world", "relation.scope=rank"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    texts = [settings.dump(config_of(graph, run, *options, *keeping, *more)) for run in (whole, cut)]
    run_world(size, resumed, *texts, str(whole), step)
    assert len(step_losses(whole)) == (6 if "train.accumulate=2" in more else 10)
    assert training_of(cut) == training_of(whole)


def test_powers_leave_no_files_beside_the_partition(tmp_path: Path) -> None:
    path = build_partition(tmp_path / "partition")
    config = config_of(path, tmp_path / "run", "relation.kind=power", "train.evaluate_every=1", "train.epochs=1")
    run_training(World(), settings.dump(config))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["partition", "run"]
