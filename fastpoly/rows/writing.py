"""A folder of shards, written in one pass over batches of rows, in bounded memory.

Categories are numbered as they come in. When all are known they are sorted, and every shard is
written in its final form, which does not depend on how the rows were cut into batches.

The names of all files have a token of the write in them, so a write never touches the files of an
earlier one. The manifest comes last, in one step, when all other files are on the disk: the folder
holds the old rows until then, and the new ones from then on. Files of the old ones go after that.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES, as_array, as_count
from fastpoly.kernels.matrix import as_csr
from fastpoly.rows.format import (
    FORMAT,
    MOST_FEATURES,
    NAME,
    OURS,
    SHARDS_VERSION,
    layout,
    write_array,
    write_manifest,
)
from fastpoly.rows.ingest import (
    Chunk,
    DataFile,
    Table,
    check_kind,
    check_sizes,
    chunks,
    inverse,
)
from fastpoly.rows.shards import Shards


def write_shards(
    folder: str | os.PathLike[str],
    batches: Any,
    *,
    one_hot: Sequence[str] = (),
    numeric: Sequence[str] = (),
    target: str | None = None,
    weight: str | None = None,
    rows_per_shard: int = BLOCK_DOUBLES,
    overwrite: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Shards:
    """Write rows to a folder from which `Shards` reads them.

    Parameters
    ----------
    folder : str or path-like
        Created if it does not exist.
    batches : iterable, or one batch
        Data frames of pandas or polars, Arrow record batches or tables, mappings of names to
        arrays, paths of CSV, parquet or libsvm files (`fastpoly.rows.ingest.DataFile` has options),
        or tuples (X, y) or (X, y, weights). Only one of them is in memory at a time, and a part of
        a file. Everything but tuples and libsvm files needs pyarrow.
    one_hot : sequence of str
        Columns of categories, which are numbers or strings. Each category becomes a feature. Rows
        with two one-hot fields and nothing else are sorted by the first one within each shard,
        which makes passes 2 to 7 times faster; targets and predictions keep the order of the table.
    numeric : sequence of str
        Columns of numbers. Each becomes a feature; they come after those of `one_hot`.
    target : str
        Column of the targets. Not for tuples and libsvm files.
    weight : str, optional
        Column of sample weights.
    rows_per_shard : int
        One thread sums one shard at a time, so the last bits of a result depend on this number.
        There should be at least as many shards as threads, and at least 16 rows per feature in a
        shard. A pass needs some memory for the rows of one shard.
    overwrite : bool
        Whether shards that are in the folder may be replaced. They stay valid until the new ones
        are complete, so there must be room for both.
    progress : callable, optional
        Called with the number of rows of every batch.

    Returns
    -------
    Shards

    Examples
    --------
    >>> import tempfile
    >>> from fastpoly import write_shards
    >>> ratings = {"user": ["ann", "bob"], "item": [7, 3], "stars": [5, 4]}
    >>> folder = tempfile.mkdtemp()
    >>> shards = write_shards(folder, ratings, one_hot=["user", "item"], target="stars")
    >>> shards.n_features, shards.categories("item"), shards.classes
    (4, array([3, 7]), array([4, 5]))
    """
    table = None
    if target is not None:
        table = Table(one_hot, numeric, target, weight)
    elif one_hot or numeric or weight:
        raise ValueError("target must be given with one_hot, numeric or weight")
    path = Path(os.path.abspath(folder))
    path.mkdir(parents=True, exist_ok=True)
    manifest = path / NAME
    if manifest.exists() and not overwrite:
        raise ValueError(f"{path} already holds shards; pass overwrite=True or another folder")
    writer = _Writer(path, table, as_count(rows_per_shard, "rows_per_shard"))
    try:
        for batch in _batches(batches, table):
            n = writer.add(batch)
            if progress is not None:
                progress(n)
        writer.finish()
    except BaseException:
        # The interrupt may have come just after the manifest; then its files must stay.
        if not (manifest.exists() and writer.token.encode() in manifest.read_bytes()):
            _remove(path.glob(writer.name("*")))
        raise
    shards, ours = Shards(path), {file for file in path.iterdir() if OURS.fullmatch(file.name)}
    _remove(ours - {path / name for name in shards.manifest.file_names})
    return shards


def _batches(batches: Any, table: Table | None) -> Iterator[Chunk | tuple[Any, ...]]:
    """Pairs, and chunks of tables and of files; `batches` may also be one of them."""
    several = str, os.PathLike, DataFile, Mapping
    one = isinstance(batches, several) or hasattr(batches, "columns")
    if isinstance(batches, tuple) and table is None and batches:
        one = not isinstance(batches[0], (tuple, *several))  # it is X, and not a batch
    for batch in [batches] if one else batches:
        if isinstance(batch, tuple):
            yield batch
        elif isinstance(batch, (str, os.PathLike, DataFile)):
            file = batch if isinstance(batch, DataFile) else DataFile(batch)
            yield from file.batches(table)
        elif table is None:
            raise ValueError(
                f"a batch is a {type(batch).__name__}: name its columns in one_hot, numeric and "
                "target, or give pairs (X, y)"
            )
        else:
            yield from chunks(batch, table.columns)


def pair_arrays(batch: tuple[Any, ...]) -> dict[str, Any]:
    """The arrays of a batch (X, y) or (X, y, w): x or csr, then y and w."""
    if len(batch) not in (2, 3):
        raise ValueError(f"a batch must be (X, y) or (X, y, weights), got {len(batch)} items")
    X, y, *rest = batch
    arrays: dict[str, Any] = {"y": as_array(y, "y of a batch")}
    if arrays["y"].dtype.kind == "U" and not isinstance(y, np.ndarray):
        arrays["y"] = np.asarray(y, dtype=object)  # NumPy's own strings lose "\0" at their end
    if rest:
        arrays["w"] = as_array(rest[0], "weights of a batch").astype(np.float64)
    if sp.issparse(X):
        if X.shape[1] > MOST_FEATURES:
            raise ValueError(f"X of a batch has {X.shape[1]} columns, more than {MOST_FEATURES}")
        X = as_csr(X)
        X = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape, copy=True)
        X.sum_duplicates()
        arrays["csr"], values = X, X.data
    else:
        arrays["x"] = values = as_array(X, "X of a batch")
        if values.ndim != 2:
            raise ValueError(f"X of a batch must be 2-D, got shape {values.shape}")
    if values.dtype.kind not in "buif":
        raise TypeError(f"X of a batch must hold numbers, got {values.dtype}; convert it")
    if not np.isfinite(values).all():
        raise ValueError("X of a batch contains NaN or infinity; remove or impute these entries")
    if any(not array.ndim for array in arrays.values()):
        raise ValueError("targets and weights of a batch must be arrays, got a single number")
    check_sizes({name: array.shape[0] for name, array in arrays.items()})
    return arrays


class Targets:
    """Collects targets: integers, strings and up to 256 numbers are levels, more are numbers."""

    def __init__(self, name: str) -> None:
        self.name, self.kind, self.n_targets = name, "", 1
        self.known: dict[Any, int] = {}  # integers and strings, numbered as they come in
        self.levels: NDArray | None = np.empty(0)  # distinct numbers; None if there are too many

    def encode(self, y: Any) -> NDArray:
        """Provisional numbers (n,) of levels, or targets as float64 (n, m)."""
        if hasattr(y, "dictionary_encode"):  # an Arrow array of integers or strings
            y = y.dictionary_encode()
            return self._levels(y.dictionary.to_numpy(zero_copy_only=False))[y.indices.to_numpy()]
        if y.ndim > 2 or not y.shape[-1]:
            raise ValueError(f"target {self.name!r} must be (n,) or (n, m), got shape {y.shape}")
        if y.dtype.kind == "f" or (y.dtype.kind in "bui" and y.size > len(y)):
            return self._numbers(y.reshape(len(y), -1).astype(np.float64, copy=False))
        if y.dtype.kind in "bui":
            values, places = np.unique(y.ravel(), return_inverse=True)
            return self._levels(values)[places]
        return self._levels(y.ravel())

    def _levels(self, values: NDArray) -> NDArray[np.int32]:
        """Provisional numbers of integers or strings."""
        kind, known = "text", self.known
        if values.dtype.kind in "bui":
            kind = "integer"
            if values.max() > np.iinfo(np.int64).max:
                raise ValueError(f"target {self.name!r} has integers of 2**63 or more; convert it")
            values = values.astype(np.int64)
        check_kind(self, kind)
        for row, value in enumerate(values if kind == "text" else ()):
            if not isinstance(value, str) or value.endswith("\0"):  # which NumPy would drop
                raise ValueError(
                    f"target {self.name!r} must hold numbers or strings, got {value!r}, value "
                    f"{row} of a batch; convert it, or drop rows without a target"
                )
        return np.array([known.setdefault(v, len(known)) for v in values.tolist()], np.int32)

    def _numbers(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        first = not self.kind
        check_kind(self, "float")
        if not np.isfinite(y).all():
            raise ValueError(f"target {self.name!r} has NaN, infinity or missing values")
        if not first and y.shape[1] != self.n_targets:
            raise ValueError(f"target {self.name!r} has not the same shape in all batches")
        self.n_targets = y.shape[1]
        if self.levels is not None:
            self.levels = np.union1d(self.levels, y)
            if self.n_targets > 1 or len(self.levels) > 256:  # more than a byte can tell apart
                self.levels = None
        return y

    def finish(self) -> tuple[list[Any], Callable[[NDArray], NDArray]]:
        """The classes, none for numbers, and what makes their codes from what `encode` gave."""
        if self.kind == "float" and self.levels is None:
            return [], lambda y: y
        if self.kind == "float":
            return self.levels.tolist(), lambda y: np.searchsorted(self.levels, y[:, 0])
        classes = sorted(self.known)
        places = inverse([self.known[value] for value in classes])
        return classes, lambda y: places[y]


def _remove(files: Iterable[Path]) -> None:
    """Delete files. One that cannot be deleted stays: on some systems that is one in use."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


