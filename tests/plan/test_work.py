"""The work of a step and of an evaluation: laws of its size."""

from dataclasses import replace
from pathlib import Path

import pytest

from nfdist.plan.evaluation_work import sweep_work
from nfdist.plan.rates import ROUGH, KnownRates
from nfdist.plan.stages import SWEEP_SHARE, plan_evaluation
from nfdist.plan.work import Work, step_work
from nfdist.training.batch_counts import count_batch
from tests.plan.building import job_of
from tests.training.building import build_partition


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def step_seconds(graph: Path, *overrides: str, times: int) -> float:
    job = job_of(graph, *overrides, times=times)
    return step_work(job.config, job.graph, count_batch(job.config, job.graph)).seconds(ROUGH)


def test_work_adds_up() -> None:
    one, other = Work(1.0, 2.0, 3.0, 4.0), Work(10.0, 20.0, 30.0, 40.0)
    assert one + other == other + one == Work(11.0, 22.0, 33.0, 44.0)
    assert one.times(10) == other
    assert (one + other).seconds(ROUGH) == pytest.approx(one.seconds(ROUGH) + other.seconds(ROUGH))


@pytest.mark.parametrize("name", ["nodeformer", "gcn", "mlp"])
def test_time_is_linear_in_the_graph(name: str, graph: Path) -> None:
    given = (f"model.name={name}", "train.edge_loss=0", "train.recompute=never")
    seconds = [step_seconds(graph, *given, times=times) for times in (1000, 2000)]
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=0.05)
    sweeps = []
    for times in (1000, 2000):
        job = job_of(graph, *given, times=times)
        sweeps.append(sweep_work(job.config, job.graph, job.graph.nodes).seconds(ROUGH))
    assert sweeps[1] == pytest.approx(2 * sweeps[0], rel=0.05)


@pytest.mark.parametrize(
    "more",
    ["train.edge_loss=0.1", "model.layers=4", "model.feed_forward=4", "model.graph_layers=2", "train.recompute=always"],
)
def test_more_of_the_model_takes_longer(more: str, graph: Path) -> None:
    assert step_seconds(graph, "train.edge_loss=0", more, times=100) > step_seconds(
        graph, "train.edge_loss=0", times=100
    )


def test_products_of_float64_count_as_two_of_float32(graph: Path) -> None:
    found = []
    for precision in ("float32", "float64"):
        job = job_of(graph, f"train.precision={precision}", "attention.kind=softmax", times=100)
        step = step_work(job.config, job.graph, count_batch(job.config, job.graph))
        found.append((step.flops, sweep_work(job.config, job.graph, job.graph.nodes).flops))
    single, double = found
    assert double == (2 * single[0], 2 * single[1])


def test_strengths_that_are_known_take_no_choosing(graph: Path) -> None:
    seconds = {
        times: [
            plan_evaluation(job_of(graph, f"train.evaluate_every={every}", times=times)).seconds for every in (0, 1)
        ]
        for times in (1, 10_000)
    }
    for chosen, known in seconds.values():
        assert chosen > known
    assert seconds[1][0] < ROUGH.start_seconds + 1


def test_threads_divide_the_work_and_not_the_start(graph: Path) -> None:
    quick = replace(ROUGH, disk_written_bytes=1e18)  # or files would keep the threads waiting
    job = replace(job_of(graph, times=10_000), rates=KnownRates(quick, True))
    one, four = (plan_evaluation(replace(job, threads=threads)).seconds for threads in (1, 4))
    start = ROUGH.start_seconds
    assert one - start == pytest.approx(4 * SWEEP_SHARE * (four - start), rel=0.1)  # calls are made by one interpreter
    measured_with_four = replace(job, rates=KnownRates(quick.of(4), True))
    assert plan_evaluation(measured_with_four).seconds == pytest.approx(one)
