"""The doctor reports whatever is wrong with a host, and is never itself the casualty."""

import json
import os
import resource
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nfdist.attention import ops
from nfdist.cli import doctor, packages
from nfdist.cli.check import Check, fact_lines
from nfdist.cli.main import main
from nfdist.config import RunConfig
from nfdist.errors import ConfigError
from nfdist.rendezvous import Place, choose_device
from tests.cli.findings import only


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fake_torch(**cuda: Any) -> SimpleNamespace:
    cuda = {"is_available": lambda: False, "device_count": lambda: 0, **cuda}
    return SimpleNamespace(__version__="2.13.0+cpu", cuda=SimpleNamespace(**cuda), get_num_threads=lambda: 8)


def test_json_is_one_line_and_complete() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nfdist", "doctor", "--json"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    report = json.loads(done.stdout)
    assert report["ready"] is True
    assert {"python", "nfdist", *packages.PACKAGES} == set(report["packages"])
    assert set(packages.EXTRAS) == set(report["extras"])
    assert report["partitioning"]["metis"] in ("dgl", "pymetis")
    assert {"gloo", "nccl", "mpi"} == set(report["backends"])
    assert report["processor"]["torch_threads"] >= 1
    assert report["trials"]["gloo"].startswith("a sum of 2 processes")
    assert report["trials"]["metis"].startswith("a ring in two parts through ")
    assert "gloo takes" in report["network"]
    assert report["memory"]["total_bytes"] >= report["memory"]["available_bytes"] > 0
    for finding in report["findings"]:
        assert set(finding) == {"kind", "problem", "remedy"}


def test_missing_required_package_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(packages, "PACKAGES", {name: packages.PACKAGES[name] for name in packages.REQUIRED})
    assert main(["doctor", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "nfdist: cannot run without torch: pip install torch\n"
    report = json.loads(captured.out)
    assert report["ready"] is False
    assert "torch cannot be used" in report["findings"][0]["problem"]


def test_cuda_devices_are_listed_with_their_memory(tmp_path: Path) -> None:
    device = SimpleNamespace(name="H100", total_memory=80 << 30)
    two = fake_torch(is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda index: device)
    check = doctor.check_devices(two, tmp_path)
    assert check.facts["cuda"] == [{"name": "H100", "memory_bytes": 80 << 30}] * 2
    assert check.findings == []
    assert "H100 (80.00 GiB), H100 (80.00 GiB)" in "\n".join(fact_lines([check]))


@pytest.mark.parametrize(("lacking", "kernels"), [(None, "triton"), ("the package triton", "plain torch")])
def test_what_attention_on_cuda_lacks_is_told(
    lacking: str | None, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "missing_for_kernels", lambda: lacking)
    check = Check("devices", {"cuda": [{}]})
    doctor.check_kernels(check)
    assert check.facts["kernels"] == kernels
    assert [finding.problem for finding in check.findings] == (
        [f"attention on CUDA takes plain torch instead of kernels: this host lacks {lacking}"] if lacking else []
    )


def test_host_without_cuda_is_slow_and_a_gpu_torch_cannot_see_is_named(tmp_path: Path) -> None:
    assert "small graphs" in only(doctor.check_devices(fake_torch(), tmp_path), "slow").remedy
    write(tmp_path / "dev/nvidia0", "")
    assert "2.13.0+cpu" in only(doctor.check_devices(fake_torch(), tmp_path), "slow").remedy


def test_what_torch_warns_of_is_a_finding(tmp_path: Path) -> None:
    def is_available() -> bool:
        warnings.warn("The NVIDIA driver on your system is too old", stacklevel=1)
        return False

    finding = only(doctor.check_devices(fake_torch(is_available=is_available), tmp_path), "broken")
    assert "driver on your system is too old" in finding.problem


def test_missing_backends_are_findings() -> None:
    without = fake_torch(is_available=lambda: True)
    without.distributed = SimpleNamespace(is_available=lambda: False)
    check = doctor.check_backends(without)
    assert check.facts == {"gloo": False, "nccl": False, "mpi": False}
    assert [finding.kind for finding in check.findings] == ["broken", "broken"]
    assert "several workers cannot run on GPUs" in check.findings[1].problem
    assert "--device cpu" in check.findings[1].remedy


@pytest.mark.parametrize(("gpus", "told"), [(0, "cpu"), (1, "the GPU, with one worker"), (4, "up to 4 workers")])
def test_the_devices_of_commands_are_those_that_they_choose(
    gpus: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = doctor.check_commands(gpus).facts
    assert told in facts["train"] == facts["evaluate"]
    assert facts["evaluate --follow"] == facts["predict"] == "cpu"
    for name, value in {"is_available": gpus > 0, "device_count": gpus, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    assert choose_device(RunConfig().device, Place()).type == ("cuda" if gpus else "cpu")
    with pytest.raises(ConfigError, match="--device cpu") if gpus else nullcontext():
        choose_device("auto", Place(rank=gpus, size=gpus + 1, local_rank=gpus, local_size=gpus + 1), "--device ")


@pytest.mark.parametrize(
    ("setting", "cores", "problem"),
    [("1", 4, "one of 4 cores"), ("8", 4, "8 threads on 4 usable cores"), (None, 8, None), ("1", 1, "8 threads on 1")],
)
def test_threads_that_do_not_fit_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str | None, cores: int, problem: str | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    check = doctor.check_processor(fake_torch(), tmp_path)
    if problem is None:
        assert check.findings == []
    else:
        assert problem in only(check, "slow").problem


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000", "job/memory.max": "1024"}),
        (
            "3:cpu,cpuacct:/job\n4:memory:/elsewhere",
            {
                "cpu/job/cpu.cfs_quota_us": "150000",
                "cpu/job/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "1024",
            },
        ),
    ],
)
def test_limits_of_both_cgroup_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str, files: dict[str, str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    write(tmp_path / "proc/self/cgroup", group + "\n")
    write(tmp_path / "proc/meminfo", "MemTotal:  4 kB\nMemAvailable: 2 kB\n")
    write(tmp_path / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Slow: CPU\n")
    for name, text in files.items():
        write(tmp_path / "sys/fs/cgroup" / name, text + "\n")
    processor = doctor.check_processor(fake_torch(), tmp_path)
    assert processor.facts["cores_cgroup_limit"] == 1.5
    assert processor.facts["model"] == "Slow: CPU"
    assert "8 threads on 2 usable cores" in only(processor, "slow").problem
    memory = doctor.check_memory(tmp_path).facts
    assert memory == {"total_bytes": 4096, "available_bytes": 2048, "cgroup_limit_bytes": 1024}


def test_memory_without_limit_or_without_any_answer(tmp_path: Path) -> None:
    assert set(doctor.check_memory(tmp_path).facts.values()) == {None}
    write(tmp_path / "proc/meminfo", "MemTotal:  4 kB\n")
    write(tmp_path / "proc/self/cgroup", "4:memory:/\n")
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert doctor.check_memory(tmp_path).facts["cgroup_limit_bytes"] is None


def test_small_shared_memory_and_few_open_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=16384, f_frsize=4096))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, resource.RLIM_INFINITY))
    check = doctor.check_limits(tmp_path)
    facts = {"shared_memory_bytes": 64 << 20, "open_files": 256, "open_files_at_most": None, "processes": 256}
    assert check.facts == facts
    shared, files, processes = check.findings
    assert "/dev/shm holds 0.06 GiB" in shared.problem
    assert "256 files" in files.problem
    assert "ulimit -n" in files.remedy
    assert "256 processes and threads" in processes.problem
    assert "--pids-limit" in processes.remedy
