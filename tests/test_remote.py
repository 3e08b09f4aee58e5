"""Files elsewhere: what a URI names, whole files only, and one line when something is wrong."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from nfdist.cli.main import main
from nfdist.errors import ConfigError, PartitionError
from nfdist.remote import Remote, fetched, is_uri, last_name, refuse_uri, without_file_scheme
from nfdist.store.store import Store
from tests.cli.runs import mistake
from tests.object_store import fake_store
from tests.tables import machines, save


def test_a_scheme_makes_a_uri() -> None:
    assert all(map(is_uri, ("s3://bucket/x", "gs://b", "file:///x", "abfss://a@b/c")))
    assert not any(map(is_uri, ("x", "/x", "a:b", "://x", "C://x", "s3:/x", Path("s3://x"))))


def test_a_file_uri_is_its_path() -> None:
    assert without_file_scheme("file:///a/b%20c") == "/a/b c"
    assert without_file_scheme("a/b") == "a/b"
    assert without_file_scheme("s3://a/b") == "s3://a/b"
    with pytest.raises(ConfigError, match="names no file of this host"):
        without_file_scheme("file://elsewhere/a")


def test_the_name_of_a_copy_has_no_options() -> None:
    assert last_name("s3://bucket/a/graph.npz?region=x&endpoint_override=127.0.0.1:1/2") == "graph.npz"
    assert last_name("s3://bucket/a/") == "a"


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "s3://bucket/x?nosuch=1"])
def test_what_pyarrow_refuses_is_one_line(uri: str) -> None:
    with pytest.raises(PartitionError, match="check the URI") as caught:
        Remote.open(uri, PartitionError)
    assert str(caught.value).startswith(f"{uri} cannot be opened (")
    assert "\n" not in str(caught.value)


def test_a_uri_names_something() -> None:
    with pytest.raises(PartitionError, match="s3:// names no file or folder"):
        Remote.open("s3://", PartitionError)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="environment") as caught:
        Remote.open("s3://me:hunter2@bucket/x", ConfigError)
    assert "hunter2" not in str(caught.value)


def test_a_path_is_wanted_where_a_uri_cannot_be() -> None:
    refuse_uri("run.dir", "runs/x", "")
    with pytest.raises(ConfigError, match=r"run\.dir s3://a is a URI: name a folder"):
        refuse_uri("run.dir", "s3://a", "name a folder")


def test_a_file_that_would_leave_its_folder_is_refused() -> None:
    class Elsewhere:
        def get_file_info(self, asked: Any) -> Any:
            folder = fs.FileInfo("b/x", fs.FileType.Directory)
            return folder if isinstance(asked, str) else [fs.FileInfo("b/x/../../y", fs.FileType.File, size=1)]

    with pytest.raises(PartitionError, match="rename it"):
        Remote("odd://b/x", Elsewhere(), "b/x", PartitionError).files()


def test_a_file_of_another_size_than_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = fake_store(monkeypatch, tmp_path)
    (root / "a").write_bytes(b"12345")
    remote = Remote.open("fake://a", PartitionError)
    assert remote.files() == {"": 5}
    remote.fetch("", 5, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"12345"
    with pytest.raises(PartitionError, match="has 5 bytes instead of 6"):
        remote.fetch("", 6, tmp_path / "copy")


def test_a_source_elsewhere_gives_the_partition_of_the_same_source_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = fake_store(monkeypatch, tmp_path)
    here = save(tmp_path / "shop", machines())
    shutil.copytree(here, root / "shop")
    names = ["--id-column", "machine", "--label-column", "condition"]
    options = [*names, "--parts", "2", "--method", "random", "--out"]
    for source, out in ((str(here), "a"), ("fake://shop", "b"), (here.as_uri(), "c")):
        assert main(["partition", source, *options, str(tmp_path / out)]) == 0
    stores = [Store.open(tmp_path / out) for out in "abc"]
    assert stores[0].manifest.files == stores[1].manifest.files == stores[2].manifest.files
    assert [store.manifest.recipe["source"] for store in stores[1:]] == ["fake://shop", here.as_uri()]


def test_a_wrong_source_elsewhere_is_told_by_its_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = fake_store(monkeypatch, tmp_path)
    out = ("--parts", "2", "--out", tmp_path / "out")
    assert "fake://none does not exist or is empty" in mistake(capsys, "partition", "fake://none", *out)
    assert "recipe fake://a.toml is a URI: copy it here" in mistake(capsys, "partition", "fake://a.toml", *out)
    (root / "odd").mkdir()
    (root / "odd" / "x.txt").write_text("?")
    with pytest.raises(PartitionError) as caught, fetched("fake://odd", PartitionError) as source:
        raise PartitionError(f"{source}/x.txt is odd")
    assert str(caught.value) == "fake://odd/x.txt is odd"
    assert not (tmp_path / "out").exists()
