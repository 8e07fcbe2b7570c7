"""Reading .npz files that are damaged, forged or hostile, and writing them in one step."""

import copy
import os
import pickle
import stat
import tracemalloc
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_array_equal

from fastpoly.storage.npz import read_arrays, write_arrays

check = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
text = st.text(st.characters(exclude_characters="\0"), max_size=5)
plain = st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
any_array = plain.flatmap(lambda dtype: arrays(dtype, shapes))
any_array |= arrays("<U5", shapes, elements=text)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
EXAMPLE = {"a": np.arange(6.0).reshape(2, 3), "name": np.array("x"), "flag": np.array(True)}


def npy(shape="(2,)", dtype="'<f8'", fortran="False", payload=bytes(16), version=1):
    """The bytes of a .npy member with any header."""
    header = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2, "little") + header + payload


def write_members(path, members, compression=zipfile.ZIP_STORED, forge=None):
    """An archive with checksums in order; `forge` may change its directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # duplicate names
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, data in members:
                archive.writestr(name, data)
            if forge is not None:
                forge(archive.filelist)
    return path


def assert_refused(path, message="is not a readable .npz file"):
    with pytest.raises(ValueError, match=message):
        read_arrays(path)


@check
@given(st.dictionaries(names, any_array, max_size=4))
def test_round_trip(tmp_path, contents):
    path = tmp_path / "a.npz"
    write_arrays(path, contents)
    with np.load(path, allow_pickle=False) as numpys:
        for loaded in (read_arrays(path), numpys):
            assert set(loaded) == set(contents)
            for name, array in contents.items():
                assert loaded[name].dtype == array.dtype
                assert loaded[name].shape == array.shape
                assert loaded[name].tobytes() == array.tobytes()
    first = path.read_bytes()
    write_arrays(path, contents)
    assert path.read_bytes() == first


def test_reads_what_numpy_writes(tmp_path):
    path = tmp_path / "a.npz"
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez(path, fortran=fortran, strided=np.arange(6.0)[::2], **EXAMPLE)
    loaded = read_arrays(path)
    assert_array_equal(loaded["fortran"], fortran)
    assert_array_equal(loaded["strided"], [0, 2, 4])
    assert_array_equal(loaded["a"], EXAMPLE["a"])


def test_foreign_byte_order_is_written_in_ours(tmp_path):
    write_arrays(tmp_path / "a.npz", {"a": np.array([1.0, 2.0], dtype=">f8")})
    assert_array_equal(read_arrays(tmp_path / "a.npz")["a"], [1.0, 2.0])
    np.savez(tmp_path / "b.npz", a=np.array([1.0, 2.0], dtype=">f8"))
    assert_refused(tmp_path / "b.npz", r"a\.npy must hold booleans, numbers or text")


@pytest.mark.parametrize(
    "bad", [np.array([None]), np.ones(2, "c16"), np.ones(2, "M8[s]"), np.ones(2, np.longdouble)]
)
def test_other_types_are_not_written(tmp_path, bad):
    path = tmp_path / "a.npz"
    write_arrays(path, EXAMPLE)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="x must hold booleans, numbers or text"):
        write_arrays(path, {"a": np.ones(3), "x": bad})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write_arrays(path, EXAMPLE)
    before = path.read_bytes()

    def interrupted(*args):
        raise KeyboardInterrupt

    for owner, name in ((np.lib.format, "write_array"), (os, "fsync"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *args, **kwargs: interrupted())
            with pytest.raises(KeyboardInterrupt):
                write_arrays(path, {"a": np.zeros(5)})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and links")
def test_permissions_and_links_are_those_of_an_ordinary_write(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_arrays(tmp_path / "a.npz", EXAMPLE)
    mode = lambda name: stat.S_IMODE((tmp_path / name).stat().st_mode)  # noqa: E731
    assert mode("a.npz") == mode("plain")
    (tmp_path / "link.npz").symlink_to("a.npz")
    write_arrays(tmp_path / "link.npz", {"b": np.ones(1)})
    assert (tmp_path / "link.npz").is_symlink()
    assert list(read_arrays(tmp_path / "a.npz")) == ["b"]


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError):
        write_arrays(tmp_path / "none" / "a.npz", EXAMPLE)


@pytest.mark.skipif(os.name == "nt", reason="POSIX devices and pipes")
def test_devices_and_pipes_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.npz").symlink_to("/dev/zero")
    for name in ("pipe", "link.npz"):  # opening a pipe would wait, and a device has no end
        assert_refused(tmp_path / name, f"{name} is not a file but a device or pipe")


@pytest.mark.parametrize(
    "member",
    [
        npy(shape="(3,)"),
        npy(shape="(1,)"),
        npy(shape="(1000000000, 1000000000)"),
        npy(shape="(999999999999999999, 999999999999999999, 999999999999999999)"),
        npy(shape="(0, 999999999999999999, 999999999999999999)", payload=b""),
        npy(shape="(0,)"),
        npy(shape="(-2,)"),
        npy(shape="(2, -1)", payload=b""),
        npy(shape="2"),
        npy(shape="(2.0,)"),
        npy(shape="(" * 500 + "2" + ")" * 500),
        npy(shape="-" * 9000 + "2"),
        npy(shape="(" + "9" * 5000 + ",)"),
        npy(shape="(0,)", dtype="'<U0'", payload=b""),
        npy(shape="(999999999999,)", dtype="'<U0'", payload=b""),
        npy(shape="(1,)", dtype="'<U999999999'"),
        npy(dtype="'>f8'"),
        npy(dtype="'|O'"),
        npy(dtype="'O'"),
        npy(dtype="[('x', '<f8')]"),
        npy(dtype="'<M8[s]'"),
        npy(dtype="__import__('os')"),
        npy(fortran="None"),
        npy(version=2),
        npy(version=9),
        npy()[:9],
        npy()[:40],
        npy()[:-1],
        npy() + b"\0",
        b"",
        b"PK\x03\x04",
        pickle.dumps([1.0, 2.0]),
    ],
)  # fmt: skip
def test_members_that_are_not_plain_arrays(tmp_path, member):
    assert_refused(write_members(tmp_path / "a.npz", [("a.npy", npy()), ("b.npy", member)]))


def test_a_correct_member_by_hand_is_read(tmp_path):
    assert_array_equal(
        read_arrays(write_members(tmp_path / "a.npz", [("a.npy", npy())]))["a"], [0, 0]
    )


@pytest.mark.parametrize("name", ["a.txt", "a", "a.npy/"])
def test_members_that_are_not_npy(tmp_path, name):
    assert_refused(write_members(tmp_path / "a.npz", [(name, npy())]))


def test_duplicate_members(tmp_path):
    assert_refused(write_members(tmp_path / "a.npz", [("a.npy", npy())] * 2), "each once")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_is_not_inflated(tmp_path, compression):
    bomb = npy(shape="(2500000,)", payload=bytes(20_000_000))
    path = write_members(tmp_path / "a.npz", [("a.npy", bomb)], compression)
    del bomb
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        assert_refused(path, "compressed")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def _set(**values):
    def forge(members):
        for name, value in values.items():
            setattr(members[0], name, value)

    return forge


def _overlap(members):
    for name in ("b.npy", "c.npy"):
        twin = copy.copy(members[0])
        twin.filename = name
        members.append(twin)


@pytest.mark.parametrize(
    "forge",
    [
        _set(file_size=2**62, compress_size=2**62),
        _set(file_size=2**31, compress_size=2**31),
        _set(file_size=2**40),
        _set(compress_size=1),
        _set(header_offset=2**62),
        _set(header_offset=2**63 - 1),
        _set(header_offset=1),
        _set(compress_type=8),
        _set(compress_type=99),
        _set(flag_bits=1),
        _set(flag_bits=0x20),
        _set(extract_version=255),
        _set(CRC=1),
        _set(filename="z.npy"),
        _overlap,
    ],
)
def test_forged_directories(tmp_path, forge):
    assert_refused(write_members(tmp_path / "a.npz", [("a.npy", npy())], forge=forge))


def test_a_member_inside_another_is_not_read_twice(tmp_path):
    """Nested members would make the contents grow with the square of the file."""
    inner = npy(shape="(1000,)", payload=bytes(8000))
    record = write_members(tmp_path / "b.npz", [("b.npy", inner)]).read_bytes()
    record = record[: record.index(inner) + len(inner)]  # local header and data
    record += bytes(-len(record) % 8)
    outer = npy(shape=f"({len(record) // 8},)", payload=record)

    def nest(members):
        twin = zipfile.ZipInfo("b.npy")
        twin.file_size = twin.compress_size = len(inner)
        twin.CRC, twin.header_offset = zlib.crc32(inner), offset
        members.append(twin)

    offset = write_members(tmp_path / "a.npz", [("a.npy", outer)]).read_bytes().index(record)
    assert list(read_arrays(tmp_path / "a.npz")) == ["a"]
    path = write_members(tmp_path / "a.npz", [("a.npy", outer)], forge=nest)
    assert_refused(path, "larger than the file")


@pytest.mark.parametrize("contents", [b"", b"\0" * 500, b"PK", b"PK\x05\x06" + b"\xff" * 18])
def test_files_that_are_not_archives(tmp_path, contents):
    (tmp_path / "a.npz").write_bytes(contents)
    assert_refused(tmp_path / "a.npz", r"a\.npz is not a readable \.npz file")


class Payload:
    """Unpickling this creates a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path):
    mark = tmp_path / "unpickled"
    hostile = np.array([Payload(mark)], dtype=object)
    np.savez(tmp_path / "a.npz", a=hostile)
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Payload(mark)))
    for name in ("a.npz", "b.npz"):
        assert_refused(tmp_path / name)
        assert not mark.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as archive:
        archive["a"]
    assert mark.exists()  # the payload was live
