"""Packages to which a file adds a thing: importing each module of one lets it register what it defines."""

import pkgutil
import sys
from importlib import import_module


def import_modules(package: str) -> None:
    """Import every module of a package, in the order of their names."""
    for found in pkgutil.iter_modules(sys.modules[package].__path__):
        import_module(f"{package}.{found.name}")
