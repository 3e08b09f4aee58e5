"""Tensors of any size have their place, in memory or in files that nobody has to remove."""

import errno
import gc
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from nfdist.config import RelationConfig
from nfdist.errors import ConfigError
from nfdist.evaluation.budget import Budget
from nfdist.evaluation.full import FullGraph
from nfdist.graph.spill import Spill
from nfdist.store.hops import Hops
from nfdist.store.store import Store
from nfdist.world import World
from tests.evaluation.building import Options, write_graph
from tests.model.building import OPTIONS

OPTIONS_OF_ONE_HOP = Options(*OPTIONS["paper's large graphs"])


def mapped_files(folder: Path) -> int:
    """How many maps of files in a folder this process has, files without a name included."""
    gc.collect()
    return sum(f" {folder}/" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_tensors_beyond_the_limit_are_in_files_and_give_their_place_back(tmp_path: Path) -> None:
    spill = Spill(5000, tmp_path)
    kept = spill.tensor((500, 2), torch.float32)
    assert mapped_files(tmp_path) == 0
    other = spill.tensor((500, 2), torch.float32)
    assert mapped_files(tmp_path) == 1
    assert kept.sum() == other.sum() == 0
    other[499, 1] = 3.0
    assert other.sum() == 3
    assert list(tmp_path.iterdir()) == []
    del kept, other
    assert mapped_files(tmp_path) == 0
    assert len(spill.tensor((1250,), torch.float32)) == 1250
    assert mapped_files(tmp_path) == 0
    assert spill.tensor((0, 7), torch.int64).shape == (0, 7)


def test_an_evaluation_leaves_no_file_behind(tmp_path: Path) -> None:
    """Neither after it succeeded nor after it failed."""
    store = Store.open(write_graph(tmp_path / "graph", "directed", 2))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with patch.object(Budget, "within", lambda *_: Budget(0, 8000)):
        hops = Hops.open(store, 1)
        graph = FullGraph(store, hops, RelationConfig(1, "identity"), World(), scratch=scratch, dtype=torch.float64)
    model = OPTIONS_OF_ONE_HOP.build(5)
    with (
        patch("nfdist.model.layer.attend_to", side_effect=OSError("broken")),
        pytest.raises(OSError, match="broken"),
    ):
        graph.evaluate(model, 0)
    assert mapped_files(scratch) > 3
    logits = graph.evaluate(model, 0).logits
    assert list(scratch.iterdir()) == []
    del graph
    assert mapped_files(scratch) == 1  # of what is still in use
    assert torch.isfinite(logits).all()
    del logits
    assert mapped_files(scratch) == 0


def test_a_folder_that_cannot_help_is_named(tmp_path: Path) -> None:
    with (
        patch("os.posix_fallocate", side_effect=OSError(errno.ENOSPC, "No space left on device")),
        pytest.raises(ConfigError, match=rf"the disk that holds {tmp_path} is full: evaluation needs 4 MiB more"),
    ):
        Spill(0, tmp_path).tensor((1 << 20,), torch.float32)
    with pytest.raises(ConfigError, match=r"gone.* cannot be written: .*No such file"):
        Spill(0, tmp_path / "gone").tensor((1,), torch.float32)
    mounts = f"1 1 {_device(tmp_path)} / / rw - tmpfs tmpfs rw\n"
    with (
        patch.object(Path, "read_text", lambda _: mounts),
        pytest.raises(ConfigError, match=f"{tmp_path} is kept in memory, which is limited: set TMPDIR to a folder"),
    ):
        Spill(0, tmp_path).tensor((1,), torch.float32)


def _device(path: Path) -> str:
    number = path.stat().st_dev
    return f"{number >> 8 & 0xFFF}:{number & 0xFF}"
