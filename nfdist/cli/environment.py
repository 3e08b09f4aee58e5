"""What is wrong around a command rather than in it: no memory, no disk, no permission, no open stdout."""

import errno
import os
import resource
import sys
from typing import Any

from nfdist.errors import ConfigError
from nfdist.memory import is_shortage

LEAST_ADDRESS_SPACE_BYTES = 3 << 29  # torch, OpenBLAS, pyarrow and DGL with two threads, tried with ulimit -v

_NOT_THE_ENVIRONMENT = (ConnectionError, ChildProcessError, BlockingIOError, InterruptedError, ProcessLookupError)


def explain(error: BaseException, command: str) -> str | None:
    """One line about an error that no change to nfdist would prevent; None for a bug."""
    if is_shortage(error):
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        return (
            f"{command} ran out of memory ({reason:.160}): close other programs, raise the limit (ulimit -v), "
            f"{_LESS_MEMORY.get(command, 'or use a machine with more memory')}"
        )
    if isinstance(error, OSError) and not isinstance(error, _NOT_THE_ENVIRONMENT) and error.errno is not None:
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        advice = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some space of your quota",
            errno.EMFILE: "raise the limit (ulimit -n)",
            errno.ENFILE: "close other programs",
        }.get(error.errno, "see that it can be read and written, and run the command again")
        return f"{command}: {where or 'a file'} cannot be used ({error.strerror}): {advice}"
    return None


def check_address_space(command: str) -> None:
    """Refuse a limit under which the libraries cannot even be loaded: some of them abort instead of saying so."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE_BYTES:
        raise ConfigError(
            f"{command} may use {limit / 2**30:.2f} GiB of addresses, and loading its libraries takes "
            f"{LEAST_ADDRESS_SPACE_BYTES / 2**30:g} GiB: raise the limit (ulimit -v)"
        )


def open_standard_streams() -> None:
    """Open what the caller has closed of stdin, stdout and stderr: else the next file would get its number.

    Then whatever a library prints would go into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


def spare_pandas() -> None:
    """Let pyarrow find no pandas when it looks for it, once, at its first array: that takes a tenth of a second.

    Only for a process that is all nfdist's: its pyarrow knows no tables of pandas from then on.
    """
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow

        pyarrow.scalar(0)
    finally:
        sys.meta_path.remove(finder)


class _NoPandas:
    """A finder of modules, before all others."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not wanted here")


_LESS_MEMORY = {
    "train": "or lower train.batch_nodes",
    "evaluate": "or give --memory, or --device cpu where it was a GPU's",
    "partition": "or see nfdist plan for what it needs",
}
