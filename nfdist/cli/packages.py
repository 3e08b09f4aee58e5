"""The packages that nfdist uses: their versions, and what is lost where one cannot be imported."""

import importlib
import platform
import re
from functools import partial
from importlib import metadata

from nfdist import __version__
from nfdist.cli.check import Check, failure
from nfdist.errors import ConfigError
from nfdist.observe.trackers.tracker import DOORS
from nfdist.sparse import dgl_door

REQUIRED = ("torch", "numpy", "scipy")
# For every package the module that shows whether it works, and what is lost without it.
PACKAGES = {
    "torch": ("torch", "everything"),
    "numpy": ("numpy", "everything"),
    "scipy": ("scipy.sparse", "everything"),
    "dgl": ("dgl", "model.name = gat"),
    "ogb": (None, "data sets by their OGB names"),  # never imported here: that would ask a server for news
    "pyarrow": ("pyarrow", "partitions and Parquet files"),
    "xxhash": ("xxhash", "partitions"),
    "scikit-learn": ("sklearn", "graphs made by --knn, columns of text, and the data sets digits and 20news"),
    "safetensors": ("safetensors", "checkpoints"),
    "prometheus-client": ("prometheus_client", "training"),
    "duckdb": ("duckdb", "partitioning"),
    "rich": ("rich", "progress bars"),
}
# What is installed by those who want it: for every package its extra, and what it is for.
EXTRAS = {
    "optuna": ("tune", "nfdist tune"),
    "tensorboard": ("tensorboard", "observe.trackers"),
    "mlflow": ("mlflow", "observe.trackers"),
    "wandb": ("wandb", "observe.trackers"),
}


def check_packages() -> tuple[Check, list[str]]:
    """The version of every package, and the required ones that cannot be imported."""
    check, missing = Check("packages"), []
    check.facts = {"python": platform.python_version(), "nfdist": __version__}
    for package, (module, purpose) in PACKAGES.items():
        version = check.facts[package] = _version(package)
        if module is None:
            reason = None if version else "it is not installed"
        else:
            reason = failure(_import_dgl if package == "dgl" else partial(importlib.import_module, module))
        if package in REQUIRED and reason:
            missing.append(package)
        remedy = dgl_door.REMEDY if package == "dgl" else f"pip install {package}"
        if reason:
            check.broken(f"{package} cannot be used ({reason}), which rules out {purpose}", remedy)
        elif package == "dgl":
            judge_dgl(check, version)
    return check, missing


def check_extras() -> Check:
    """The packages of extras, and how to get one that is not here; a tracker that is here is tried."""
    check = Check("extras")
    for package, (extra, purpose) in EXTRAS.items():
        version = _version("mlflow-skinny" if package == "mlflow" else package)
        reason = failure(DOORS[package].check) if version and package in DOORS else None
        check.facts[package] = version
        if reason:
            check.facts[package] = f"{version}, cannot be used: {reason.removeprefix('ConfigError: ')}"
        if version is None:
            check.facts[package] = f'not installed, for {purpose}: pip install "nfdist[{extra}]"'
    return check


def judge_dgl(check: Check, version: str | None) -> None:
    """Add a release of DGL for which nfdist is not written."""
    numbers = [int(number) for number in re.findall(r"\d+", version or "")[:3]]
    if numbers and not [1, 1, 3] <= numbers < [3]:
        check.broken(f"dgl is {version}, and nfdist knows 1.1.3 to 2", dgl_door.REMEDY)


def check_partitioning() -> Check:
    """The package through which METIS is called."""
    from nfdist.sparse.metis import metis_library  # here, since it needs the packages whose lack is reported above

    check = Check("partitioning", {"metis": metis_library()})
    if check.facts["metis"] is None:
        check.broken("--method metis has neither DGL nor pymetis", "pip install pymetis, or use --method stream")
    elif check.facts["metis"] == "pymetis":
        problem = "METIS through pymetis balances the nodes of parts only: one with more edges keeps the others waiting"
        check.slow(
            problem, f"fine for one worker; for DGL's, which balances edges and training nodes, {dgl_door.REMEDY}"
        )
    return check


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _import_dgl() -> None:
    try:
        dgl_door.dgl()
    except ConfigError as error:
        raise (error.__cause__ or error) from None
