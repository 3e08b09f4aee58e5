"""The installed script, and `python -m nfdist`, which is also how torchrun starts a worker.

A Ctrl-C that comes while the command line itself is loaded ends it like any later one: in one line.
"""

import os
import signal
from types import FrameType
from typing import NoReturn


def _end(number: int, frame: FrameType | None) -> None:
    if "NFDIST_STARTED" not in os.environ and os.environ.get("RANK", "0") == "0":
        os.write(2, b"nfdist: interrupted: run the same command again\n")
    os._exit(130)


def main() -> NoReturn:
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    from nfdist.cli.main import entry

    entry()


if __name__ == "__main__":
    main()
