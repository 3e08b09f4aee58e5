"""How a source is to be read."""

import math
from dataclasses import dataclass

from nfdist.config import parse_fractions
from nfdist.errors import ConfigError


@dataclass(frozen=True)
class SourceOptions:
    """What the user may say about a source; an empty column name means the usual names.

    `split` is "official", "random:0.5/0.25/0.25" or None: official where the source has one, else that random one.
    `knn` 0 keeps the source's edges. `scale` is for amazon2m-like alone.
    """

    split: str | None = None
    split_index: int = 0
    seed: int = 0
    knn: int = 0
    normalize_features: str = "none"
    task: str = ""
    scale: float = 1.0
    id_column: str = ""
    feature_columns: tuple[str, ...] = ()
    label_column: str = ""
    split_column: str = ""
    source_column: str = ""
    target_column: str = ""

    def __post_init__(self) -> None:
        if self.split is not None and self.split != "official":
            parse_fractions("split", self.split, "official")
        for name in ("split_index", "knn"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be zero or positive, got {getattr(self, name)}")
        if self.normalize_features not in ("none", "row"):
            raise ConfigError(f"normalize_features must be none or row, got {self.normalize_features!r}")
        if self.task not in ("", "single", "binary", "multi"):
            raise ConfigError(f"task must be single, binary or multi, got {self.task!r}")
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ConfigError(f"scale must be positive, got {self.scale}")
        if isinstance(self.feature_columns, str):
            raise ConfigError(f"feature_columns must be a list of names, got the string {self.feature_columns!r}")
