"""nfdist doctor: what this host has, and what will not work or will be slow on it, each with a remedy."""

import argparse
import contextlib
import importlib
import json
import math
import os
import platform
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdist.cli.check import Check, Finding, fact_lines, failure, finding_lines, readable
from nfdist.cli.network import check_network
from nfdist.cli.packages import check_extras, check_packages, check_partitioning
from nfdist.cli.trials import check_trials, started_trials
from nfdist.errors import ConfigError
from nfdist.memory import cgroup_folders, read_text

if TYPE_CHECKING:
    from nfdist.cli.hosts import HostFacts

EXAMPLES = (
    ("nfdist doctor", "what this host has, and what will not work on it"),
    ("nfdist doctor --json", "the same as one line, for scripts"),
    ("nfdist doctor --bench", "how fast it is, for the times of nfdist plan"),
    ("torchrun --standalone --nproc-per-node 2 -m nfdist doctor", "all workers, compared"),
)
SECONDS_TO_MEET = 60.0  # of the ranks of a job
SMALL_SHARED_MEMORY_BYTES = 1 << 30  # containers get 64 MiB unless told otherwise
FEW_OPEN_FILES = 1024
FEW_PROCESSES = 1024  # threads count, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything as one line of JSON")
    parser.add_argument(
        "--bench", action="store_true", help="measure this host in some seconds, and keep its rates for nfdist plan"
    )
    parser.add_argument(
        "--disk", metavar="DIR", default=".", help="with --bench, whose disk is measured (default here)"
    )


def run(options: argparse.Namespace) -> int:
    if not Path(options.disk).is_dir():
        raise ConfigError(f"--disk {options.disk} is no folder: name one on the disk to measure")
    if "RANK" in os.environ:
        return _run_together(options)
    with contextlib.redirect_stdout(sys.stderr):  # a package that prints when imported must not spoil the JSON
        checks, missing = examine(trying=True)
        if options.bench and not missing:
            checks.append(bench(Path(options.disk)))
    _tell(options, checks, missing)
    if missing:
        raise ConfigError(f"cannot run without {', '.join(missing)}: pip install {' '.join(missing)}")
    return 0


def _tell(
    options: argparse.Namespace, checks: list[Check], missing: list[str], table: Iterable[str] = (), **facts: Any
) -> None:
    findings = [finding for check in checks for finding in check.findings]
    if options.json:
        facts |= {check.title: check.facts for check in checks}
        print(json.dumps({"ready": not missing, **facts, "findings": [asdict(finding) for finding in findings]}))
    else:
        print("\n".join([*fact_lines(checks), *table, *finding_lines(findings)]))


def _run_together(options: argparse.Namespace) -> int:
    """Every rank reports, and the first one tells: the facts of its host, all hosts side by side, all findings."""
    import torch

    from nfdist.cli.hosts import check_hosts, compare_hosts, host_lines
    from nfdist.collectives import gather_text
    from nfdist.rendezvous import Place, join

    place = Place.read(os.environ)
    with contextlib.redirect_stdout(sys.stderr), join(place, torch.device("cpu"), SECONDS_TO_MEET) as world:
        checks, _ = examine(trying=True) if place.local_rank == 0 else ([check_packages()[0]], [])
        versions = {name: str(value) for name, value in checks[0].facts.items()}
        hosts = compare_hosts(world, place, versions)
        if options.bench and place.local_rank == 0:  # one worker a host: the others would want its cores
            checks.append(bench(Path(options.disk), hosts))
        own = [asdict(finding) for check in checks for finding in check.findings] if place.local_rank == 0 else []
        everyone = [json.loads(text) for text in gather_text(world, json.dumps(own), "findings")]
    if place.rank == 0:
        together = check_hosts(hosts)
        for host in hosts[1:]:
            for finding in everyone[host.first_rank]:
                told = f"host {hosts.index(host)} ({host.host}): {finding['problem']}"
                together.findings.append(Finding(finding["kind"], told, finding["remedy"]))
        _tell(options, [*checks, together], [], host_lines(hosts), each_host=[asdict(host) for host in hosts])
    return 0


