"""The attempts of one torchrun, which starts its workers again when they fail: not where that is of no use."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class Attempts:
    """What the attempts of one torchrun tell each other through a file: that no later one should try again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        error_file = environment.get("TORCHELASTIC_ERROR_FILE")  # .../<this launch>/attempt_0/<local rank>/error.json
        self._file = Path(error_file).parents[2] / "nfdist-gave-up" if error_file else None
        self._number = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))

    def give_up(self, code: int, only_failures: bool = False) -> None:
        """Let every later attempt end with this exit code; `only_failures` leaves out those after which a host joins.

        torchrun stops and starts its workers to take in another host, too, and does not count that as an attempt.
        """
        if self._file is not None:
            with suppress(OSError):
                self._file.write_text(f"{code} {self._number if only_failures else -1}")

    def earlier_code(self) -> int | None:
        """The exit code of an attempt that gave up, if this one should."""
        try:
            code, number = map(int, self._file.read_text().split()) if self._file else (0, self._number)
        except (OSError, ValueError):
            return None
        return code if self._number > number else None
