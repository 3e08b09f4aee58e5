"""A wheel of this tree, and an environment that has it beside the packages that are installed already."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA_FOLDERS = ("launch", "partitions")  # folders that go into share/nfdist
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def build_wheel(folder: Path) -> Path:
    """The wheel of a copy of this tree: a build leaves folders behind, whose files would get into the next one."""
    tree = folder / "tree"
    for name in ("nfdist", *DATA_FOLDERS):
        shutil.copytree(ROOT / name, tree / name, ignore=_generated)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    _run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(tree)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> Path:
    """The folder of an environment with the wheel, which finds all other packages where this process finds them."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    _run([*PIP, "--python", str(python), "install", "--no-deps", str(wheel)])
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = "import nfdist, sys; sys.exit(not nfdist.__file__.startswith(sys.argv[1]))"
    _run([str(python), "-I", "-c", code, str(site)])
    torchrun = folder / "bin" / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    return folder


def data_files(name: str) -> set[str]:
    """The files of one of these folders, relative to this tree; partitions made by recipes are not among them."""
    files = [path for path in (ROOT / name).rglob("*") if path.is_file()]
    kept = {path.relative_to(ROOT) for path in files if not set(_generated(str(path.parent), [path.name]))}
    return {str(path) for path in kept if name != "partitions" or len(path.parts) == 2}


def _generated(folder: str, names: list[str]) -> list[str]:
    """What is no source: byte code, and partitions that were made beside their recipes."""
    made = [name for name in names if Path(folder).name == "partitions" and (Path(folder) / name).is_dir()]
    return [*made, *(name for name in names if name == "__pycache__" or name.endswith(".pyc"))]


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
