"""The wheel has every file, and what the documents name is where they say."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.wheel import DATA_FOLDERS, ROOT, build_wheel, data_files, install_wheel

SHIPPED = (".py", ".typed", ".css", ".js")
FROM_THE_REPOSITORY = {"launch/Containerfile"}  # an image is made of the tree


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_no_file_is_missing_and_none_is_added(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "nfdist").rglob("*") if path.suffix in SHIPPED}
    assert {name for name in names if ".data/" not in name} == package
    data = {name.partition("/data/share/nfdist/")[2] for name in names if ".data/" in name}
    assert data == {file for name in DATA_FOLDERS for file in data_files(name)} - FROM_THE_REPOSITORY


def test_every_folder_of_the_package_is_importable(wheel: Path) -> None:
    """A folder without __init__.py would be left out without a word."""
    folders = {path.parent for path in (ROOT / "nfdist").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.slow
def test_launchers_and_recipes_work_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    environment = install_wheel(wheel, tmp_path / "environment")
    empty = tmp_path / "empty"
    shutil.copytree(environment / "share" / "nfdist", empty)
    variables = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}

    def run(*words: str) -> None:
        done = subprocess.run(words, cwd=empty, env=variables, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr

    run("nfdist", "partition", "partitions/amazon2m-like.toml", "--scale", "0.001")
    run("launch/one-host.sh", "train.epochs=1", "train.batch_nodes=500", "observe.port=0")
    run("nfdist", "evaluate", "runs/amazon2m-like")
    assert (empty / "runs" / "amazon2m-like" / "predictions.parquet").exists()
