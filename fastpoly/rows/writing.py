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
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES, as_count
from fastpoly.rows.batches import Table, Targets, pair_arrays
from fastpoly.rows.files import FORMAT_VERSION, replacing, sync_folder, write_array
from fastpoly.rows.manifest import FORMAT, NAME, Manifest, level_dtype
from fastpoly.rows.shards import Shards

# The names of files that we write: what they hold, and a token of the write.
OURS = re.compile(r"(raw-\d+|\d{6,}|field)-[a-z0-9]+\.fastpoly-[0-9a-f]{16}\.npy")


def write_shards(
    folder: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    one_hot: Sequence[str] = (),
    numeric: Sequence[str] = (),
    target: str | None = None,
    weight: str | None = None,
    rows_per_shard: int = BLOCK_DOUBLES,
    sort: bool = True,
    overwrite: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Shards:
    """Write rows to a folder from which `Shards` reads them.

    Parameters
    ----------
    folder : str or path-like
        Created if it does not exist.
    batches : iterable
        Data frames of pandas or polars, Arrow record batches or tables, mappings of names to
        arrays, or tuples (X, y) or (X, y, weights). Only one of them is in memory at a time.
    one_hot : sequence of str
        Columns of categories, which are numbers or strings. Each category becomes a feature.
    numeric : sequence of str
        Columns of numbers. Each becomes a feature; they come after those of `one_hot`.
    target : str
        Column of the targets. Not used for tuples.
    weight : str, optional
        Column of sample weights.
    rows_per_shard : int
        One thread sums one shard at a time, so the last bits of a result depend on this number.
        There should be at least as many shards as threads, and at least 16 rows per feature in a
        shard. A pass needs some memory for the rows of one shard.
    sort : bool
        Sort the rows of a shard by the first field where there are two one-hot fields and nothing
        else. That makes passes faster. Predictions come in the sorted order, too.
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
    >>> batch = {"user": ["ann", "bob"], "item": [7, 3], "stars": [5, 4]}
    >>> folder = tempfile.mkdtemp()
    >>> shards = write_shards(folder, [batch], one_hot=["user", "item"], target="stars")
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
    if (path / NAME).exists() and not overwrite:
        raise ValueError(f"{path} already holds shards; pass overwrite=True or another folder")
    old = _listed(path)
    writer = _Writer(path, table, as_count(rows_per_shard, "rows_per_shard"), sort)
    try:
        for batch in batches:
            n = writer.add(batch)
            if progress is not None:
                progress(n)
        writer.finish()
    except BaseException:
        # The interrupt may have come just after the manifest; then its files must stay.
        _remove(set(path.glob(writer.name("*"))) - {path / name for name in _listed(path)})
        raise
    shards = Shards(path)
    left = {file.name for file in path.iterdir() if OURS.fullmatch(file.name)}
    _remove(path / name for name in (old | left) - shards.manifest.file_names - {NAME})
    return shards


def _listed(folder: Path) -> set[str]:
    """The names of the files of the shards in a folder; none where there is no valid manifest."""
    try:
        return Manifest.read(folder).file_names
    except ValueError:
        return set()


def _remove(files: Iterable[Path]) -> None:
    """Delete files. One that cannot be deleted stays: on some systems that is one in use."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


class _Writer:
    """Turns batches into shards."""

    def __init__(self, folder: Path, table: Table | None, size: int, sort: bool) -> None:
        self.folder, self.table, self.size, self.sort = folder, table, size, sort
        self.token = secrets.token_hex(8)
        self.targets = Targets("y" if table is None else table.target)
        self.waiting: list[dict[str, Any]] = []
        self.n_waiting = 0
        self.rows: list[int] = []  # rows of each shard so far
        self.names: set[str] = set()
        self.width = 0
        self.single = True

    def name(self, content: str) -> str:
        """The name of a file of this write."""
        return f"{content}.fastpoly-{self.token}.npy"

    def _write(self, content: str, array: NDArray) -> dict[str, str]:
        """Write a file that stays, and return its name and digest for the manifest."""
        name = self.name(content)
        return {"name": name, "digest": write_array(self.folder / name, array, sync=True)}

    def add(self, batch: Any) -> int:
        """Take a batch and return its number of rows; full shards are spilled to files."""
        if isinstance(batch, tuple):
            if self.table is not None:
                raise ValueError("target names a column, but a batch is a tuple")
            arrays = pair_arrays(batch)
        elif self.table is None:
            raise ValueError(
                f"a batch is a {type(batch).__name__}: name its columns in one_hot, numeric and "
                "target, or give pairs (X, y)"
            )
        else:
            arrays = self.table.arrays(batch)
        sizes = {name: _n_rows(a) for name, a in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the parts of a batch have different numbers of rows: {sizes}")
        n = sizes["y"]
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
        if "x" in arrays:
            width, x = arrays["x"].shape[1], arrays["x"]
            if self.names and width != self.width:
                raise ValueError(f"X of a batch has {width} columns, that of another {self.width}")
            self.width = width
            if self.table is None:
                arrays["x"] = x if x.dtype == np.float32 else x.astype(np.float64, copy=False)
                self.single &= x.dtype == np.float32
        elif "csr" in arrays:
            self.width = max(self.width, arrays["csr"].shape[1])  # a libsvm file does not state it
            self.single &= arrays["csr"].dtype == np.float32
        self.names = set(arrays)

    def _spill(self) -> None:
        """Write the waiting rows to files in their raw form."""
        number = len(self.rows)
        for name in sorted(self.names):
            parts = [part[name] for part in self.waiting]
            if name == "csr":
                for kind, array in _csr_arrays(parts, self.width).items():
                    write_array(self._raw(number, kind), array)
            else:
                write_array(self._raw(number, name), np.concatenate(parts))
        self.rows.append(self.n_waiting)
        self.waiting, self.n_waiting = [], 0

    def _raw(self, number: int, name: str) -> Path:
        return self.folder / self.name(f"raw-{number}-{name}")

    def finish(self) -> None:
        """Write every shard in its final form, and then the manifest."""
        if self.n_waiting:
            self._spill()
        if not self.rows:
            raise ValueError("batches hold no rows")
        fields, places = self._fields()
        target = self.targets.finish()
        kind = "csr" if "csr" in self.names else "dense"
        d = self.width
        if self.table is not None and self.table.one_hot:
            kind = "mixed" if self.table.numeric else "codes"
            d = fields[-1]["first"] + fields[-1]["size"]
        dtype = "<f4" if self.single and self.table is None else "<f8"
        width = len(places) + (self.width if kind == "mixed" else 0)
        ordered = self.sort and kind == "codes" and width == 2
        shards = []
        for number, n in enumerate(self.rows):
            arrays = self._final(number, kind, dtype, fields, places, target)
            if ordered:
                order = np.argsort(arrays["indices"][:, 0], kind="stable")
                arrays = {name: a[order] for name, a in arrays.items()}
            files = {name: self._write(f"{number:06d}-{name}", a) for name, a in arrays.items()}
            entry = {"rows": n, "files": files}
            if kind == "csr":
                entry["entries"] = len(arrays["indices"])
            shards.append(entry)
            del arrays
            _remove(self.folder.glob(self.name(f"raw-{number}-*")))
        content = {
            "format": FORMAT, "version": FORMAT_VERSION, "kind": kind, "n_samples": sum(self.rows),
            "n_features": d, "width": width, "dtype": dtype, "fields": fields,
            "target": target.kind, "classes": target.classes, "n_targets": target.n_targets,
            "weighted": "w" in self.names, "ordered": ordered, "shards": shards,
        }  # fmt: skip
        Manifest.of(content)  # what could not be read must not replace what can
        sync_folder(self.folder)
        with replacing(self.folder / NAME) as file:
            file.write(json.dumps(content, indent=1).encode())
        sync_folder(self.folder)

    def _fields(self) -> tuple[list[dict[str, Any]], list[NDArray[np.int32]]]:
        """The fields for the manifest, and the column of X for every provisional number."""
        fields: list[dict[str, Any]] = []
        columns, first = [], 0
        if self.table is None:
            return fields, columns
        for i, categories in enumerate(self.table.categories):
            values, places = categories.finish()
            file = self._write(f"field-{i}", values)
            file["dtype"] = values.dtype.newbyteorder("<").str
            size = len(values)
            field = {"name": categories.name, "first": first, "size": size, "categories": file}
            fields.append(field)
            columns.append(places + np.int32(first))
            first += size
            if first >= 2**31:
                raise ValueError("one_hot fields have more than 2**31 categories together")
        for name in self.table.numeric:
            fields.append({"name": name, "first": first, "size": 1, "categories": None})
            first += 1
        return fields, columns

    def _final(
        self, number: int, kind: str, dtype: str, fields: list, places: list, target: Any
    ) -> dict[str, NDArray]:
        """The arrays of a shard as they are stored."""
        arrays = {}
        if kind in ("codes", "mixed"):
            codes = self._read(number, "codes")
            indices = np.column_stack([p[codes[:, i]] for i, p in enumerate(places)])
            if kind == "mixed":
                x = self._read(number, "x")
                first = fields[len(places)]["first"]
                own = np.arange(first, first + x.shape[1], dtype=np.int32)
                indices = np.hstack([indices, np.broadcast_to(own, x.shape)])
                arrays["data"] = np.hstack([np.ones(codes.shape), x])
            arrays["indices"] = np.ascontiguousarray(indices)
        elif kind == "dense":
            arrays["x"] = self._read(number, "x").astype(dtype, copy=False)
        else:
            for name in ("indptr", "indices", "data"):
                arrays[name] = self._read(number, name)
            arrays["data"] = arrays["data"].astype(dtype, copy=False)
        y = self._read(number, "y")
        if target.kind == "levels":
            levels = target.places[y] if target.places is not None else np.searchsorted(
                target.classes, y.ravel()
            )  # fmt: skip
            y = levels.astype(level_dtype(len(target.classes)))
        arrays["y"] = y
        if "w" in self.names:
            arrays["w"] = self._read(number, "w")
        return arrays

    def _read(self, number: int, name: str) -> NDArray:
        return np.load(self._raw(number, name), mmap_mode="r", allow_pickle=False)


def _n_rows(array: Any) -> int:
    shape = getattr(array, "shape", None)
    if shape is None:  # an Arrow column
        return len(array)
    if not shape:
        raise ValueError("targets and weights of a batch must be arrays, got a single number")
    return shape[0]


def _csr_arrays(parts: list[sp.csr_array], width: int) -> dict[str, NDArray]:
    """The arrays of CSR rows that came in parts, some of which may have fewer columns."""
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    return {
        "indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "indices": np.concatenate([part.indices for part in parts]).astype(np.int32),
        "data": np.concatenate([part.data for part in parts]),
    }
