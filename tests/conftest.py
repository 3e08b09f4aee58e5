"""The tests run in the environment of the command line, which must be set before torch is loaded."""

import os
import signal
from collections.abc import Iterator

import pytest

from nfdist.cli.main import set_environment

set_environment()
if os.environ.get("NFDIST_TEST_DEVICE") != "cuda":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on CPU tensors, slowly; read when triton is loaded
os.environ.setdefault("OMP_NUM_THREADS", "1")  # what tests compute is so small that a second one costs more

from tests.accelerator import fake  # noqa: E402  (which loads torch)

if fake.available():
    fake.device()  # now, since torch's backward passes serve the devices that the first of them finds

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what it puts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command that was stopped heeds no further signal, as if its process would end; the tests go on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


# Files whose tests start many processes: begun first, so that no worker is left alone with them in the end.
LONGEST = (
    *("test_torchrun.py", "test_multihost.py", "test_laws.py", "test_worlds.py", "test_commands.py", "test_demo.py"),
    *("test_doctor_of_hosts.py", "test_launchers.py", "test_evaluate.py", "test_full.py", "test_run.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; otherwise in the order of their names."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a test recorded as its summary is shown even though it passed."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in getattr(report, "user_properties", ()):
            if name == "summary":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(str(text))
