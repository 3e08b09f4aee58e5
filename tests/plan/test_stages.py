"""Which stages a job has, and what each says of disk, traffic and steps."""

from pathlib import Path

import pytest

from nfdist.plan.stages import plan_evaluation, plan_stages, plan_training
from tests.plan.building import job_of
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


@pytest.mark.parametrize(
    ("overrides", "trains", "names"),
    [
        ((), True, ["train", "evaluate", "predict"]),
        (("relation.order=2",), True, ["hops", "train", "evaluate", "predict"]),
        (("relation.order=2", "relation.kind=power"), True, ["train", "evaluate", "predict"]),
        ((), False, ["evaluate", "predict"]),
        (("model.name=gat", "train.edge_loss=0"), True, ["train", "evaluate"]),
    ],
)
def test_the_stages_of_a_job(overrides: tuple[str, ...], trains: bool, names: list[str], graph: Path) -> None:
    stages = plan_stages(job_of(graph, *overrides), trains=trains)
    assert [stage.name for stage in stages] == names
    assert all(stage.memory_bytes > 0 and stage.disk_bytes > 0 and stage.seconds > 0 for stage in stages)


def test_steps_are_those_of_all_epochs_and_seeds(graph: Path) -> None:
    job = job_of(graph, "train.batch_nodes=50", "train.epochs=7", "train.seeds=[1,2]", "train.accumulate=2")
    stage = plan_training(job)
    assert stage.steps == 2 * 7 * 3  # 245 nodes are 5 batches
    assert stage.sent_bytes == 0
    assert plan_training(job_of(graph, "train.batch_nodes=50", ranks=2)).sent_bytes > 0


def test_the_traffic_of_attention_does_not_grow_with_the_graph(graph: Path) -> None:
    given = ("attention.scope=world", "relation.scope=rank", "train.batch_nodes=1000")
    small, large = (plan_training(job_of(graph, *given, ranks=4, times=times)) for times in (100, 10_000))
    assert small.sent_bytes == large.sent_bytes


def test_ranks_divide_an_evaluation(graph: Path) -> None:
    alone, two = (plan_evaluation(job_of(graph, ranks=ranks, times=10_000)) for ranks in (1, 2))
    assert two.memory_bytes < alone.memory_bytes
    assert alone.sent_bytes == 0 < two.sent_bytes
    assert alone.disk_bytes == two.disk_bytes
