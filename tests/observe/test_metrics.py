"""What a scrape shows after steps, evaluations and checkpoints."""

import dataclasses
import math
import mmap
import shutil
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from nfdist.observe.metrics import RunMetrics
from tests.observe.recorded import FIRST_STEP, SCORES

SECOND = dataclasses.replace(
    FIRST_STEP, epoch=3, step=2, seconds=4.0, communication_seconds=1.0, sent_bytes=5_000, nodes=40, edges=200, loss=0.5
)
UNITS = ("_seconds", "_bytes", "_nodes", "_edges", "_per_second")
LAST = (
    *("epoch", "step", "loss", "supervised_loss", "edge_loss", "gradient_norm", "learning_rate"),
    *("straggler_gap_seconds", "straggler_lag_seconds"),
)
PLAIN = {*LAST, "score", "smoothed_score", "evaluation_loss", "restarts", "seed"}


class Scrape:
    """A registry and the metrics of rank 3 in it, on a clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.registry = CollectorRegistry()
        self.metrics = RunMetrics(self.registry, "cora", rank=3, restarts=2, clock=lambda: self.now)

    def value(self, name: str, **labels: str) -> float:
        found = self.found(name, **labels)
        assert found is not None, f"nfdist_{name} {labels} is not exported"
        return found

    def found(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"nfdist_{name}", {"run": "cora", "rank": "3", **labels})

    def series(self) -> set[tuple[str, ...]]:
        return {
            (sample.name, *map(str, sorted(sample.labels.items())))
            for family in self.registry.collect()
            for sample in family.samples
        }


@pytest.fixture
def scrape() -> Scrape:
    return Scrape()


def test_totals_add_up_and_gauges_show_the_last_step(scrape: Scrape) -> None:
    scrape.metrics.record_step(FIRST_STEP)
    scrape.metrics.record_step(SECOND)
    totals = {"nodes": 140, "edges": 500, "sent_bytes": 70_000, "communication_seconds": 1.5}
    assert {name: scrape.value(f"{name}_total") for name in totals} == totals
    for name in LAST:
        assert scrape.value(name) == getattr(SECOND, name), name
    assert scrape.value("nodes_per_second") == 10
    assert scrape.value("edges_per_second") == 50


def test_histograms_hold_every_duration(scrape: Scrape) -> None:
    scrape.metrics.record_step(FIRST_STEP)
    scrape.metrics.record_step(SECOND)
    scrape.metrics.record_evaluation(30.0, "accuracy", {}, {})
    for name, count, total in (("step", 2, 6.0), ("batch_wait", 2, 0.5), ("evaluation", 1, 30.0)):
        assert scrape.value(f"{name}_seconds_count") == count
        assert scrape.value(f"{name}_seconds_sum") == total
    assert scrape.value("step_seconds_bucket", le="2.5") == 1
    assert scrape.value("step_seconds_bucket", le="5.0") == 2
    assert scrape.value("evaluation_seconds_bucket", le="25.0") == 0


def test_scores_are_by_split_and_metric_and_a_split_without_one_is_absent(scrape: Scrape) -> None:
    scrape.metrics.record_evaluation(1.0, "accuracy", SCORES, {"valid": 0.25})
    assert {split: scrape.value("score", split=split, metric="accuracy") for split in SCORES} == SCORES
    assert scrape.value("evaluation_loss", split="valid") == 0.25
    assert scrape.found("evaluation_loss", split="test") is None
    scrape.metrics.record_evaluation(1.0, "accuracy", {**SCORES, "test": None}, {"valid": math.nan, "test": 0.5})
    assert scrape.found("score", split="test", metric="accuracy") is None
    assert scrape.found("evaluation_loss", split="valid") is None
    assert scrape.value("evaluation_loss", split="test") == 0.5


def test_raw_and_smoothed_scores_are_apart(scrape: Scrape) -> None:
    scrape.metrics.record_evaluation(1.0, "accuracy", SCORES, {})
    assert scrape.found("smoothed_score", split="valid", metric="accuracy") is None
    scrape.metrics.record_smoothed("accuracy", {"valid": 0.95, "test": None})
    assert scrape.value("smoothed_score", split="valid", metric="accuracy") == 0.95
    assert scrape.value("score", split="valid", metric="accuracy") == 0.8


def test_what_has_no_value_yet_is_absent(scrape: Scrape) -> None:
    told = {sample.name for family in scrape.registry.collect() for sample in family.samples}
    for name in (*LAST, "seed", "score", "nodes_per_second", "step_timestamp_seconds", "evaluation_timestamp_seconds"):
        assert f"nfdist_{name}" not in told, name
    assert not {name for name in told if "checkpoint" in name or "disk" in name or "smoothed" in name}
    assert not any(math.isnan(sample.value) for family in scrape.registry.collect() for sample in family.samples)
    assert scrape.value("nodes_total") == scrape.value("refused_steps_total") == 0
    assert scrape.value("restarts") == 2
    assert scrape.value("start_timestamp_seconds") == 100


def test_a_checkpoint_ages_until_the_next(scrape: Scrape) -> None:
    scrape.metrics.record_checkpoint()
    scrape.now += 60
    assert scrape.value("checkpoint_age_seconds") == 60
    assert scrape.value("checkpoint_timestamp_seconds") == 100
    scrape.metrics.record_checkpoint()
    assert scrape.value("checkpoint_age_seconds") == 0


def test_progress_is_told_by_when_it_was_made(scrape: Scrape) -> None:
    scrape.metrics.record_step(FIRST_STEP)
    scrape.now += 10
    scrape.metrics.record_evaluation(5.0, "accuracy", SCORES, {})
    scrape.metrics.record_refused_step()
    assert scrape.value("step_timestamp_seconds") == 100
    assert scrape.value("evaluation_timestamp_seconds") == 110
    assert scrape.value("refused_steps_total") == 1


def test_the_disk_is_that_of_the_run_and_absent_when_it_is_gone(tmp_path: Path) -> None:
    registry, own, folder = CollectorRegistry(), {"run": "", "rank": "0"}, tmp_path / "run"
    folder.mkdir()
    RunMetrics(registry, disk=folder)
    size = registry.get_sample_value("nfdist_disk_size_bytes", own)
    free = registry.get_sample_value("nfdist_disk_free_bytes", own)
    assert size == shutil.disk_usage(folder).total
    assert free is not None
    assert 0 < free <= size
    folder.rmdir()
    assert registry.get_sample_value("nfdist_disk_free_bytes", own) is None
    assert registry.get_sample_value("nfdist_memory_bytes", own)


def test_memory_is_what_the_process_holds_at_the_scrape(scrape: Scrape) -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    before = scrape.value("memory_bytes")
    assert before == pytest.approx(resident, rel=0.1)
    size = 64 << 20
    with mmap.mmap(-1, size) as held:  # new pages, where an array might get memory that was freed before
        held.write(bytes(size))
        assert scrape.value("memory_bytes") > before + size / 2


def test_device_memory_is_exported_only_where_there_is_a_device(scrape: Scrape) -> None:
    assert not any(name == "nfdist_device_memory_bytes" for name, *_ in scrape.series())
    registry = CollectorRegistry()
    RunMetrics(registry, device_bytes=lambda: 123.0)
    assert registry.get_sample_value("nfdist_device_memory_bytes", {"run": "", "rank": "0"}) == 123


def test_series_do_not_grow_with_what_is_recorded(scrape: Scrape) -> None:
    scrape.metrics.record_step(FIRST_STEP)
    scrape.metrics.record_evaluation(1.0, "accuracy", SCORES, SCORES)
    scrape.metrics.record_checkpoint()
    before = scrape.series()
    for step in range(50):
        scrape.metrics.record_step(dataclasses.replace(SECOND, step=step, epoch=step, nodes=step, edges=7 * step))
        scrape.metrics.record_evaluation(float(step), "accuracy", SCORES, SCORES)
        scrape.metrics.record_checkpoint()
    assert scrape.series() == before


def test_names_carry_the_prefix_and_their_unit_and_labels_are_few(scrape: Scrape) -> None:
    scrape.metrics.record_evaluation(1.0, "accuracy", SCORES, SCORES)
    for family in scrape.registry.collect():
        assert family.name.startswith("nfdist_")
        assert family.name.endswith(UNITS) or family.name.removeprefix("nfdist_") in PLAIN | {
            "nodes",
            "edges",
            "refused_steps",
        }
        for sample in family.samples:
            assert set(sample.labels) <= {"run", "rank", "split", "metric", "le"}
            assert (sample.labels["run"], sample.labels["rank"]) == ("cora", "3")


def test_two_runs_of_a_process_share_nothing() -> None:
    first, second = Scrape(), Scrape()
    first.metrics.record_step(FIRST_STEP)
    assert second.value("nodes_total") == 0
    assert not any(family.name.startswith("nfdist_") for family in REGISTRY.collect())


def test_a_step_too_short_for_the_clock_is_recorded(scrape: Scrape) -> None:
    scrape.metrics.record_step(dataclasses.replace(FIRST_STEP, seconds=0.0))
    assert math.isfinite(scrape.value("nodes_per_second"))
