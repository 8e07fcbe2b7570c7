"""The loaders of the benchmarks, against a server on this machine."""

import importlib.util
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SOURCE = Path(__file__).parents[1] / "bench" / "datasets.py"

TOY = "3 1:0.5 3:-1\n1 2:0.25\n\n3 1:1e-3\n"
RATINGS = b"10::7::5::0\n10::3::1::0\n12::7::4::0\n"


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, with a separate cache and no folder."""
    spec = importlib.util.spec_from_file_location("fastpoly_bench_datasets", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("FASTPOLY_DATA", raising=False)
    monkeypatch.setenv("FASTPOLY_CACHE", str(tmp_path / "cache"))
    return module


class Server(ThreadingHTTPServer):
    """Serves `files`; after `cut` bytes of an answer it hangs up, as often as `cuts` says."""

    files: dict[str, bytes]
    ranges = True
    cut = 10**9
    cuts = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log = {}, []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.log.append(asked)
        content = server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        first = int(asked.split("=")[1].rstrip("-")) if asked and server.ranges else 0
        if first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            self.wfile.write(content[first : first + server.cut])
        else:
            self.wfile.write(content[first:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def content() -> bytes:
    return np.random.default_rng(0).bytes(300_000)


def test_an_interrupted_download_continues_where_it_stopped(datasets, server, content, tmp_path):
    server.files["data"], server.cut, server.cuts = content, 100_000, 2
    datasets.download(server.url("data"), tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == content
    assert server.log == [None, "bytes=100000-", "bytes=200000-"]
    assert not (tmp_path / "data.part").exists()


def test_the_next_call_also_continues(datasets, server, content, tmp_path):
    server.files["data"], server.cut, server.cuts = content, 20_000, datasets.ATTEMPTS
    with pytest.raises(OSError, match="cut 5 times"):
        datasets.download(server.url("data"), tmp_path / "data")
    assert not (tmp_path / "data").exists()
    datasets.download(server.url("data"), tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == content
    assert server.log[-1] == "bytes=100000-"


def test_a_server_without_ranges_begins_again(datasets, server, content, tmp_path):
    server.files["data"], server.ranges = content, False
    (tmp_path / "data.part").write_bytes(b"wrong")
    datasets.download(server.url("data"), tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == content


def test_a_part_longer_than_the_file_is_thrown_away(datasets, server, content, tmp_path):
    server.files["data"] = content
    (tmp_path / "data.part").write_bytes(content + b"more")
    datasets.download(server.url("data"), tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == content


def test_classes_are_fetched_checked_and_kept(datasets, server, monkeypatch, tmp_path):
    server.files["toy.scale"] = TOY.encode()
    toy = datasets.ClassSet(3, (1, 2), server.url("toy.scale"))
    monkeypatch.setitem(datasets.CLASS_SETS, "vowel", toy)
    for _ in range(2):
        data = datasets.load("vowel")
        np.testing.assert_array_equal(data.X, [[0.5, 0, -1], [0, 0.25, 0], [1e-3, 0, 0]])
        np.testing.assert_array_equal(data.y, [1, 0, 1])
    assert len(server.log) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["vowel.npz"]


def test_ratings_are_fetched_checked_and_kept(datasets, server, monkeypatch):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("ml/ratings.dat", RATINGS)
    server.files["ml.zip"] = file.getvalue()
    toy = datasets.RatingSet(
        2, 2, (1, 0, 0, 1, 1), server.url("ml.zip"), "ml/ratings.dat", b"::"
    )  # fmt: skip
    monkeypatch.setitem(datasets.RATING_SETS, "ml-1m", toy)
    for _ in range(2):
        data = datasets.load("ml-1m")
        np.testing.assert_array_equal(data.user, [0, 0, 1])
        np.testing.assert_array_equal(data.item, [1, 0, 1])
        np.testing.assert_array_equal(data.rating, [5, 1, 4])
    assert len(server.log) == 1
    np.testing.assert_array_equal(
        data.one_hot().toarray(), [[1, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    )


@pytest.mark.parametrize(
    ("kind", "message"), [((2, (1, 2)), "shape"), ((3, (2, 1)), "histogram of the classes")]
)
def test_another_set_is_refused_and_not_kept(
    datasets, server, monkeypatch, tmp_path, kind, message
):
    server.files["toy.scale"] = TOY.replace("3:", "2:" if kind[0] == 2 else "3:").encode()
    other = datasets.ClassSet(*kind, server.url("toy.scale"))
    monkeypatch.setitem(datasets.CLASS_SETS, "vowel", other)
    if message == "shape":
        monkeypatch.setitem(datasets.CLASS_SETS, "vowel", other._replace(counts=(1, 1)))
    with pytest.raises(ValueError, match=message):
        datasets.load("vowel")
    assert not list((tmp_path / "cache").iterdir())


def test_without_a_source_the_cure_is_named(datasets, server, monkeypatch):
    toy = datasets.ClassSet(3, (1, 2), server.url("nothing"))
    monkeypatch.setitem(datasets.CLASS_SETS, "vowel", toy)
    with pytest.raises(OSError, match="FASTPOLY_DATA"):
        datasets.load("vowel")


def test_the_folder_comes_first_and_only_the_training_part_counts(datasets, monkeypatch, tmp_path):
    X, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "vowel.npz", X=X, y=y, split=np.array([0, 0, 0, 1], dtype=np.int8))
    monkeypatch.setenv("FASTPOLY_DATA", str(tmp_path))
    monkeypatch.setitem(datasets.CLASS_SETS, "vowel", datasets.ClassSet(2, (1, 2), "none:"))
    data = datasets.load("vowel")
    np.testing.assert_array_equal(data.X, X[:3])
    assert data.m == 2
    assert datasets.find("letter") is None


def test_an_unknown_name_is_refused(datasets):
    with pytest.raises(ValueError, match="segment, vowel"):
        datasets.load("iris")


def test_stand_ins_have_the_shapes_of_the_originals(datasets):
    for name in ("segment", "vowel"):
        n, d, m = datasets.CLASS_SETS[name].shape
        data = datasets.stand_in(name)
        assert data.X.shape == (n, d)
        assert set(data.y) <= set(range(m))
        assert len(set(data.y)) == m
    data = datasets.stand_in("ml-100k")
    assert data.one_hot().shape == (100_000, 943 + 1682)
    assert set(data.rating) == {1, 2, 3, 4, 5}
