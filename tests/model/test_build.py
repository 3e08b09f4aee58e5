import pytest

from nfdist import settings
from nfdist.config import Config, ModelConfig, RelationConfig, TrainConfig
from nfdist.errors import ConfigError
from nfdist.model.build import build_model, check_settings, count_weights


@pytest.mark.parametrize(
    ("overrides", "outputs"),
    [
        (["model.channels=60000", "model.heads=400"], 3),
        ([], 10**10),
        (["model.name=gcn", "model.channels=65536"], 10**8),
    ],
)
def test_a_model_beyond_the_memory_of_the_host_is_refused(overrides: list[str], outputs: int) -> None:
    usual = ["relation.order=1", "train.edge_loss=0"]
    with pytest.raises(ConfigError, match=r"needs about [\d,]+ GiB, this host has \d+: make \[model\] smaller"):
        build_model(settings.parse({}, [*usual, *overrides]), 10, outputs)


def test_a_feed_forward_block_counts_in_that_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfdist.model.build.host_bytes", lambda: 8 << 20)
    narrow = ["model.channels=64", "model.heads=1"]
    build_model(settings.parse({}, narrow), 10, 3)
    with pytest.raises(ConfigError, match="this host has 0: make"):
        build_model(settings.parse({}, [*narrow, "model.feed_forward=64"]), 10, 3)


@pytest.mark.parametrize(
    "overrides", [[], ["model.join_heads=mean"], ["model.feed_forward=2", "model.heads=3"], ["model.name=vgcn"]]
)
def test_weights_are_counted_as_many_as_there_are(overrides: list[str]) -> None:
    config = settings.parse({}, ["model.channels=64", *overrides])
    numbers = sum(parameter.numel() for parameter in build_model(config, 100, 10, num_nodes=800).parameters())
    assert count_weights(config, 100, 10, 800) == pytest.approx(numbers, rel=0.03)


@pytest.mark.parametrize(
    ("name", "order", "edge_loss", "normalize", "message"),
    [
        (
            "gcn",
            2,
            0.1,
            True,
            "model.name = gcn needs other settings: set relation.order=1 (is 2) and train.edge_loss=0",
        ),
        ("gat", 0, 0.0, True, "model.name = gat needs other settings: set relation.order=1 (is 0)"),
        ("mlp", 2, 0.0, True, "model.name = mlp needs other settings: set relation.order=0 (is 2)"),
        ("mlp", 1, 0.5, True, "model.name = mlp needs other settings: set train.edge_loss=0 (is 0.5)"),
        ("sgc", 1, 0.0, False, "model.name = sgc needs other settings: set relation.normalize=true (is false)"),
        ("idgl", 2, 0.5, True, "model.name = idgl needs other settings: set relation.order=1 (is 2)"),
    ],
)
def test_a_baseline_says_which_settings_it_needs(
    name: str, order: int, edge_loss: float, normalize: bool, message: str
) -> None:
    config = Config(
        model=ModelConfig(name=name),
        relation=RelationConfig(order=order, normalize=normalize),
        train=TrainConfig(edge_loss=edge_loss),
    )
    with pytest.raises(ConfigError) as refused:
        check_settings(config)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.name=gcn", "train.label_inputs=0.5"],
            "model.name = gcn needs other settings: set train.label_inputs=0 (is 0.5)",
        ),
        (["model.name=gin"], "model.name must be one of nodeformer, mlp, gcn, "),
        (["model.name=idgl", "model.layers=3"], "model.layers must be 2 for idgl, got 3"),
        (["model.name=gcn", "model.idgl.anchors=5"], "model.idgl.anchors = 5 is for idgl: set it to 0 for gcn"),
        (["model.dropedge.edge_dropout=0.5"], "model.dropedge.edge_dropout = 0.5 is for dropedge: set it to 0.0 for"),
        (
            ["model.name=gcn", "model.feed_forward=2"],
            "model.name = gcn needs other settings: set model.feed_forward=0 (is 2)",
        ),
        (
            ["model.name=gcn", "model.join_heads=mean"],
            "model.name = gcn needs other settings: set model.join_heads=linear (is mean)",
        ),
        (
            ["model.name=gat", "relation.kind=power"],
            "model.name = gat needs other settings: set relation.kind=pattern (is power)",
        ),
        (["model.name=dropedge"], "model.dropedge.edge_dropout must be above 0 for dropedge, got 0.0: or use gcn"),
    ],
)
def test_settings_that_a_model_cannot_have_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_settings(settings.parse({}, ["relation.order=1", "train.edge_loss=0", *overrides]))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", ["gat", "mlp"])
def test_a_model_without_use_of_edge_weights_refuses_them(name: str) -> None:
    config = settings.parse(
        {}, [f"model.name={name}", "relation.order=1", "train.edge_loss=0", "relation.weights=true"]
    )
    with pytest.raises(ConfigError, match=f"model.name = {name} needs other settings: set relation.weights=false"):
        check_settings(config)


def test_without_a_graph_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"relation\.weights = true is of edges, and relation\.order is 0"):
        settings.parse({}, ["relation.order=0", "train.edge_loss=0", "relation.weights=true"])