class _Writer:
    """Turns batches into shards."""

    def __init__(self, folder: Path, table: Table | None, size: int) -> None:
        self.folder, self.table, self.size = folder, table, size
        self.token = secrets.token_hex(8)
        self.targets = Targets("y" if table is None else table.target)
        self.waiting: list[dict[str, Any]] = []
        self.n_waiting = 0
        self.rows: list[int] = []  # rows of each shard so far
        self.names: set[str] = set()
        self.width = 0  # columns of x or csr
        self.single = True

    def name(self, content: str) -> str:
        """The name of a file of this write."""
        return f"{content}.fastpoly-{self.token}.npy"

    def _write(self, content: str, array: NDArray) -> dict[str, str]:
        """Write a file that stays, and return its name and digest for the manifest."""
        name = self.name(content)
        return {"name": name, "digest": write_array(self.folder / name, array, sync=True)}

    def _raw(self, number: int, name: str) -> Path:
        return self.folder / self.name(f"raw-{number}-{name}")

    def add(self, batch: Chunk | tuple[Any, ...]) -> int:
        """Take a batch and return its number of rows; full shards are spilled to files."""
        if isinstance(batch, tuple) and self.table is not None:
            raise ValueError("target names a column, but a batch is a pair (X, y)")
        is_pair = isinstance(batch, tuple)
        arrays = pair_arrays(batch) if is_pair else self.table.arrays(batch)
        n = len(arrays["y"])
        if not n:  # without rows it does not show whether targets are numbers, for example
            return 0
        arrays["y"] = self.targets.encode(arrays["y"])
        self._check(arrays)
        first = 0
        while first < n:
            last = min(n, first + self.size - self.n_waiting)
            self.waiting.append({name: a[first:last] for name, a in arrays.items()})
            self.n_waiting += last - first
            first = last
            if self.n_waiting == self.size:
                self._spill()
        return n

    def _check(self, arrays: dict[str, Any]) -> None:
        if self.names and self.names != set(arrays):
            raise ValueError(
                f"batches must be alike: one has {sorted(arrays)}, another {sorted(self.names)}"
            )
        w = arrays.get("w")
        if w is not None and not (w.ndim == 1 and np.isfinite(w).all() and (w >= 0).all()):
            raise ValueError("weights must be 1-D, finite and not negative")
        X = arrays.get("x", arrays.get("csr"))
        if X is not None:
            if self.names and "x" in arrays and X.shape[1] != self.width:
                raise ValueError(
                    f"X of a batch has {X.shape[1]} columns, that of another {self.width}"
                )
            self.width = max(self.width, X.shape[1])  # a libsvm file does not state it
            self.single &= X.dtype == np.float32
        self.names = set(arrays)

    def _spill(self) -> None:
        """Write the waiting rows to files in their raw form."""
        columns = {name: [part[name] for part in self.waiting] for name in self.names}
        fields = zip(self.table.fields, self.table.categories, strict=True) if self.table else ()
        codes = [categories.number(columns.pop(field)) for field, categories in fields]
        if codes:
            columns["codes"] = [np.column_stack(codes)]
        csr = columns.pop("csr", None)
        if csr is not None:
            counts = np.concatenate([[0], *(np.diff(X.indptr) for X in csr)])
            columns["indptr"] = [np.cumsum(counts, dtype=np.int64)]
            columns["indices"] = [X.indices for X in csr]
            columns["data"] = [X.data for X in csr]
        for name, parts in columns.items():
            write_array(self._raw(len(self.rows), name), np.concatenate(parts))
        self.rows.append(self.n_waiting)
        self.waiting, self.n_waiting = [], 0

    def finish(self) -> None:
        """Write every shard in its final form, and then the manifest."""
        if self.n_waiting:
            self._spill()
        if not self.rows:
            raise ValueError("batches hold no rows")
        fields, columns = self._fields()
        classes, levels = self.targets.finish()
        kind = "csr" if "csr" in self.names else "dense"
        if columns:
            kind = "mixed" if self.table.numeric else "codes"
        content: dict[str, Any] = {
            "format": FORMAT, "version": SHARDS_VERSION, "kind": kind, "n_samples": sum(self.rows),
            "n_features": sum(f["size"] for f in fields) or self.width,
            "dtype": "<f4" if self.single and not fields else "<f8", "fields": fields,
            "classes": classes, "n_targets": self.targets.n_targets, "weighted": "w" in self.names,
            "sorted": kind == "codes" and len(fields) == 2, "shards": [],
        }  # fmt: skip
        for number, n in enumerate(self.rows):
            arrays = self._final(number, content, columns, levels)
            entries = len(arrays["indices"]) if kind == "csr" else 0
            files = {
                name: self._write(f"{number:06d}-{name}", arrays[name].astype(dtype, copy=False))
                for name, (dtype, _) in layout(content, n, entries).items()
            }
            content["shards"].append({"rows": n, "entries": entries, "files": files})
            del arrays
            _remove(self.folder.glob(self.name(f"raw-{number}-*")))
        write_manifest(self.folder, content)

    def _fields(self) -> tuple[list[dict[str, Any]], list[NDArray[np.int32]]]:
        """The fields for the manifest, and the column of X for every provisional number."""
        fields, columns, first = [], [], 0
        for i, categories in enumerate(self.table.categories if self.table else ()):
            values, places = categories.sorted()
            if str(values.type) == "large_string":
                stored = np.frombuffer(json.dumps(values.to_pylist()).encode(), np.uint8)
            else:
                stored = values.to_numpy()
            file = {"dtype": stored.dtype.str, "length": len(stored)}
            file |= self._write(f"field-{i}", stored)
            fields.append({"name": categories.name, "size": len(values), "categories": file})
            columns.append(places + np.int32(first))
            first += len(values)
            if first > MOST_FEATURES:
                raise ValueError(f"one_hot fields have more than {MOST_FEATURES} categories")
        numeric = self.table.numeric if self.table else ()
        fields += [{"name": name, "size": 1, "categories": None} for name in numeric]
        return fields, columns

    def _final(
        self,
        number: int,
        content: dict[str, Any],
        columns: list[NDArray[np.int32]],
        levels: Callable[[NDArray], NDArray],
    ) -> dict[str, NDArray]:
        """The arrays of a shard as they are stored."""
        raw = {
            file.name.split(".")[0].split("-")[-1]: np.load(file, mmap_mode="r")
            for file in self.folder.glob(self._raw(number, "*").name)
        }
        raw["y"] = levels(raw["y"])
        if columns:
            codes = raw.pop("codes")
            raw["indices"] = np.column_stack([c[codes[:, i]] for i, c in enumerate(columns)])
        if content["kind"] == "mixed":
            x, d = raw.pop("x"), content["n_features"]
            own = np.arange(d - x.shape[1], d, dtype=np.int32)
            raw["indices"] = np.hstack([raw["indices"], np.broadcast_to(own, x.shape)])
            raw["data"] = np.hstack([np.ones(codes.shape), x])
        if content["sorted"]:
            first, n = raw["indices"][:, 0], len(raw["indices"])
            # CSR sorts by counting, three times as fast as argsort.
            order = sp.coo_array((np.ones(n, np.int8), (first, np.arange(n)))).tocsr().indices
            raw = {name: np.take(a, order, axis=0) for name, a in raw.items()}
            raw["places"] = inverse(order)
        return raw
