"""Arrays of any size have their place, in memory or in files that nobody has to remove."""

import errno
import gc
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from nfdist.errors import PartitionError
from nfdist.memory import private_bytes
from nfdist.scratch import Scratch


def test_arrays_beyond_the_limit_are_no_private_memory(tmp_path: Path) -> None:
    scratch = Scratch(1 << 20, tmp_path)
    before = private_bytes()
    held = scratch.array((1 << 22, 2), np.float32)
    held[:] = 3
    assert held.sum() == 3 * 2**23
    assert private_bytes() - before < 1 << 24
    small = scratch.array(1 << 17, np.int64)
    assert not scratch.has_room(1)
    del small
    gc.collect()
    assert scratch.has_room(1 << 20)
    assert scratch.array((0, 3), np.int8).shape == (0, 3)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MemoryError, match="unable to allocate 4,294,967,296 MiB"):
        Scratch().take(1 << 52)


def test_messages_are_those_of_the_work(tmp_path: Path) -> None:
    scratch = Scratch(0, tmp_path, "sorting", "choose another", PartitionError)
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        patch("os.posix_fallocate", side_effect=full),
        pytest.raises(PartitionError, match=f"the disk that holds {tmp_path} is full: sorting needs 1 MiB more"),
    ):
        scratch.array(1 << 20, np.int8)
    with (
        patch("nfdist.scratch._is_memory", lambda folder: True),
        pytest.raises(PartitionError, match=f"{tmp_path} is kept in memory, which is limited: choose another"),
        scratch.file(),
    ):
        pass