def bench(folder: Path, hosts: "Sequence[HostFacts]" = ()) -> Check:
    """Measure this host, and keep what was found, with the slowest link of a job's, for plans."""
    from nfdist.plan.bench import measure_host
    from nfdist.plan.rates import keep_rates

    links = [host.link_bytes for host in hosts if host.link_bytes is not None]
    delays = [host.latency_seconds for host in hosts if host.latency_seconds is not None]
    rates = measure_host(folder)
    rates = replace(rates, link_bytes=min(links, default=None), link_latency_seconds=max(delays, default=None))
    check = Check("bench", {"threads": rates.threads, "products": f"{rates.product_flops / 1e9:.1f} GFLOP/s"})
    for name, rate in (
        ("memory", rates.passed_bytes),
        ("gathered rows", rates.gathered_bytes),
        ("disk, read", rates.disk_read_bytes),
        ("disk, written", rates.disk_written_bytes),
    ):
        check.facts[name] = f"{rate / 1e9:.2f} GB/s"
    check.facts["start of a command"] = f"{rates.start_seconds:.1f} s"
    check.facts["kept in"] = str(keep_rates(rates))
    return check


def examine(host: Path = Path("/"), *, trying: bool = False) -> tuple[list[Check], list[str]]:
    """Every check of this host, and the required packages that cannot be imported; `trying` does things, too."""
    packages, missing = check_packages()
    torch = None if "torch" in missing else importlib.import_module("torch")
    with contextlib.ExitStack() as stack:
        trials = []
        if trying and not missing:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nfdist-doctor-"))
            trials = stack.enter_context(started_trials(Path(folder), _num_gpus(torch)))
        checks = [packages, check_processor(torch, host), check_memory(host), check_limits(host), check_network()]
        if not missing:
            checks[1:1] = [check_partitioning(), check_extras()]
        if torch is not None:
            devices = check_devices(torch, host)
            if devices.facts["cuda"]:
                check_kernels(devices)
            checks += [devices, check_commands(len(devices.facts["cuda"])), check_backends(torch)]
        if trials:
            checks.append(check_trials(trials))
    return checks, missing


