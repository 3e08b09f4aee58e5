"""States answer for the very model, graph and settings they were made from, and for no others."""

from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nfdist.config import AttentionConfig
from nfdist.errors import CheckpointError
from nfdist.evaluation import states as states_module
from nfdist.evaluation.states import States
from nfdist.fields import setting
from nfdist.model.loading import TrainedModel
from nfdist.store.store import Store
from tests.comparing import difference
from tests.evaluation.building import POWERS, write_graph
from tests.evaluation.trained import TWO_HOPS, evaluate_with_states, trained_model
from tests.model.reference import adjacency_matrix, weighted


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(write_graph(tmp_path_factory.mktemp("graph") / "undirected", "undirected", 3))


def made(graph: Store, run: Path) -> TrainedModel:
    trained = trained_model(TWO_HOPS, graph)
    evaluate_with_states(run, trained, graph)
    return trained


def test_they_are_what_the_evaluation_saw(graph: Store, tmp_path: Path) -> None:
    trained = trained_model(TWO_HOPS, graph)
    evaluation, _ = evaluate_with_states(tmp_path, trained, graph)
    opened = States.open(tmp_path, trained)
    for kept, seen in zip(opened.summaries, evaluation.summaries, strict=True):
        assert torch.equal(kept.log_mass, seen.log_mass)
        assert torch.equal(kept.mean, seen.mean)
    assert [len(rows) for rows in opened.hidden] == [graph.num_nodes] * len(opened.summaries)


def test_partial_sums_of_powers_are_those_of_the_definition(graph: Store, tmp_path: Path) -> None:
    """y_2 = h M_2 + b_2 + Â (h M_3 + b_3) and y_1 = h M_1 + b_1 + Â y_2 in every layer."""
    trained = trained_model(POWERS, graph)
    model = trained.nodeformer("this test")
    evaluation, _ = evaluate_with_states(tmp_path, trained, graph)
    everyone = torch.arange(graph.num_nodes)
    step = weighted(adjacency_matrix(graph.induced(everyone), torch.float64), True)
    opened = States.open(tmp_path, trained)
    for index, (hidden, summary) in enumerate(zip(opened.hidden, evaluation.summaries, strict=True), start=1):
        bound = model.bind(index, model.evaluation_kernel(trained.evaluation_seed, index, step), summary)
        terms = [hidden.rows() @ maps.T + offset for maps, offset in zip(bound.maps, bound.offsets, strict=True)]
        second = terms[1] + step @ terms[2]
        wanted = terms[0] + step @ second, second
        for kept, sums in zip(opened.partials[index - 1], wanted, strict=True):
            assert difference(kept.rows(), sums.detach()) < 1e-10


@pytest.mark.parametrize("changed", [{"step": 11}, {"seed": 5}, {"fingerprint": "another"}])
def test_those_of_another_model_are_refused(changed: dict[str, Any], graph: Store, tmp_path: Path) -> None:
    trained = made(graph, tmp_path)
    with pytest.raises(CheckpointError, match="with other weights or settings"):
        States.open(tmp_path, replace(trained, **changed))


def test_another_answering_setting_refuses_them_and_one_of_training_does_not(graph: Store, tmp_path: Path) -> None:
    trained = made(graph, tmp_path)
    config = trained.config
    States.open(tmp_path, replace(trained, config=replace(config, train=replace(config.train, learning_rate=0.5))))
    colder = replace(config, attention=replace(config.attention, eval_temperature=0.125))
    with pytest.raises(CheckpointError, match="with other weights or settings"):
        States.open(tmp_path, replace(trained, config=colder))


@pytest.mark.parametrize(("value", "good"), [("as ever", True), ("anew", False)])
def test_a_setting_that_came_later_refuses_them_only_where_it_changes_something(
    value: str, good: bool, graph: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = made(graph, tmp_path)
    added = ("way", str, setting("anew", "how it is done", before="as ever"))
    Attention = make_dataclass("Attention", [added], bases=(AttentionConfig,), frozen=True)  # noqa: N806

    @dataclass(frozen=True)
    class Later(type(trained.config)):  # type: ignore[misc]
        attention: Attention = field(default_factory=Attention)  # type: ignore[valid-type]

    monkeypatch.setattr(states_module, "Config", Later)
    sections = {name: getattr(trained.config, name) for name in ("data", "model", "relation", "train")}
    later = replace(trained, config=Later(**sections, attention=Attention(**vars(trained.config.attention), way=value)))
    if good:
        States.open(tmp_path, later)
    else:
        with pytest.raises(CheckpointError, match="with other weights or settings"):
            States.open(tmp_path, later)
