"""A folder of shards, written in one pass over batches of rows, in bounded memory.

Rows are spilled as they come. When all are known, so is the encoding, and every shard is written in
its final form, however the rows were cut into batches. All names have a token of the write, and the
manifest comes last, in one step: until then the folder holds the old rows.
"""

import argparse
import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES, as_count
from fastpoly.rows import format as shard_format
from fastpoly.rows.ingest import FORMATS, Chunk, DataFile, Distincts, Table, pair_arrays
from fastpoly.rows.shards import Shards
from fastpoly.storage.npz import write_arrays
from fastpoly.tables import Encoding
from fastpoly.tables.fields import each_once, one_hot
from fastpoly.tables.frames import Column, Distinct, is_frame


def write_shards(
    folder: str | os.PathLike[str], batches: Any, *, one_hot: Sequence[str] = (),
    numeric: Sequence[str] = (), target: str | None = None, weight: str | None = None,
    rows_per_shard: int = BLOCK_DOUBLES, overwrite: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Shards:  # fmt: skip
    """Write rows to a folder from which `Shards` reads them.

    Parameters
    ----------
    folder : str or path-like
        Created if it does not exist.
    batches : iterable, or one batch
        Data frames of pandas or polars, Arrow record batches or tables, mappings of names to
        arrays, paths of CSV, parquet or libsvm files (`fastpoly.rows.ingest.DataFile` has options),
        or tuples (X, y) or (X, y, weights). Only one of them is in memory at a time, and a part of
        a file. CSV and parquet files need pyarrow.
    one_hot, numeric : sequence of str
        The columns that become fields: levels, which are texts or numbers and are all kept, and
        numbers in bins. By default all columns but the target and the weight, by their types, as
        the estimators encode a frame: texts, categories and booleans are levels, of which those of
        a single row are one, and lists are several of them. A missing value is a level or a bin of
        its own. The encoding is stored with the rows, so a model of the shards predicts frames.
        Rows with two fields that are no lists are sorted by the first one within each shard, which
        makes passes 2 to 7 times faster; targets and predictions keep the order of the table.
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
    >>> shards.categories("item"), shards.classes
    (array([3, 7]), array([4, 5]))
    >>> list(shards.feature_names)
    ['user=ann', 'user=bob', 'user=<other>', 'item=3', 'item=7', 'item=<other>']
    """
    table = None
    if target is not None:
        table = Table(one_hot, numeric, target, weight)
    elif one_hot or numeric or weight:
        raise ValueError("target must be given with one_hot, numeric or weight")
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(
            f"folder must be the path of a folder, got {type(folder).__name__}; rows come second: "
            "write_shards(folder, batches)"
        )
    path = Path(os.path.abspath(folder))
    path.mkdir(parents=True, exist_ok=True)
    manifest = path / shard_format.MANIFEST
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
            _remove(path.glob(writer.name("*", "*")))
        raise
    shards = Shards(path)
    ours = {file for file in path.iterdir() if shard_format.FILE_NAME.fullmatch(file.name)}
    _remove(ours - {path / name for name in shards.manifest.file_names})
    return shards


def _batches(batches: Any, table: Table | None) -> Iterator[Chunk | tuple[Any, ...]]:
    """Pairs, and chunks of tables and of files; `batches` may also be one of them."""
    several = str, os.PathLike, DataFile, Mapping
    one = isinstance(batches, several) or is_frame(batches)
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
                f"a batch is a {type(batch).__name__}: name its target, or give pairs (X, y)"
            )
        else:
            yield Chunk(batch)


