"""The engine: servers in parallel, a case after the other on each, and a report of all."""

import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import cases
from tests.faults.material import Material
from tests.faults.report import Report
from tests.faults.rule import Problem, Skipped
from tests.faults.serving import Server, ServerLostError


class Engine:
    """Servers of the code under test and the material they share, in a folder."""

    def __init__(self, code: Path, folder: Path, seed: int, workers: int = 2, keep: bool = False) -> None:
        self.code, self.folder, self.seed, self._keep = code, folder, seed, keep
        self._workers, self._idle = workers, [Server(code, lean=workers == 1)]
        self.material = Material(folder / "material", code)

    def table(self, count: int, families: Iterable[str]) -> list[str]:
        """The names of the cases."""
        with self._server() as server:
            return cases.table(self.material, server, self.seed, count, list(families))

    def sample(self) -> list[str]:
        """The names of a few cases."""
        with self._server() as server:
            return cases.sample(self.material, server, self.seed)

    def run(self, names: list[str], tell: Callable[[str], None] = print) -> Report:
        """Run cases on all servers; a violation is told at once."""
        report, todo = Report(self.code, self.seed), queue.SimpleQueue[tuple[int, str]]()
        for numbered in enumerate(names):
            todo.put(numbered)

        def work() -> None:
            while True:
                try:
                    number, name = todo.get_nowait()
                except queue.Empty:
                    return
                self._run_case(number, name, report, tell)

        threads = [threading.Thread(target=work) for _ in range(min(self._workers, len(names)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return report

    def close(self) -> None:
        for server in self._idle:
            server.close()

    def _run_case(self, number: int, name: str, report: Report, tell: Callable[[str], None]) -> None:
        folder, started, refused = self.folder / f"case-{number}", time.monotonic(), False
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with self._server() as server:
                problems = cases.run(name, self.seed, folder, self.material, server)
                refused = any(code for at, code in server.first_codes.items() if at.is_relative_to(folder))
                server.first_codes.clear()
        except Skipped as skipped:
            report.skipped[name] = str(skipped)
            return
        except ServerLostError as error:
            problems = [Problem("memory", f"the server was lost: {error}")]
        except Exception as error:  # any: one broken case must not end the others
            problems = [Problem("engine", f"{type(error).__name__}: {error}")]
        report.add(name, problems, refused, time.monotonic() - started)
        if problems:
            tell(report.describe(name))
        if not self._keep:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _server(self) -> Iterator[Server]:
        server = self._idle.pop() if self._idle else Server(self.code)
        try:
            yield server
        except ServerLostError:
            server.close()
            raise
        except BaseException:
            self._idle.append(server)
            raise
        self._idle.append(server)
