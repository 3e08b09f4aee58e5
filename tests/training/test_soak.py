"""A training of 1,000 epochs, and many predictions in one process, hold no more in the end than at their beginning."""

import gc
import json
import math
import socket
import statistics
import time
import urllib.request
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nfdist.cli.main import main
from nfdist.runs.run import Run
from nfdist.store.store import Store
from tests.cli.runs import train_run
from tests.training.building import build_partition
from tests.training.launching import alone, started, write_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EPOCHS = 1000
EARLY, LATE = range(200, 400), range(800, EPOCHS)
MORE_BYTES = 16 << 20  # allocators do not return each page at once
MORE_THREADS = 2  # pools start theirs one by one, as they are needed
Sample = tuple[int, int, int]  # bytes, descriptors, threads


def look(process: psutil.Process) -> Sample:
    return process.memory_info().rss, process.num_fds(), process.num_threads()


def check_flat(early: list[Sample], late: list[Sample]) -> None:
    """Medians, since a checkpoint or a request of its own may be open at any one look."""
    assert len(early) >= 5
    assert len(late) >= 5
    before, after = ([statistics.median(column) for column in zip(*samples, strict=True)] for samples in (early, late))
    assert after[0] <= before[0] + MORE_BYTES, f"memory grew from {before[0]:,.0f} to {after[0]:,.0f} bytes"
    assert after[1] <= before[1], f"descriptors grew from {before[1]} to {after[1]}"
    assert after[2] <= before[2] + MORE_THREADS, f"threads grew from {before[2]} to {after[2]}"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def epoch_served(port: int) -> int:
    """The epoch that the metrics server tells; each request is a connection and a thread of its own."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            text = page.read().decode()
    except OSError:  # not there yet, or not any more
        return 0
    value = float(next(line.split()[-1] for line in text.splitlines() if line.startswith("nfdist_epoch{")))
    return 0 if math.isnan(value) else int(value)  # which it is before the first step


def test_a_long_training_stays_as_it_is(tmp_path: Path) -> None:
    partition, port = build_partition(tmp_path / "partition"), free_port()
    config = write_config(
        tmp_path / "long.toml",
        partition,
        f"train.epochs={EPOCHS}",
        "train.batch_nodes=0",
        "train.evaluate_every=1",
        "train.checkpoint_every=5",
        f"observe.port={port}",
    )
    samples: dict[int, Sample] = {}
    with started(alone("train", config, f"run.dir={tmp_path}/run"), tmp_path / "log") as job:
        process = psutil.Process(job.process.pid)
        while job.process.poll() is None:
            epoch = epoch_served(port)
            try:
                samples[epoch] = look(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                break
            time.sleep(0.02)
        assert job.wait() == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["final"]["epoch"] == EPOCHS
    early, late = ([sample for epoch, sample in samples.items() if epoch in span] for span in (EARLY, LATE))
    check_flat(early, late)


def test_many_predictions_and_evaluations_stay_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train_run(tmp_path)
    store = Store.open(Run.open(run).config.data.partition)
    some = torch.arange(20)
    ids = [f"new-{number}" for number in range(20)]
    table = pa.table({"id": ids, "features": store.take(some).tolist(), "neighbors": [[3, 4]] * 20})
    pq.write_table(table, tmp_path / "new.parquet")
    samples = []
    for number in range(200):
        if number % 10 == 0:
            assert main(["evaluate", str(run)]) == 0
        assert main(["predict", str(run), str(tmp_path / "new.parquet"), "--out", str(tmp_path / "out.parquet")]) == 0
        capsys.readouterr()
        gc.collect()
        samples.append(look(psutil.Process()))
    check_flat(samples[40:80], samples[160:])
