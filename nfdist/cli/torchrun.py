"""torchrun for a command that starts workers: stopped by a signal it ends with that exit code, and says nothing.

Its own end would be a traceback: python -m nfdist.cli.torchrun takes the words of torchrun.
"""

import logging
import os
import signal
import sys


def main() -> None:
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))  # until torchrun has handlers of its own
    logging.disable(logging.WARNING)  # what torchrun remarks; its errors stay
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException

    try:
        run.main()
    except SignalException as stop:
        sys.exit(128 + stop.sigval)


if __name__ == "__main__":
    main()
