"""Stores to test with: a folder behind fake:// URIs, and a real S3 server on loopback (moto's; `make test-remote`)."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs

from nfdist import remote
from nfdist.store import cache

FAKE = "fake://"
_WAIT_SECONDS = 60.0
_SERVE = """
import socket, sys
from pathlib import Path
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
Path(sys.argv[1]).write_text(str(server.server_port))
server.serve_forever()
"""
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def fake_store(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Path, list[str]]:
    """A folder whose files are at fake:// from now on, with a cache beside it, and the list of files fetched so far."""
    root, fetched, fetch = folder / "elsewhere", list[str](), remote.Remote.fetch
    root.mkdir()

    def open_filesystem(uri: str) -> tuple[Any, str]:
        if not uri.startswith(FAKE):
            return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
        return fs.SubTreeFileSystem(str(root), fs.LocalFileSystem()), uri.removeprefix(FAKE)

    def counted(self: remote.Remote, name: str, *rest: Any) -> None:
        fetched.append(f"{self.path}/{name}".rstrip("/"))
        fetch(self, name, *rest)

    monkeypatch.setattr(remote, "open_filesystem", open_filesystem)
    monkeypatch.setattr(remote.Remote, "fetch", counted)
    monkeypatch.setenv("NFDIST_CACHE", str(folder / "cache"))
    monkeypatch.delenv("NFDIST_CACHE_SIZE", raising=False)
    return root, fetched


def end_use() -> None:
    """What the end of the process does to entries of the cache that it used."""
    while cache._in_use:
        cache._in_use.popitem()[1].close()


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """The port of a server with an empty bucket called `bucket`."""
    ready = folder / "port"
    with (folder / "server.log").open("wb") as log:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen([sys.executable, "-c", _SERVE, str(ready)], stdout=log, stderr=log, env=environment)
    try:
        ends = time.monotonic() + _WAIT_SECONDS
        while not (ready.exists() and ready.read_text()):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < ends, "moto's server did not start"
            time.sleep(0.05)
        port = int(ready.read_text())
        _make_bucket(port, ends)
        yield port
    finally:
        process.terminate()
        process.wait()


def uri(port: int, path: str) -> str:
    return f"s3://bucket/{path}?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


def _make_bucket(port: int, ends: float) -> None:
    while True:
        try:
            urlopen(Request(f"http://127.0.0.1:{port}/bucket", method="PUT"), timeout=10).close()
            return
        except URLError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)
