import pytest

from nfdist import settings
from nfdist.errors import ConfigError
from nfdist.model.build import build_model


@pytest.mark.parametrize(
    ("overrides", "outputs"),
    [
        (["model.channels=60000", "model.heads=400"], 3),
        ([], 10**10),
        (["model.name=gcn", "model.channels=65536"], 10**8),
    ],
)
def test_a_model_beyond_the_memory_of_the_host_is_refused(overrides: list[str], outputs: int) -> None:
    usual = ["relation.order=1", "train.edge_loss=0"]
    with pytest.raises(ConfigError, match=r"needs about [\d,]+ GiB, this host has \d+: make \[model\] smaller"):
        build_model(settings.parse({}, [*usual, *overrides]), 10, outputs)