class Targets:
    """Collects targets: integers, strings and up to 256 numbers are levels, more are numbers."""

    def __init__(self, name: str) -> None:
        self.name, self.n_targets = name, 1
        self.known = Distincts(name)  # integers and strings
        self.levels: NDArray | None = np.empty(0)  # distinct numbers; None if there are too many

    def encode(self, y: NDArray[Any] | Distinct) -> NDArray:
        """Provisional numbers (n,) of levels, or targets as float64 (n, m)."""
        if isinstance(y, Distinct):
            if y.codes.min() < 0:
                row = int(y.codes.argmin())
                raise ValueError(f"target {self.name!r} is missing, value {row} of a batch")
            return self.known.number(y)
        if y.ndim > 2 or not y.shape[-1]:
            raise ValueError(f"target {self.name!r} must be (n,) or (n, m), got shape {y.shape}")
        y = y.reshape(len(y), -1).astype(np.float64, copy=False)
        first, self.known.sort = not self.known.sort, self.known.sort or "float"
        if self.known.sort != "float":
            raise ValueError(f"column {self.name!r} mixes {self.known.sort} and float values")
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
        if self.known.sort == "float":
            if self.levels is None:
                return [], lambda y: y
            return self.levels.tolist(), lambda y: np.searchsorted(self.levels, y[:, 0])
        field, places = self.known.learn()
        classes = field.values.tolist()
        for text in classes:
            if isinstance(text, str) and text.endswith("\0"):
                raise ValueError(f"target {self.name!r} holds {text!r}, whose end NumPy would drop")
        places = places.astype(np.min_scalar_type(len(classes)))
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
        self.suffixes: dict[str, str] = {}  # of the files of spilled arrays: npz for CSR, or npy
        self.width = 0  # columns of x or csr
        self.single = True

    def name(self, content: str, suffix: str = "npy") -> str:
        """The name of a file of this write."""
        return f"{content}.fastpoly-{self.token}.{suffix}"

    def add(self, batch: Chunk | tuple[Any, ...]) -> int:
        """Take a batch and return its number of rows; full shards are spilled to files."""
        if isinstance(batch, tuple) and self.table is not None:
            raise ValueError("target names a column, but a batch is a pair (X, y)")
        arrays = pair_arrays(batch) if isinstance(batch, tuple) else self.table.arrays(batch)
        n = len(arrays["y"][0] if isinstance(arrays["y"], Distinct) else arrays["y"])
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
        suffixes = {name: "npz" if sp.issparse(a) else "npy" for name, a in arrays.items()}
        if self.suffixes and self.suffixes != suffixes:
            raise ValueError(
                f"batches must be alike: one has {sorted(arrays)}, another {sorted(self.suffixes)}"
            )
        w = arrays.get("w")
        if w is not None and not (w.ndim == 1 and np.isfinite(w).all() and (w >= 0).all()):
            raise ValueError("weights must be 1-D, finite and not negative")
        X = arrays.get("x", arrays.get("csr"))
        if X is not None:
            if self.suffixes and "x" in arrays and X.shape[1] != self.width:
                raise ValueError(
                    f"X of a batch has {X.shape[1]} columns, that of another {self.width}"
                )
            self.width = max(self.width, X.shape[1])  # a libsvm file does not state it
            self.single &= X.dtype == np.float32
        self.suffixes = suffixes

    def _spilled(self, number: int, name: str) -> Path:
        return self.folder / self.name(f"raw-{number}-{name}", self.suffixes[name])

    def _spill(self) -> None:
        """Write the waiting rows to files in their raw form."""
        for name, suffix in self.suffixes.items():
            parts, path = [part[name] for part in self.waiting], self._spilled(len(self.rows), name)
            if suffix == "npy":
                np.save(path, np.concatenate(parts))
                continue
            width = max(X.shape[1] for X in parts)
            for X in parts:
                X.resize(X.shape[0], width)
            sp.save_npz(path, sp.vstack(parts, "csr"), compressed=False)
        self.rows.append(self.n_waiting)
        self.waiting, self.n_waiting = [], 0

    def _load(self, number: int, name: str) -> Any:
        """What was spilled: an array, or CSR."""
        path = self._spilled(number, name)
        return sp.load_npz(path) if path.suffix == ".npz" else np.load(path, mmap_mode="r")

    def finish(self) -> None:
        """Write every shard in its final form, and then the manifest."""
        if self.n_waiting:
            self._spill()
        if not self.rows:
            raise ValueError("batches hold no rows")
        fields, places = ([], []) if self.table is None else self.table.finish(self._numbers)
        counts = np.zeros(sum(field.size for field in fields))
        encoding = Encoding(fields, counts)
        d = encoding.n_codes or self.width
        if d > shard_format.MOST_FEATURES:
            raise ValueError(f"X has more than {shard_format.MOST_FEATURES} columns or levels")
        classes, levels = self.targets.finish()
        is_csr = "npz" in self.suffixes.values()
        kind = "csr" if is_csr else "codes" if fields else "dense"
        content: dict[str, Any] = {
            "format": shard_format.FORMAT, "version": shard_format.SHARDS_VERSION, "kind": kind,
            "n_samples": sum(self.rows), "n_features": d, "n_fields": len(fields), "encoding": None,
            "dtype": "<f4" if self.single and not fields else "<f8",
            "classes": classes, "n_targets": self.targets.n_targets, "shards": [],
            "weighted": "w" in self.suffixes, "sorted": kind == "codes" and len(fields) == 2,
        }  # fmt: skip
        for number, n in enumerate(self.rows):
            arrays = self._final(number, content, levels, encoding, places)
            if fields:
                counts += np.bincount(arrays["indices"].ravel(), minlength=d)
            entries = len(arrays["indices"]) if kind == "csr" else 0
            files = {}
            for name, (dtype, _) in shard_format.layout(content, n, entries).items():
                path = self.folder / self.name(f"{number:06d}-{name}")
                digest = shard_format.write_array(path, arrays[name].astype(dtype, copy=False))
                files[name] = {"name": path.name, "digest": digest}
            content["shards"].append({"rows": n, "entries": entries, "files": files})
            del arrays
            _remove(self._spilled(number, name) for name in self.suffixes)
        if fields:
            encoding = Encoding(fields, counts / content["n_samples"])
            path = self.folder / self.name("encoding", "npz")
            write_arrays(path, encoding.arrays())
            content["encoding"] = {"name": path.name, "digest": shard_format.digest_of(path)}
        shard_format.write_manifest(self.folder, content)

    def _numbers(self, name: str) -> NDArray[np.float64]:
        """The values of a field of all rows, or of 2^24 that are evenly spaced (128 MB)."""
        step = -(-sum(self.rows) // 2**24)
        parts, first = [], 0
        for number, n in enumerate(self.rows):
            parts.append(self._load(number, name)[-first % step :: step])
            first += n
        return np.concatenate(parts)

    def _final(
        self, number: int, content: dict[str, Any], levels: Callable[[NDArray], NDArray],
        encoding: Encoding, places: list[NDArray[np.int32] | None],
    ) -> dict[str, NDArray]:  # fmt: skip
        """The arrays of a shard as they are stored."""
        raw = {name: self._load(number, name) for name in self.suffixes}
        arrays: dict[str, NDArray] = {name: raw[name] for name in raw.keys() & {"w", "x"}}
        arrays["y"] = levels(raw["y"])
        X = self._codes(raw, encoding, places) if encoding.fields else raw.get("csr")
        if sp.issparse(X):
            arrays |= {"indptr": X.indptr, "indices": X.indices, "data": X.data}
        elif X is not None:
            arrays["indices"] = X
        if content["sorted"]:
            first, n = arrays["indices"][:, 0], len(arrays["indices"])
            # CSR sorts by counting, three times as fast as argsort.
            order = sp.coo_array((np.ones(n, np.int8), (first, np.arange(n)))).tocsr().indices
            arrays = {name: np.take(a, order, axis=0) for name, a in arrays.items()}
            arrays["places"] = np.empty(n, np.int32)
            arrays["places"][order] = np.arange(n, dtype=np.int32)
        return arrays

    def _codes(
        self, raw: dict[str, Any], encoding: Encoding, places: list[NDArray[np.int32] | None]
    ) -> Any:
        """The codes of all fields: an array (n, F), or CSR where fields are lists."""
        codes: list[Any] = []
        for i, (field, own) in enumerate(zip(encoding.fields, places, strict=True)):
            found = raw[str(i)]
            if field.kind == "number":
                codes.append(field.codes(Column(field.name, found, "number")))
            elif field.kind == "list":
                codes.append(each_once(found.indptr, own[found.indices - 1]))
            else:
                codes.append(own[found])
        if "npz" not in self.suffixes.values():
            indices = np.stack(codes, 1, dtype=np.int32, casting="same_kind")
            return indices + encoding.offsets[:-1].astype(np.int32)
        begins = np.arange(len(raw["y"]) + 1)
        lists = (own if isinstance(own, tuple) else (begins, own) for own in codes)
        sizes = np.diff(encoding.offsets).tolist()
        return sp.hstack([one_hot(*own, n) for own, n in zip(lists, sizes, strict=True)], "csr")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `fastpoly-shards`: write shards, or check those of a folder."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.folder is None or not (options.files or options.verify):
        parser.error(
            "name the folder and the files to read first (or a folder and --verify); --one-hot, "
            "--numeric and --text take all names that follow them"
        )
    try:
        shards = Shards(options.folder, verify=True) if options.verify else _write_files(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fastpoly-shards: {error}", file=sys.stderr)
        return 1
    sizes = {"row": shards.n_samples, "feature": shards.n_features, "shard": len(shards)}
    counted = ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in sizes.items())
    print(f"{shards.folder}: {counted}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastpoly-shards",
        usage="%(prog)s FOLDER FILE ... [--one-hot COLUMN ...] [--target COLUMN] [more options]",
        description="Write CSV, libsvm or parquet files as shards that fastpoly fits.",
    )
    parser.add_argument("folder", nargs="?", help="the folder for the shards")
    parser.add_argument("files", nargs="*", help="the files to read")
    parser.add_argument("--verify", action="store_true", help="check the shards of the folder")
    parser.add_argument(
        "--one-hot", nargs="+", default=[], metavar="COLUMN",
        help="columns of categories; by default the types of the columns decide",
    )  # fmt: skip
    parser.add_argument("--numeric", nargs="+", default=[], metavar="COLUMN", help="of numbers")
    parser.add_argument(
        "--text", nargs="+", default=[], metavar="COLUMN",
        help="one-hot columns of a CSV file whose integers are to be strings",
    )  # fmt: skip
    parser.add_argument("--target", metavar="COLUMN", help="not for libsvm files")
    parser.add_argument("--weight", metavar="COLUMN", help="of the weights of the rows")
    parser.add_argument(
        "--format", choices=sorted(set(FORMATS.values())), help="by default from the suffix"
    )
    parser.add_argument("--delimiter", help="for CSV files; by default a comma")
    parser.add_argument("--zero-based", action="store_true", help="libsvm indices start at 0")
    parser.add_argument("--rows-per-shard", type=int, default=BLOCK_DOUBLES, metavar="N")
    parser.add_argument("--overwrite", action="store_true", help="replace the shards of the folder")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def _write_files(options: argparse.Namespace) -> Shards:
    files = [
        DataFile(file, options.format, options.delimiter, options.text, options.zero_based)
        for file in options.files
    ]
    from tqdm import tqdm

    with tqdm(unit=" rows", unit_scale=True, disable=options.quiet) as bar:
        return write_shards(
            options.folder, files, one_hot=options.one_hot, numeric=options.numeric,
            target=options.target, weight=options.weight, rows_per_shard=options.rows_per_shard,
            overwrite=options.overwrite, progress=bar.update,
        )  # fmt: skip
