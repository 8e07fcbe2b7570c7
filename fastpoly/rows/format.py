"""The format of a folder of shards: a manifest and plain files, none of which is trusted.

`manifest.json` says how rows are stored and which files each shard has. `layout` says what the
.npy files hold:

    kind        arrays of a shard
    "codes"     indices (rows, fields): a column of X for each field, where it is 1
    "csr"       indptr (rows + 1,), indices (entries,), data (entries,)
    "dense"     x (rows, d)
    all kinds   y (rows,) codes of classes, or (rows, n_targets) numbers; w (rows,) if there are
                weights; places (rows,) if rows are sorted: where each row of the table is stored

Rows of a table have an encoding, a .npz file with the arrays of `fastpoly.tables.encoding`: codes,
or CSR where fields are lists, of which a row may have several codes. A file that differs from its
manifest in dtype, shape or size is refused before anything reads it.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
import mmap
import os
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fastpoly.storage.npz import open_file, read_arrays, replacing
from fastpoly.tables import Encoding

# 2: sorted rows know their places; 3: codes have the encoding of a table; 4: in one file
SHARDS_VERSION = 4
MANIFEST = "manifest.json"
FORMAT = "fastpoly-shards"
# The most features: one less than an index can count, because a constant feature may be added.
MOST_FEATURES = np.iinfo(np.int32).max - 1
# The names of files that we write, or once wrote (field): what they hold, and a token of the write.
FILE_NAME = re.compile(
    r"((raw-\d+|\d{6,})-[a-z0-9]+|field-\d+|encoding)\.fastpoly-[0-9a-f]{16}\.np[yz]"
)
KNOWN: dict[str, tuple] = {
    "kind": ("codes", "csr", "dense"), "dtype": ("<f4", "<f8"), "weighted": (False, True),
    "sorted": (False, True),
}  # fmt: skip


@dataclass(frozen=True)
class File:
    """The name of a file in the folder, its digest, and the array that it holds, if it is one."""

    name: str
    digest: str
    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, entry: dict[str, Any], dtype: Any = None, shape: tuple[int, ...] = ()) -> Self:
        name, digest = entry["name"], entry["digest"]
        if not FILE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a file of shards")
        if not re.fullmatch("[0-9a-f]{40}", digest):
            raise ValueError(f"the digest of {name} is not 40 hexadecimal digits")
        return cls(name, digest, np.dtype(dtype), shape)

    def map(self, folder: Path) -> NDArray[Any]:
        """Map the array read-only; ValueError unless the file holds it and nothing else."""
        try:
            with open_file(folder / self.name) as file:
                # Compared, not parsed: NumPy's parser may fail in threads (with Python 3.11).
                wanted, begin = npy_header(self.dtype, self.shape), file.read(10)
                text = file.read(int.from_bytes(begin[8:], "little"))
                first, own = file.tell(), os.fstat(file.fileno()).st_size
                if (begin[:8], text.rstrip()) != (wanted[:8], wanted[10:].rstrip()):
                    raise ValueError(
                        f"it does not begin as an array {self.shape} of {self.dtype}; it has {own} "
                        "bytes"
                    )
                size = first + math.prod(self.shape) * self.dtype.itemsize
                if own != size:
                    raise ValueError(f"it has {own} bytes, but should have {size}")
                # Before Python 3.13 the file stays open for as long as it is mapped.
                how: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
                content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, **how)
        except OSError as error:
            cure = "; raise the limit (ulimit -n)" if error.errno == errno.EMFILE else ""
            raise ValueError(f"it cannot be read: {error.strerror or error}{cure}") from None
        return np.ndarray(self.shape, self.dtype, content, first)

    def verify(self, folder: Path) -> None:
        """Raise unless the file has the digest of the manifest."""
        if digest_of(folder / self.name) != self.digest:
            raise ValueError("its digest differs from the one in the manifest")


class Manifest:
    """The checked content of `manifest.json`; ValueError, KeyError or the like where it is wrong.

    `classes` are the levels of the targets, none where they are `n_targets` numbers. `shards` has
    the files of every shard by the name of their array, and `rows` the numbers of rows. `n_fields`
    and `encoding` are those of codes.
    """

    def __init__(self, content: Any) -> None:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
        if content["version"] != SHARDS_VERSION:
            raise ValueError(
                f"its version is {content['version']!r}, but this fastpoly reads version "
                f"{SHARDS_VERSION}; write the shards again from their data"
            )
        for name, known in KNOWN.items():
            if content[name] not in known or type(content[name]) is not type(known[0]):
                raise ValueError(f"its {name} must be one of {known}, got {content[name]!r}")
        self.kind, self.classes = content["kind"], tuple(content["classes"])
        self.n_features = _count(content["n_features"], "n_features", least=1, most=MOST_FEATURES)
        if not (_increasing(self.classes, str) or _increasing(self.classes, int, float)):
            raise ValueError("its classes must be finite numbers, or strings, that increase")
        self.n_fields = _count(content["n_fields"], "n_fields", least=int(self.kind == "codes"))
        self.n_targets = _count(content["n_targets"], "n_targets", least=1)
        self.rows: list[int] = []
        self.shards: list[dict[str, File]] = []
        for shard in content["shards"]:
            n = _count(shard["rows"], "rows")
            entries = _count(shard.get("entries", 0), "entries", most=np.iinfo(np.int64).max)
            arrays, files = layout(content, n, entries), shard["files"]
            if set(files) != set(arrays):
                raise ValueError(f"a shard of kind {self.kind!r} must have {sorted(arrays)}")
            self.rows.append(n)
            self.shards.append({name: File.of(files[name], *how) for name, how in arrays.items()})
        _count(len(self.shards), "the number of shards", least=1)
        self.n_samples = sum(self.rows)
        if self.n_samples != content["n_samples"] or not self.n_samples:
            raise ValueError(
                f"its shards have {self.n_samples} rows, n_samples is {content['n_samples']}"
            )
        has_encoding = self.n_fields > 0 and self.kind != "dense"
        if not has_encoding and content["encoding"] is not None:
            raise ValueError("only rows with fields have an encoding")
        self.encoding = File.of(content["encoding"]) if has_encoding else None
        # It stands for all of the data, because the manifest holds the digests of all files; their
        # names differ from write to write.
        text = json.dumps(_nameless(content), sort_keys=True)
        self.digest = hashlib.blake2b(text.encode(), digest_size=20).hexdigest()

    @property
    def file_names(self) -> set[str]:
        """The names of all files of these shards, but for the manifest itself."""
        names = {file.name for files in self.shards for file in files.values()}
        return names if self.encoding is None else names | {self.encoding.name}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder; a ValueError says what is wrong with it."""
        path = folder / MANIFEST
        try:
            with open_file(path) as file:
                return cls(json.loads(file.read()))
        except FileNotFoundError:
            raise ValueError(
                f"{folder} holds no {MANIFEST}: it is no folder of shards, or was not written to "
                "its end; write it with write_shards"
            ) from None
        except OSError as error:
            cure = "; ask for the right to read it" if isinstance(error, PermissionError) else ""
            raise ValueError(f"{path} cannot be read: {error.strerror or error}{cure}") from None
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path} is not a manifest of shards ({problem})") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def read_encoding(self, folder: Path, verify: bool = False) -> Encoding | None:
        """The encoding of codes; a ValueError says what is wrong with it."""
        if self.encoding is None:
            return None
        try:
            if verify:
                self.encoding.verify(folder)
            found = Encoding.from_arrays(read_arrays(folder / self.encoding.name))
            fits = (found.form, len(found.fields), found.n_codes)
            if fits != ("codes", self.n_fields, self.n_features):
                raise ValueError(f"its fields and codes, {fits}, are not those of the manifest")
            if (self.kind == "csr") != any(field.kind == "list" for field in found.fields):
                raise ValueError("rows with lists, and no others, are stored as CSR")
        except (ValueError, OSError) as error:
            path = folder / self.encoding.name
            raise ValueError(f"the encoding, {path}: {error}") from None
        return found


