"""The names that are known before torch is loaded are those of the models."""

from nfdist.model.build import MODELS
from nfdist.model.names import MODEL_NAMES


def test_names_are_those_of_the_models() -> None:
    assert tuple(MODELS) == MODEL_NAMES
