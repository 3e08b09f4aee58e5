"""Which scores are better: the one order of evaluations, checkpoints and seeds."""

import math
from collections.abc import Mapping
from typing import Any


def rank(scores: Mapping[str, Any]) -> float:
    """What to compare scores by: their validation score, negative where less is better, a missing one below all."""
    valid = scores.get("valid")
    if valid is None or math.isnan(valid):
        return -math.inf
    return float(valid) if scores.get("larger_is_better", True) else -float(valid)


def better(scores: Mapping[str, Any], best: Mapping[str, Any] | None) -> bool:
    """Whether later scores take the place of the best so far; where neither can be compared, the later ones count."""
    return best is None or rank(scores) > rank(best) or rank(scores) == rank(best) == -math.inf