def layout(content: dict[str, Any], n: int, entries: int) -> dict[str, tuple[str, tuple]]:
    """The dtype and shape of each array of a shard of n rows, for a manifest of this content."""
    values = content["dtype"]
    arrays: dict[str, tuple[str, tuple]] = {
        "codes": {"indices": ("<i4", (n, content["n_fields"]))},
        "csr": {
            "indptr": ("<i8", (n + 1,)),
            "indices": ("<i4", (entries,)),
            "data": (values, (entries,)),
        },
        "dense": {"x": (values, (n, content["n_features"]))},
    }[content["kind"]]
    codes = "|u1" if len(content["classes"]) <= 256 else "<i4"  # bytes where they suffice
    arrays["y"] = (codes, (n,)) if content["classes"] else ("<f8", (n, content["n_targets"]))
    if content["weighted"]:
        arrays["w"] = "<f8", (n,)
    if content["sorted"]:
        arrays["places"] = "<i4", (n,)
    return arrays


def _nameless(entry: Any) -> Any:
    """The content of a manifest without the names of files, which have a digest."""
    if isinstance(entry, list):
        return [_nameless(item) for item in entry]
    if not isinstance(entry, dict):
        return entry
    return {k: _nameless(v) for k, v in entry.items() if not (k == "name" and "digest" in entry)}


def _increasing(values: Any, *types: type) -> bool:
    """Whether these are values of the types, numbers of 64 bits, in increasing order."""
    return (
        all(type(v) in types for v in values)
        and all(types == (str,) or abs(v) < 2**63 for v in values)  # NaN is not
        and all(a < b for a, b in pairwise(values))
    )


def _count(value: Any, name: str, least: int = 0, most: int = np.iinfo(np.int32).max) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}")
    return value


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest in one step, when all files that it names are on the disk."""
    Manifest(content)  # what could not be read must not replace what can
    sync_folder(folder)
    with replacing(folder / MANIFEST) as file:
        file.write(json.dumps(content, indent=1).encode())
    sync_folder(folder)


# --- files ---


def identity(path: str) -> tuple[int, ...]:
    """Numbers that change with a file; the first two, size and time, are alike on all machines."""
    try:
        state = os.stat(path)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    return state.st_size, state.st_mtime_ns // 10**9, state.st_mtime_ns, state.st_ino


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """What a file of an array in C order begins with; spaces at the end may differ."""
    head = io.BytesIO()
    known = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(head, known)
    return head.getvalue()


def write_array(path: Path, array: NDArray[Any]) -> str:
    """Write an array down to the disk, and return the digest of its file."""
    array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    with open(path, "wb") as file:
        npy.write_array(file, array, version=(1, 0), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return digest_of(path)


def digest_of(path: Path) -> str:
    """The digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def sync_folder(folder: Path) -> None:
    """Bring the names of the files in a folder to the disk, on systems that can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