def _num_gpus(torch: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told by check_devices
        return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def check_devices(torch: Any, host: Path) -> Check:
    """The CUDA devices."""
    check = Check("devices", {"cuda": []})

    def look() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch only warns of a driver that is too old, and then finds no device
            for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
                device = torch.cuda.get_device_properties(index)
                check.facts["cuda"].append({"name": device.name, "memory_bytes": device.total_memory})

    reason = failure(look)
    if reason:
        check.broken(
            f"CUDA devices cannot be used ({reason})", "compare the driver shown by nvidia-smi with torch's CUDA"
        )
    elif not check.facts["cuda"]:
        remedy = "fine for small graphs; for large ones use a host with a GPU, or several CPU hosts"
        if (host / "dev/nvidia0").exists():
            remedy = f"this host has an NVIDIA GPU: install a build of torch for it (this one is {torch.__version__})"
        check.slow("torch finds no CUDA device: training and evaluation run on the CPU", remedy)
    return check


def check_kernels(check: Check) -> None:
    """Whether the Triton kernels serve the CUDA devices."""
    from nfdist.attention.ops import missing_for_kernels  # here, since it imports torch

    lacking = missing_for_kernels()
    check.facts["kernels"] = "triton" if lacking is None else "plain torch"
    if lacking is not None:
        check.slow(
            f"attention on CUDA takes plain torch instead of kernels: this host lacks {lacking}",
            'install it (pip install "nfdist[gpu]" for triton)',
        )


def check_commands(num_gpus: int) -> Check:
    """Which device the commands take unless they are told."""
    of_workers = {0: "cpu", 1: "the GPU, with one worker"}.get(num_gpus, f"a GPU each, for up to {num_gpus} workers")
    check = Check("default devices")
    check.facts = {
        "train": of_workers,
        "evaluate": of_workers,
        "evaluate --follow": "cpu",
        "predict": "cpu",
    }
    return check


def check_backends(torch: Any) -> Check:
    """What torch.distributed can talk through."""
    check = Check("backends")
    distributed = torch.distributed
    for name in ("gloo", "nccl", "mpi"):
        check.facts[name] = bool(distributed.is_available() and getattr(distributed, f"is_{name}_available")())
    if not check.facts["gloo"]:
        check.broken("torch lacks gloo: several workers cannot run on CPUs", "install a build of torch with gloo")
    if torch.cuda.is_available() and not check.facts["nccl"]:
        remedy = "install a build of torch with NCCL, or give run.device=cpu and --device cpu"
        check.broken("torch lacks NCCL: several workers cannot run on GPUs", remedy)
    return check


def check_processor(torch: Any, host: Path) -> Check:
    """The CPU, the cores this process may use, and the threads torch will start on them."""
    models = [line for line in read_text(host / "proc/cpuinfo").splitlines() if line.startswith("model name")]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _cgroup_cores(host)
    usable = min(allowed, math.ceil(limit)) if limit else allowed
    threads = torch.get_num_threads() if torch is not None else None
    setting = os.environ.get("OMP_NUM_THREADS")
    check = Check("processor")
    check.facts = {
        "model": models[0].partition(":")[2].strip() if models else platform.processor() or platform.machine(),
        "cores_allowed": allowed,
        "cores_cgroup_limit": limit,
        "torch_threads": threads,
        "OMP_NUM_THREADS": setting,
    }
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # under torchrun
    if setting == "1" and usable // workers > 1:
        remedy = f"export OMP_NUM_THREADS={usable}, or {usable} divided by the workers of this host"
        check.slow(f"OMP_NUM_THREADS=1 lets a worker use one of {usable} cores", remedy)
    elif threads and threads > usable:
        check.slow(f"torch starts {threads} threads on {usable} usable cores", f"export OMP_NUM_THREADS={usable}")
    return check


def check_memory(host: Path) -> Check:
    """The memory of the host, and what of it this process may use."""
    lines = (line.split() for line in read_text(host / "proc/meminfo").splitlines())
    kibibytes = {words[0]: int(words[1]) for words in lines if len(words) > 1}
    total, available = (
        kibibytes[name] * 1024 if name in kibibytes else None for name in ("MemTotal:", "MemAvailable:")
    )
    texts = (
        read_text(folder / "memory.max") or read_text(folder / "memory.limit_in_bytes")
        for folder in cgroup_folders(host, "memory")
    )
    # "No limit" is the word max, or in version 1 a number beyond any memory.
    limits = [int(text) for text in texts if text.isdigit() and (total is None or int(text) < total)]
    facts = {"total_bytes": total, "available_bytes": available, "cgroup_limit_bytes": min(limits, default=None)}
    return Check("memory", facts)


def check_limits(host: Path) -> Check:
    """Shared memory, open files and processes."""
    check = Check("limits", {"shared_memory_bytes": None})
    with contextlib.suppress(OSError):
        filesystem = os.statvfs(host / "dev/shm")
        check.facts["shared_memory_bytes"] = shared = filesystem.f_blocks * filesystem.f_frsize
        if shared < SMALL_SHARED_MEMORY_BYTES:
            problem = f"/dev/shm holds {readable('_bytes', shared)}: workers that share memory may die of a bus error"
            check.broken(problem, "start the container with --shm-size=2g or --ipc=host")
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    check.facts |= {"open_files": soft, "open_files_at_most": hard}
    if soft is not None and soft < FEW_OPEN_FILES:
        problem = f"a process may open {soft} files: many parts or workers will fail with 'too many open files'"
        check.broken(problem, "ulimit -n 4096 in the shell that starts nfdist")
    most = [int(text) for text in map(read_text, _pid_limits(host)) if text.isdigit()]
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    most += [] if limit == resource.RLIM_INFINITY else [limit]
    check.facts["processes"] = processes = min(most, default=None)
    if processes is not None and processes < FEW_PROCESSES:
        problem = f"{processes} processes and threads may run here: workers will fail with 'can't start new thread'"
        check.broken(problem, "ulimit -u 4096, or start the container with --pids-limit=-1")
    return check


def _pid_limits(host: Path) -> list[Path]:
    return [folder / "pids.max" for folder in cgroup_folders(host, "pids")]


def _cgroup_cores(host: Path) -> float | None:
    limits = []
    for folder in cgroup_folders(host, "cpu"):
        version_1 = f"{read_text(folder / 'cpu.cfs_quota_us')} {read_text(folder / 'cpu.cfs_period_us')}"
        words = (read_text(folder / "cpu.max") or version_1).split()
        if len(words) == 2 and words[0].isdigit():
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)
