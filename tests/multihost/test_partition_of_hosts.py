"""A partitioning on hosts that have no disk in common, by the launcher itself: the same as by one process."""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from nfdist.partitioning.pipeline import partition
from nfdist.partitioning.recipe import Recipe
from nfdist.store.cache import available_parts
from tests.multihost.hosts import Host
from tests.multihost.starting import start_all
from tests.partitioning.every_source import contents
from tests.partitioning.ranks import parts_together
from tests.partitioning.wrong_tables import EDGES, NODES, write

LAUNCHER = Path(__file__).parents[2] / "launch" / "partition-many-hosts.sh"


@pytest.mark.slow
def test_hosts_write_the_parts_that_one_process_writes(hosts: list[Host], tmp_path: Path) -> None:
    commands = []
    for rank, host in enumerate(hosts):
        folder = tmp_path / str(rank)
        write(NODES, folder / "shop" / "nodes.csv")
        write(EDGES, folder / "shop" / "edges.parquet")
        own = {"HOSTS": len(hosts), "NODE_RANK": rank, "MASTER_ADDR": hosts[0].address, "SOURCE": "shop", "WORKERS": 1}
        own |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        words = ["bash", str(LAUNCHER), "--parts", "5", "--method", "stream", "--out", "out", "--json"]
        told = [f"{name}={value}" for name, value in own.items()]
        commands.append(host.inside(["env", f"--chdir={folder}", *told, *words]))
    with ExitStack() as stack:
        jobs = start_all(stack, hosts, commands, tmp_path)
        assert [job.wait() for job in jobs] == [0] * len(hosts)
        printed = [line for job in jobs for line in job.output.splitlines() if line.startswith("{")]
    folders = [tmp_path / str(rank) / "out" for rank in range(len(hosts))]
    assert [available_parts(folder) for folder in folders] == [[0], [1, 2], [3, 4]]
    assert [json.loads(line)["parts"] for line in printed] == [5]
    recipe = Recipe.build(str(tmp_path / "0" / "shop"), {"parts": 5, "method": "stream", "out": str(tmp_path / "one")})
    partition(recipe)
    whole, found = contents(tmp_path / "one"), parts_together(folders)
    assert whole.pop("manifest.json") != found.pop("manifest.json")  # other paths are in their recipes
    assert found == whole
