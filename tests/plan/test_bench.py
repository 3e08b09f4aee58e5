"""The bench measures something of everything, and leaves nothing behind."""

from dataclasses import asdict
from pathlib import Path

from nfdist.plan.bench import measure_host


def test_every_rate_is_a_speed(tmp_path: Path) -> None:
    rates = asdict(measure_host(tmp_path, seconds_each=0.01, disk_bytes=1 << 20))
    missing = {name for name, value in rates.items() if value is None}
    assert missing == {"link_bytes", "link_latency_seconds"}
    assert all(value > 0 for value in rates.values() if value is not None)
    assert list(tmp_path.iterdir()) == []
