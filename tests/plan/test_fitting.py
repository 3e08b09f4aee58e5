"""The batch that is named fits and a larger one does not; only what cannot fit by any means is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nfdist import settings
from nfdist.errors import ConfigError
from nfdist.plan import fitting
from nfdist.plan.fitting import (
    batch_for_gpu,
    batch_for_memory,
    check_evaluation,
    check_training,
    refuse_evaluation,
    refuse_training,
)
from nfdist.plan.planned_job import TRAINING_BYTES
from nfdist.rendezvous import Place
from nfdist.runs.run import Run
from nfdist.training.shortage import ROOM
from tests.plan.building import job_of
from tests.training.building import build_partition, config_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_partition(tmp_path_factory.mktemp("graph") / "partition")


def test_the_batch_that_is_named_fits_and_a_tenth_more_does_not(graph: Path) -> None:
    job = job_of(graph, "train.evaluate_every=0", times=10_000)
    for gibibytes in (1, 4):
        there = gibibytes << 30
        batch = batch_for_memory(job, there)
        assert batch
        assert (
            job.with_batch(batch).training_bytes()
            <= ROOM * there
            < job.with_batch(round(1.11 * batch)).training_bytes()
        )
        on_gpu = replace(job, on_gpu=True)
        batch = batch_for_gpu(on_gpu, there)
        assert batch
        assert on_gpu.with_batch(batch).device_bytes() <= ROOM * there
    assert batch_for_memory(job, 1 << 50) == 0  # the whole graph
    assert batch_for_memory(job, TRAINING_BYTES // 2) is None


def test_only_what_cannot_fit_is_refused(graph: Path) -> None:
    job = job_of(graph, times=10_000)
    least = job.step.least
    assert least < job.training_bytes()
    refuse_training(job, round(least) + 1, 1)
    refuse_training(job, None, 1)  # nobody says what there is
    with pytest.raises(ConfigError, match=r"needs at least .* GiB more for .* nodes .* or try it with --force"):
        refuse_training(job, round(least) - 1, 1)
    with pytest.raises(ConfigError, match=r"of 2 ranks on this host .* set train.batch_nodes to at most \d+ \(is 0\)"):
        refuse_training(job, round(least) + 1, 2)
    refuse_training(replace(job, on_gpu=True), 1, 1)
    sweep = job.sweep(writes=False)
    refuse_evaluation(job, round(sweep.least) + 1, 1)
    with pytest.raises(ConfigError, match=r"evaluation needs at least .* give --memory \d+MiB, and states are kept in"):
        refuse_evaluation(job, round(sweep.least) - 1, 1)
    refuse_evaluation(replace(job, limit_bytes=1 << 30), 1, 1)
    with pytest.raises(ConfigError, match="use a machine with more memory"):
        refuse_evaluation(job_of(graph, "model.name=gcn", "train.edge_loss=0", times=10_000), 1, 1)


def test_this_host_is_asked_and_a_wrong_graph_is_left_to_others(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(graph, tmp_path / "run")
    Run.create(tmp_path / "run", config, "")
    check_training(config, Place(), CPU)
    check_evaluation(tmp_path / "run", None, Place(), CPU, None)
    monkeypatch.setattr(fitting, "available_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match="this training needs"):
        check_training(config, Place(), CPU)
    with pytest.raises(ConfigError, match="this evaluation needs"):
        check_evaluation(tmp_path / "run", None, Place(), CPU, None)
    check_evaluation(tmp_path / "run", None, Place(), CPU, 1 << 30)
    check_evaluation(tmp_path / "nothing", None, Place(), CPU, None)
    check_evaluation(tmp_path / "run", str(tmp_path), Place(), CPU, None)
    for partition in ("elsewhere", "s3://bucket/graph", ""):
        check_training(settings.parse({"data": {"partition": partition}}), Place(), CPU)
