"""The table of contents of a folder of shards, read from a file that is not trusted.

`manifest.json` says how rows are stored, which files each shard has, and what they must look like:

    kind        arrays of a shard
    "codes"     indices (rows, width) int32: a column of X for each one-hot field, where it is 1
    "mixed"     the same and data (rows, width): one-hot fields, then numeric ones
    "csr"       indptr (rows + 1) int64, indices (entries,) int32, data (entries,)
    "dense"     x (rows, d)
    all kinds   y (rows,) levels or (rows, width) numbers; w (rows,) where there are weights
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastpoly.rows.files import FORMAT_VERSION

NAME = "manifest.json"
FORMAT = "fastpoly-shards"
KINDS = ("codes", "mixed", "csr", "dense")
_FILE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{40}")
_CATEGORIES = re.compile(r"<i8|<f8|<U[1-9][0-9]{0,4}")


@dataclass(frozen=True)
class File:
    """The name of a file in the folder, its digest, and the array that it holds."""

    name: str
    digest: str
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Field:
    """A column of the original table. It became `size` columns of X, from `first` on."""

    name: str
    first: int
    size: int
    categories: File | None  # sorted categories of a one-hot field; None for a numeric one


@dataclass(frozen=True)
class Manifest:
    """The checked content of `manifest.json`.

    Attributes
    ----------
    kind : str
    n_samples, n_features : int
    fields : tuple of Field
        Empty where the rows came without column names.
    target : str
        "levels" or "real".
    classes : tuple of (int, float or str)
        The levels, sorted; none for "real".
    n_targets : int
        How many numbers the target of a row has.
    weighted, ordered : bool
        Whether rows have weights; whether the rows of a shard are sorted by their first index.
    shards : tuple of dict
        For every shard, its files by the name of the array that they hold.
    rows : tuple of int
        The number of rows of every shard.
    digest : str
        The digest of the manifest without the names of files, which differ from write to write. It
        stands for all of the data, because the manifest holds the digests of all files.
    """

    kind: str
    n_samples: int
    n_features: int
    fields: tuple[Field, ...]
    target: str
    classes: tuple[Any, ...]
    n_targets: int
    weighted: bool
    ordered: bool
    shards: tuple[dict[str, File], ...]
    rows: tuple[int, ...]
    digest: str

    @property
    def file_names(self) -> set[str]:
        """The names of all files of these shards, but for the manifest itself."""
        names = {file.name for files in self.shards for file in files.values()}
        return names | {f.categories.name for f in self.fields if f.categories is not None}

    @classmethod
    def of(cls, content: Any) -> Self:
        """Check the content of a manifest."""
        return _checked(cls, content, _digest(content))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder; a ValueError says what is wrong with it."""
        path = folder / NAME
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(
                f"{folder} holds no {NAME}: it is no folder of shards, or was not written to its "
                "end; write it with write_shards"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read: {error}; write the shards again") from None
        try:
            return cls.of(content)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path} is not a manifest of shards ({problem})") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _digest(content: dict[str, Any]) -> str:
    """The digest of a manifest, whatever its files are called."""

    def plain(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {
                k: plain(v) for k, v in entry.items() if not (k == "name" and "digest" in entry)
            }
        return [plain(item) for item in entry] if isinstance(entry, list) else entry

    text = json.dumps(plain(content), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _checked(cls: type[Manifest], content: Any, digest: str) -> Manifest:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}, not {FORMAT!r}")
    if content["version"] != FORMAT_VERSION:
        raise ValueError(
            f"its version is {content['version']!r}, but this fastpoly reads {FORMAT_VERSION}; "
            "write the shards again"
        )
    kind, target = content["kind"], content["target"]
    if kind not in KINDS or target not in ("levels", "real"):
        raise ValueError(f"unknown kind {kind!r} or target {target!r}")
    # One less than an index can count, because a constant feature may be added.
    d = _count(content["n_features"], "n_features", least=1, most=np.iinfo(np.int32).max - 1)
    fields = _fields(content["fields"], d)
    classes = tuple(content["classes"])
    if not _sorted_classes(classes):
        raise ValueError("its classes must be finite numbers, or strings, that increase")
    if (target == "levels") != bool(classes):
        raise ValueError("levels need classes, and numbers have none")
    n_targets = _count(content["n_targets"], "n_targets", least=1)
    width = _count(content["width"], "width")
    values = np.dtype({"<f4": "<f4", "<f8": "<f8"}[content["dtype"]])
    weighted, ordered = content["weighted"], content["ordered"]
    if not isinstance(weighted, bool) or not isinstance(ordered, bool):
        raise ValueError("weighted and ordered must be true or false")
    level = level_dtype(len(classes))
    rows, shards = [], []
    for shard in content["shards"]:
        n = _count(shard["rows"], "rows")
        entries = _count(shard.get("entries", 0), "entries", most=np.iinfo(np.int64).max)
        arrays = {
            "codes": {"indices": ("<i4", (n, width))},
            "mixed": {"indices": ("<i4", (n, width)), "data": (values, (n, width))},
            "csr": {
                "indptr": ("<i8", (n + 1,)),
                "indices": ("<i4", (entries,)),
                "data": (values, (entries,)),
            },
            "dense": {"x": (values, (n, d))},
        }[kind]
        arrays["y"] = (level, (n,)) if target == "levels" else ("<f8", (n, n_targets))
        if weighted:
            arrays["w"] = "<f8", (n,)
        if set(shard["files"]) != set(arrays):
            raise ValueError(f"a shard of kind {kind!r} must have {sorted(arrays)}")
        rows.append(n)
        shards.append(
            {
                name: _file(shard["files"][name], np.dtype(dtype), shape)
                for name, (dtype, shape) in arrays.items()
            }
        )
    _count(len(shards), "the number of shards", least=1)
    if sum(rows) != content["n_samples"]:
        raise ValueError(f"its shards have {sum(rows)} rows, n_samples is {content['n_samples']}")
    if not sum(rows):
        raise ValueError("there are no rows")
    return cls(
        kind, sum(rows), d, fields, target, classes, n_targets, weighted, ordered, tuple(shards),
        tuple(rows), digest,
    )  # fmt: skip


def _fields(content: Any, d: int) -> tuple[Field, ...]:
    """The fields, which must fill the d columns in order."""
    fields, at = tuple(_field(f) for f in content), 0
    for f in fields:
        if f.first != at:
            raise ValueError(f"field {f.name!r} begins at column {f.first}, not {at}")
        at += f.size
    twice = [name for name, count in Counter(f.name for f in fields).items() if count > 1]
    if twice:
        raise ValueError(f"two fields are called {twice[0]!r}")
    if fields and at != d:
        raise ValueError(f"its fields have {at} columns, but n_features is {d}")
    return fields


def _sorted_classes(classes: tuple[Any, ...]) -> bool:
    """Whether these are strings, or finite numbers of 64 bits, in increasing order."""
    texts = all(type(c) is str for c in classes)
    numbers = all(type(c) in (int, float) and abs(c) < 2**63 for c in classes)  # NaN is not
    return (texts or numbers) and all(a < b for a, b in pairwise(classes))


def level_dtype(n_classes: int) -> np.dtype:
    """The dtype in which the levels of this many classes are stored: bytes where they suffice.

    Examples
    --------
    >>> from fastpoly.rows.manifest import level_dtype
    >>> level_dtype(256), level_dtype(257)
    (dtype('uint8'), dtype('int32'))
    """
    return np.dtype("u1" if n_classes - 1 <= np.iinfo(np.uint8).max else "<i4")


def _count(value: Any, name: str, least: int = 0, most: int = np.iinfo(np.int32).max) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}")
    return value


def _file(entry: dict[str, Any], dtype: np.dtype, shape: tuple[int, ...]) -> File:
    name, digest = entry["name"], entry["digest"]
    if not _FILE.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{name!r} is not the name of a file in the folder")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"the digest of {name} is not 40 hexadecimal digits")
    return File(name, digest, dtype, shape)


def _field(entry: dict[str, Any]) -> Field:
    name, size = entry["name"], _count(entry["size"], "size", least=1)
    if not isinstance(name, str):
        raise ValueError(f"the name of a field must be a string, got {name!r}")
    categories = None
    if entry["categories"] is not None:
        dtype = entry["categories"]["dtype"]
        if not _CATEGORIES.fullmatch(dtype):
            raise ValueError(f"the categories of {name!r} have the unknown dtype {dtype!r}")
        categories = _file(entry["categories"], np.dtype(dtype), (size,))
    return Field(name, _count(entry["first"], "first"), size, categories)
