"""A checkpoint comes back equal to the bit, or not at all."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nfdist import files
from nfdist.errors import CheckpointError
from nfdist.runs.checkpoint import Checkpoint
from tests.runs.building import build_tensors, flip

STATE: dict[str, Any] = {
    "seed": 3,
    "epoch": 2,
    "step": 17,
    "rate": 0.1 + 0.2,
    "tiny": 5e-324,
    "large": 2**70,
    "text": "käse \u2028 \ud800",
    "list": [1, None, True, {"deep": []}],
}


def bits(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).tolist()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    Checkpoint.save(tmp_path / "c", build_tensors(), STATE)
    return tmp_path / "c"


def refusal(path: Path, verify: bool = True) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(path, verify)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tensors_and_state_come_back_equal_to_the_bit(saved: Path) -> None:
    checkpoint = Checkpoint.open(saved)
    assert checkpoint.state == STATE
    assert sorted(path.name for path in saved.iterdir()) == [
        "optimizer.safetensors",
        "state.json",
        "weights.safetensors",
    ]
    for name, group in build_tensors().items():
        found = checkpoint.tensors(name)
        assert {key: bits(tensor) for key, tensor in found.items()} == {key: bits(group[key]) for key in group}
        assert all(tensor.is_contiguous() for tensor in found.values())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-45])
def test_numbers_at_the_edge_keep_their_bits(tmp_path: Path, value: float) -> None:
    tensor = torch.tensor([value])
    Checkpoint.save(tmp_path / "c", {"weights": {"a": tensor}}, {})
    assert bits(Checkpoint.open(tmp_path / "c").tensors("weights")["a"]) == bits(tensor)


def test_views_shared_memory_and_gradients_are_no_obstacle(tmp_path: Path) -> None:
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    given = {"whole": base, "again": base, "row": base[1], "turned": base.T, "every": base[:, ::2]}
    loaded = Checkpoint.save(tmp_path / "c", {"weights": given}, {}).tensors("weights")
    assert {key: bits(tensor) for key, tensor in loaded.items()} == {
        key: bits(tensor.detach().contiguous()) for key, tensor in given.items()
    }


def test_what_is_read_may_be_changed_and_the_file_stays(saved: Path) -> None:
    Checkpoint.open(saved).tensors("optimizer")["moments"].zero_()
    assert torch.equal(Checkpoint.open(saved).tensors("optimizer")["moments"], build_tensors()["optimizer"]["moments"])


def test_there_may_be_any_number_of_tensor_files(tmp_path: Path) -> None:
    Checkpoint.save(tmp_path / "none", {}, {"step": 1})
    assert Checkpoint.open(tmp_path / "none").state == {"step": 1}
    Checkpoint.save(tmp_path / "three", {"a": {}, "b": {"x": torch.ones(2)}, "c": {}}, {})
    three = Checkpoint.open(tmp_path / "three")
    assert three.tensors("a") == {}
    assert torch.equal(three.tensors("b")["x"], torch.ones(2))
    assert three.size_bytes == sum(path.stat().st_size for path in (tmp_path / "three").glob("*.safetensors"))
    with pytest.raises(CheckpointError, match="holds no weights, only a, b, c"):
        three.tensors("weights")


def test_the_same_content_is_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    Checkpoint.save(tmp_path / "again", build_tensors(), STATE)
    for path in saved.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


@pytest.mark.parametrize("file", ["state.json", "weights.safetensors", "optimizer.safetensors"])
def test_any_altered_byte_is_found(saved: Path, file: str) -> None:
    path = saved / file
    content = path.read_bytes()
    for position in range(0, len(content), 1 if file == "state.json" else 7):
        flip(path, position)
        assert file in refusal(saved)
        path.write_bytes(content)
    for other in (b"", content[:-1], content + b"\n", content.replace(b"\n", b"\r\n") + b" "):
        path.write_bytes(other)
        assert file in refusal(saved)


def test_a_value_of_the_state_cannot_be_edited(saved: Path) -> None:
    path = saved / "state.json"
    path.write_text(path.read_text().replace('"step": 17', '"step": 18'))
    assert "state.json was altered" in refusal(saved, verify=False)


def test_unverified_tensors_are_checked_when_they_are_read(saved: Path) -> None:
    flip(saved / "weights.safetensors", -1)
    checkpoint = Checkpoint.open(saved, verify=False)
    assert torch.equal(checkpoint.tensors("optimizer")["step"], torch.tensor(9))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors was altered"):
        checkpoint.tensors("weights")


@pytest.mark.parametrize("file", ["state.json", "weights.safetensors"])
def test_a_missing_file_is_named(saved: Path, file: str) -> None:
    (saved / file).unlink()
    assert f"holds no {file}: use another checkpoint" in refusal(saved)
    (saved / file).mkdir()
    assert f"{file} cannot be read: Is a directory" in refusal(saved)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    assert "nowhere is not a directory" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0])
def test_an_unknown_version_is_refused_before_anything_else(saved: Path, version: object) -> None:
    (saved / "state.json").write_text(json.dumps({"format_version": version, "of": "the future"}))
    assert f"has format version {version!r}, this nfdist reads version 1" in refusal(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"format_version": 1}', "\x00\xff", "[" * 100_000])
def test_text_that_is_no_state_is_refused(saved: Path, text: str) -> None:
    (saved / "state.json").write_text(text, encoding="latin-1")
    assert "state.json was altered" in refusal(saved)


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_an_interruption_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException
) -> None:
    written: list[Path] = []

    def failing(path: Path, content: bytes) -> None:
        if len(written) == after:
            raise error
        written.append(path)
        files.write_flushed(path, content)

    monkeypatch.setattr("nfdist.runs.checkpoint.write_flushed", failing)
    with pytest.raises((KeyboardInterrupt, CheckpointError)) as caught:
        Checkpoint.save(tmp_path / "c", build_tensors(), STATE)
    assert list(tmp_path.iterdir()) == []
    if isinstance(error, OSError):
        assert f"the disk that holds {tmp_path} is full: the checkpoint needs about 0.0 MiB" in str(caught.value)


def test_a_state_that_json_cannot_hold_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"c is not JSON .*: did training diverge"):
        Checkpoint.save(tmp_path / "c", {}, {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_never_written_over(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="already exists"):
        Checkpoint.save(saved, {}, {})
    assert Checkpoint.open(saved).state == STATE


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x08" + bytes(7) + b'{"a": 3}'])
def test_checked_bytes_that_are_no_tensors_are_refused(tmp_path: Path, content: bytes) -> None:
    Checkpoint.save(tmp_path / "c", {"weights": {}}, {})
    (tmp_path / "c" / "weights.safetensors").write_bytes(content)
    facts = {"size_bytes": len(content), "checksum": files.checksum_of(content)}
    (tmp_path / "c" / "state.json").write_bytes(files.dump_checked(1, {"files": {"weights": facts}, "state": {}}))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors holds no tensors"):
        Checkpoint.open(tmp_path / "c").tensors("weights")


@pytest.mark.parametrize(
    "content", [{}, {"files": [], "state": {}}, {"files": {}, "state": 1}, {"files": {"../x": {}}, "state": {}}]
)
def test_a_checked_state_of_other_form_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    Checkpoint.save(tmp_path / "c", {}, {})
    (tmp_path / "c" / "state.json").write_bytes(files.dump_checked(1, content))
    assert "names no state and files" in refusal(tmp_path / "c")
