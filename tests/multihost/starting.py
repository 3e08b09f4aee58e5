"""Commands on several hosts at a time, and what one host makes of the same training."""

from contextlib import ExitStack
from pathlib import Path

from nfdist import settings
from tests.multihost.hosts import Host
from tests.training.building import run_training
from tests.training.launching import Job, started
from tests.worlds import run_world


def train_on_one_host(workers: int, config: Path, run: Path, *overrides: str) -> Path:
    run_world(workers, run_training, settings.dump(settings.load(config, [f"run.dir={run}", *overrides])))
    return run


def members(hosts: list[Host]) -> list[tuple[str, ...]]:
    """The words that make torchrun one of several hosts whose ranks are fixed."""
    meeting = (f"--nnodes={len(hosts)}", f"--master-addr={hosts[0].address}", "--master-port=29500")
    return [(*meeting, f"--node-rank={rank}") for rank in range(len(hosts))]


def start_all(stack: ExitStack, hosts: list[Host], commands: list[list[str]], folder: Path) -> list[Job]:
    logs = [folder / f"log of host {number}" for number in range(len(hosts))]
    starts = [started(host.inside(command), log) for host, command, log in zip(hosts, commands, logs, strict=True)]
    return [stack.enter_context(start) for start in starts]


def finish_all(hosts: list[Host], commands: list[list[str]], folder: Path) -> None:
    with ExitStack() as stack:
        jobs = start_all(stack, hosts, commands, folder)
        assert [job.wait() for job in jobs] == [0] * len(hosts)
