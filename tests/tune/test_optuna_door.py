"""Without Optuna there is one line that says what to install."""

import sys

import pytest

from nfdist.errors import ConfigError
from nfdist.tune.optuna_door import optuna


def test_a_missing_optuna_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    optuna.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r'needs Optuna .*: pip install "nfdist\[tune\]"'):
            optuna()
    finally:
        optuna.cache_clear()
