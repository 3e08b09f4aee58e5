"""A checkpoint: a directory of safetensors files and state.json, whole or absent, in which any altered byte shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfdist.errors import CheckpointError
from nfdist.files import checksum_of, dump_checked, load_checked, write_flushed, written_aside

if TYPE_CHECKING:  # what lists and cleans runs is done before torch is loaded
    from torch import Tensor

FORMAT_VERSION = 1
STATE_FILE = "state.json"
CURE = "use another checkpoint, and remove this one"


@dataclass(frozen=True)
class Checkpoint:
    """`state` is what its writer gave; `files` are the size and checksum of every tensor file, by its name."""

    path: Path
    state: dict[str, Any]
    files: dict[str, dict[str, Any]]

    @staticmethod
    def save(path: Path, tensors: "Mapping[str, Mapping[str, Tensor]]", state: Mapping[str, Any]) -> "Checkpoint":
        """Write <name>.safetensors for every group of tensors, and the state, which is JSON; `path` must not exist."""
        import safetensors.torch

        needed_bytes = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
        files = {}
        with written_aside(path, needed_bytes, "checkpoint", CheckpointError) as aside:
            for name, group in tensors.items():
                # safetensors' own save_file hides why a write failed, and lets nobody else read the file.
                content = safetensors.torch.save({key: _plain(tensor) for key, tensor in group.items()})
                write_flushed(_tensor_file(aside, name), content)
                files[name] = _facts(content)
            try:
                write_flushed(aside / STATE_FILE, dump_checked(FORMAT_VERSION, {"files": files, "state": state}))
            except ValueError as error:
                raise CheckpointError(f"the state of {path} is not JSON ({error}): did training diverge?") from None
        return Checkpoint.open(path, verify=False)

    @staticmethod
    def open(path: Path, verify: bool = True) -> "Checkpoint":
        """A checkpoint whose state is unaltered; `verify` checks its tensors now, otherwise they are when read."""
        if not path.is_dir():
            raise CheckpointError(f"{path} is not a directory: give a checkpoint, RUN_DIR/checkpoints/seed-S/step-N")
        parsed = _decoded(path / STATE_FILE)
        state, files = parsed.get("state"), parsed.get("files")
        if not isinstance(state, dict) or not isinstance(files, dict) or not all(map(_is_name, files)):
            raise CheckpointError(f"{path / STATE_FILE} names no state and files: {CURE}")
        checkpoint = Checkpoint(path, state, files)
        for name in checkpoint.files if verify else ():
            checkpoint._content(name)
        return checkpoint

    def tensors(self, name: str) -> "dict[str, Tensor]":
        """The tensors of one file, such as "weights", on the CPU."""
        import safetensors.torch

        if name not in self.files:
            raise CheckpointError(f"{self.path} holds no {name}, only {', '.join(self.files)}: use another checkpoint")
        try:
            return safetensors.torch.load(self._content(name))
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise CheckpointError(f"{_tensor_file(self.path, name)} holds no tensors ({error}): {CURE}") from None

    @property
    def size_bytes(self) -> int:
        """The size of its tensor files."""
        return sum(facts["size_bytes"] for facts in self.files.values())

    def _content(self, name: str) -> bytes:
        file = _tensor_file(self.path, name)
        content = _read(file)
        if _facts(content) != self.files[name]:
            raise _altered(file)
        return content


def _tensor_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.safetensors"


def _is_name(name: str) -> bool:
    """Whether this can be the name of a file in the checkpoint's own folder."""
    return name.isidentifier()


def _plain(tensor: "Tensor") -> "Tensor":
    """A copy that shares no memory, as safetensors wants it."""
    import torch

    return torch.clone(tensor.detach().cpu(), memory_format=torch.contiguous_format)


def _facts(content: bytes) -> dict[str, Any]:
    return {"size_bytes": len(content), "checksum": checksum_of(content)}


def _decoded(file: Path) -> dict[str, Any]:
    """What state.json says, if it is what was written, to the byte."""
    try:
        return load_checked(_read(file), FORMAT_VERSION, CURE)
    except ValueError as error:
        raise CheckpointError(f"{file} {error}") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"{file.parent} holds no {file.name}: use another checkpoint, this one is not whole"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}; use another checkpoint") from None


def _altered(file: Path) -> CheckpointError:
    return CheckpointError(f"{file} was altered since it was written: {CURE}")
