"""The command and the versions are those of the result, or before there is one of a checkpoint."""

import shlex

from nfdist import settings
from nfdist.reporting.provenance import trace
from nfdist.runs.run import Run
from tests.reporting.explained import Explained


def test_the_command_has_the_workers_and_threads_of_the_run(explained: Explained) -> None:
    run = Run.open(explained.path)
    alone = trace(run, run.result(), None)
    config, where = shlex.split(alone.command)[2:]
    assert settings.parse(settings.read_toml(explained.path / "config.toml")) == run.config
    assert (config, where) == (f"{explained.path}/config.toml", f"run.dir={explained.path}-again")
    many = trace(run, None, {"world_size": 4, "versions": {"threads": "2"}})
    assert many.command.startswith("OMP_NUM_THREADS=2 torchrun --standalone --nproc-per-node 4 -m nfdist train ")
    assert trace(run, None, None).versions == {}


def test_every_setting_is_there_once_and_those_that_differ_come_first(explained: Explained) -> None:
    found = explained.facts.provenance.settings
    assert len({one.name for one in found}) == len(found) > 50
    differ = [one.differs for one in found]
    assert differ == sorted(differ, reverse=True)
    values = {one.name: (one.value, one.default) for one in found}
    assert values["model.channels"] == ("8", "32")
    assert values["train.seeds"][0] == "[0, 1]"
