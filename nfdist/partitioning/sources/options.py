"""How a source is to be read."""

from collections import Counter
from dataclasses import dataclass

from nfdist.config import parse_fractions
from nfdist.errors import ConfigError
from nfdist.partitioning import choices
from nfdist.settings import convert_fields

# What cannot work, refused before anything is read: amazon2m-like numbers its nodes in 32 bits, which 876 times
# Amazon2M exceed, and no k-NN graph of thousands of neighbors is sparse.
_LIMITS = {"split_index": 1 << 31, "seed": 1 << 63, "knn": 1001}
_LARGEST_SCALE = 876.0
USES = choices.USES
NODE_COLUMNS = ("id_column", "feature_columns", "label_column", "split_column")


@dataclass(frozen=True)
class SourceOptions:
    """What the user may say about a source; an empty column name means the usual names.

    `split` is "official", "random:0.5/0.25/0.25" or None: official where the source has one, else that random one.
    `columns` say how to use single ones, as in "age=number". `knn` 0 keeps the source's edges. `scale` is for
    made graphs alone.
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
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.split is not None and self.split != "official":
            parse_fractions("split", self.split, "official")
        for name, limit in _LIMITS.items():
            if not 0 <= getattr(self, name) < limit:
                raise ConfigError(f"{name} must be between 0 and {limit - 1}, got {getattr(self, name)}")
        if self.normalize_features not in ("none", "row"):
            raise ConfigError(f"normalize_features must be none or row, got {self.normalize_features!r}")
        if self.task not in ("", "single", "binary", "multi"):
            raise ConfigError(f"task must be single, binary or multi, got {self.task!r}")
        if not 0 < self.scale <= _LARGEST_SCALE:
            raise ConfigError(f"scale must be positive and at most {_LARGEST_SCALE:g}, got {self.scale}")
        for name, count in Counter(self.feature_columns).items():
            if count > 1 or not name:
                raise ConfigError(f"feature_columns must be distinct names, got {name!r:.100} {count} times")
        for name, use in self.said.items():
            if not name or use not in USES:
                raise ConfigError(f"column {name!r:.100} must be used as one of {', '.join(USES)}, got {use!r:.100}")

    @property
    def said(self) -> dict[str, str]:
        """How the user wants columns to be used, by their names."""
        pairs = (one.rpartition("=") for one in self.columns)
        return {name: use for name, _, use in pairs}
