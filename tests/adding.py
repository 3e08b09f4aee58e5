"""A file added to one of nfdist's packages, as whoever extends it would write one there."""

from importlib import import_module
from pathlib import Path

from nfdist.plugins import import_modules


def add_file(package: str, folder: Path, name: str, text: str) -> None:
    """Write a module into a folder of its own, which becomes a part of the package in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    import_module(package).__path__.append(str(folder))
    import_modules(package)
