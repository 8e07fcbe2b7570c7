"""Rows for shards: batches of tables, files and pairs (X, y), in the form that is spilled to disk.

A table is read by its columns (`fastpoly.tables.frames`). Its levels are numbered as they come in,
and its numbers are kept as they are, until all rows are known.
"""

import gzip
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.checks import as_array
from fastpoly.kernels.matrix import as_matrix
from fastpoly.rows.format import MOST_FEATURES
from fastpoly.tables.fields import SORTS, Levels, Number, each_once
from fastpoly.tables.frames import Column, Distinct, holds_integers, is_frame, read_columns

# Bytes of a text file that are read at once, and the most that a row may have.
BLOCK_BYTES = 2**24
FORMATS = {
    "csv": "csv", "tsv": "tsv", "parquet": "parquet", "pq": "parquet", "libsvm": "libsvm",
    "svm": "libsvm", "svmlight": "libsvm", "txt": "libsvm",
}  # fmt: skip
INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")  # as it is written: not 007, +7 or 7.0


def arrow() -> Any:
    """The module pyarrow."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "files need pyarrow: pip install pyarrow; pairs (X, y) and libsvm files do not"
        ) from None
    return pyarrow


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, and where they came from, for messages."""

    frame: Any
    source: str = "a batch, row"
    first: int = 0  # the number of the first row
    ids: Collection[str] = ()  # columns of text that may stand for integers


def check_names(known: Any, wanted: Sequence[str], source: str = "a batch") -> None:
    """Raise unless each of the wanted columns is there once."""
    known = list(known)
    for name in wanted:
        if known.count(name) > 1:
            raise ValueError(f"{source} has more than one column {name!r}; rename or drop one")
        if name not in known:
            raise ValueError(f"{source} has no column {name!r}; it has {known[:20]}")


class Distincts:
    """The distinct values of a column: numbered as they come in, and counted."""

    def __init__(self, name: str) -> None:
        self.name, self.sort = name, ""  # of SORTS, or "id": a text that may stand for an integer
        self.known: dict[Any, int] = {}
        self.counts = np.zeros(0, np.int64)  # the rows of each value, and at last those without one

    def number(self, found: Distinct, is_id: bool = False) -> NDArray[np.int32]:
        """Provisional numbers of rows, (n,), -1 where a value is missing."""
        codes, values = found
        if values.dtype.kind == "f" and np.isinf(values).any():
            raise ValueError(f"column {self.name!r} is infinite; replace it by a number or a gap")
        if len(values):
            sort = "id" if is_id and values.dtype == object else SORTS[values.dtype.kind]
            if {sort, self.sort} == {"id", "text"}:
                sort = self.sort = "text"
            if self.sort not in ("", sort):
                raise ValueError(
                    f"column {self.name!r} mixes {self.sort} and {sort} values; convert it to one"
                )
            self.sort = sort
        known, levels = self.known, values.tolist()
        new = dict.fromkeys(value for value in levels if value not in known)
        known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
        places = np.fromiter(map(known.__getitem__, levels), np.int32, len(levels))
        numbers = np.append(places, np.int32(-1))[codes]
        counts = np.bincount(numbers + 1, minlength=len(known) + 1)
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return numbers

    def learn(self, min_count: int = 1, kind: str = "levels") -> tuple[Levels, NDArray[np.int32]]:
        """The field of values of so many rows, and the code of each number, at last that of -1."""
        values = list(self.known)
        if self.sort == "id" and all(map(INTEGER.fullmatch, values)):
            values = list(map(int, values))
        is_text = bool(values) and isinstance(values[0], str)
        found = np.array(values, object if is_text else float if self.sort == "float" else None)
        kept = np.sort(found[self.counts[1:] >= min_count])
        field = Levels(self.name, kept, bool(self.counts[:1].any()), kind)
        return field, field.places(found).astype(np.int32)


class Table:
    """The columns of a table that become fields, y and weights; all are fields if none is named."""

    def __init__(
        self, one_hot: Sequence[str], numeric: Sequence[str], target: str, weight: str | None
    ) -> None:
        for name, names in (("one_hot", one_hot), ("numeric", numeric)):
            if isinstance(names, str) or not all(isinstance(n, str) for n in names):
                raise TypeError(f"{name} must be a list of column names, got {names!r}")
        self.target, self.weight = target, weight
        self.others = [*([weight] if weight else []), target]
        # The fields: "levels", "list" or "number"; where none is named, those of the first batch.
        self.kinds = {**dict.fromkeys(one_hot, "levels"), **dict.fromkeys(numeric, "number")}
        self.columns = [*one_hot, *numeric, *self.others] if self.kinds else None
        if self.columns and len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a column is named twice: {self.columns}")
        self.known: dict[str, Distincts] = {}  # of all fields, from the first batch on

    def of_kind(self, kind: str) -> list[str]:
        """The fields of a kind, as far as they are known."""
        return [name for name, own in self.kinds.items() if own == kind]

    def _begin(self, columns: Mapping[str, Column]) -> None:
        """Learn the kinds of fields from the first rows."""
        fields = self.kinds or {n: c.kind for n, c in columns.items() if n not in self.others}
        if not fields:
            raise ValueError("there must be columns beside the target and the weight")
        for name, kind in fields.items():
            is_list = kind == "levels" and columns[name].kind == "list"
            self.kinds[name] = "list" if is_list else kind
        self.known = {name: Distincts(name) for name in fields}

    def _columns(self, frame: Any) -> dict[str, Column]:
        """The columns that are used, by name."""
        if not is_frame(frame):
            raise ValueError(
                f"a batch is a {type(frame).__name__}; give data frames, Arrow batches, mappings "
                "of names to arrays, files, or, without naming columns, pairs (X, y)"
            )
        if self.columns is not None:
            is_arrow = hasattr(frame, "schema") and hasattr(frame, "column")
            known = frame.schema.names if is_arrow else getattr(frame, "columns", frame)
            check_names(known, self.columns)
            if isinstance(frame, Mapping):
                frame = {name: frame[name] for name in self.columns}
            else:
                frame = frame.select(self.columns) if is_arrow else frame[self.columns]
        columns = read_columns(frame)
        check_names(columns, self.others)
        return columns

    def arrays(self, chunk: Chunk) -> dict[str, Any]:
        """Arrays of some rows: y and w, and each field by its position, as `_field` gives it."""
        columns = self._columns(chunk.frame)
        if not columns[self.target].size:
            return {"y": np.empty(0)}
        if not self.known:
            self._begin(columns)
        for name in columns.keys() ^ {*self.kinds, *self.others}:
            raise ValueError(f"batches must be alike: only some of them have the column {name!r}")
        try:
            arrays: dict[str, Any] = {
                str(i): self._field(columns[name], name in chunk.ids)
                for i, name in enumerate(self.kinds)
            }
            if self.weight:
                arrays["w"] = columns[self.weight].numbers()
            arrays["y"] = target_values(columns[self.target])
        except ValueError as error:
            raise ValueError(f"{chunk.source} {chunk.first} and below: {error}") from None
        for name, key in ((self.weight, "w"), (self.target, "y")):
            found = arrays.get(key, np.empty(0))
            gaps = found.codes < 0 if isinstance(found, Distinct) else np.isnan(found)
            if gaps.any():
                row = chunk.first + int(np.argmax(gaps))
                raise ValueError(
                    f"{chunk.source} {row}: column {name!r} is blank or missing; fill it or drop "
                    "the row"
                )
        return arrays

    def _field(self, column: Column, is_id: bool) -> Any:
        """Values, or provisional numbers, (n,); of lists CSR, with the numbers + 1 as indices."""
        kind, known = self.kinds[column.name], self.known[column.name]
        if kind == "number":
            return column.numbers()
        if kind == "list":
            begins, (codes, values) = column.lists()
            begins, codes = each_once(begins, codes)
            items = known.number(Distinct(codes, values)) + 1
            return sp.csr_array((np.ones(len(items)), items, begins), (column.size, MOST_FEATURES))
        if column.kind == "number" and self.columns is None:
            raise column.error("holds numbers, but none in the first batch; name it in numeric")
        return known.number(column.distinct(), is_id)

    def finish(
        self, numbers: Callable[[str], NDArray[np.float64]]
    ) -> tuple[list[Levels | Number], list[NDArray[np.int32] | None]]:
        """The fields, those of `numbers` by position, and the codes of provisional numbers."""
        min_count = 2 if self.columns is None else 1
        fields: list[Levels | Number] = []
        places: list[NDArray[np.int32] | None] = []
        for i, (name, kind) in enumerate(self.kinds.items()):
            own = None
            if kind == "number":
                fields.append(Number.learn(Column(name, numbers(str(i)), kind), min_count))
            else:
                field, own = self.known[name].learn(min_count, kind)
                fields.append(field)
            places.append(own)
        return fields, places


def target_values(column: Column) -> NDArray[Any] | Distinct:
    """Numbers as they are; integers and all else as levels, where booleans are 0 and 1."""
    if column.kind == "number" and not holds_integers(column.data):
        return column.numbers()
    found = column.distinct()
    is_flag = found.values.dtype == bool
    return found._replace(values=found.values.astype(np.int64)) if is_flag else found


def pair_arrays(batch: tuple[Any, ...]) -> dict[str, Any]:
    """The arrays of a batch (X, y) or (X, y, w): x or csr, then y and w."""
    if len(batch) not in (2, 3):
        raise ValueError(f"a batch must be (X, y) or (X, y, weights), got {len(batch)} items")
    X, y, *rest = batch
    arrays: dict[str, Any] = {"y": as_array(y, "y of a batch")}
    if rest:
        arrays["w"] = as_array(rest[0], "weights of a batch").astype(np.float64)
    try:
        M = as_matrix(X)
    except TypeError as error:
        raise TypeError(f"{error}, or give a frame and name its target") from None
    if M.sparse:
        arrays["csr"] = sp.csr_array(M.arrays, shape=(M.n, M.d))
    else:
        arrays["x"] = M.array
    if any(not array.ndim for array in arrays.values()):
        raise ValueError("targets and weights of a batch must be arrays, got a single number")
    sizes = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the parts of a batch have different numbers of rows: {sizes}")
    if arrays["y"].ndim <= 2 and arrays["y"].size == len(arrays["y"]):
        # NumPy's own texts lose "\0" at their end.
        y = y if arrays["y"].dtype.kind == "U" and isinstance(y, list) else arrays["y"].ravel()
        arrays["y"] = target_values(read_columns({"y": y})["y"])
    return arrays


@dataclass(frozen=True)
class DataFile:
    """A file for `write_shards`, where the defaults for its path do not fit.

    Parameters
    ----------
    path : str or path-like
        A CSV file, whose first line names the columns, a parquet file, or a libsvm file, ``target
        index:value index:value ...``. Text files may be compressed (.gz).
    format : {"csv", "tsv", "parquet", "libsvm"}, optional
        By default that of the suffix.
    delimiter : str, optional
        Of a CSV file; by default a comma, for "tsv" a tab.
    texts : sequence of str
        Columns of a CSV file that are texts even if all of them are integers.
    zero_based : bool
        Whether the first feature of a libsvm file has index 0 instead of 1.

    Examples
    --------
    >>> import os, tempfile
    >>> from fastpoly import write_shards
    >>> from fastpoly.rows.ingest import DataFile
    >>> folder = tempfile.mkdtemp()
    >>> path = os.path.join(folder, "ratings.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("user;item;stars\\nann;7;4.5\\nbob;3;5\\n")
    >>> file = DataFile(path, delimiter=";")
    >>> shards = write_shards(folder, file, one_hot=["user", "item"], target="stars")
    >>> shards.categories("item"), shards.classes
    (array([3, 7]), array([4.5, 5. ]))
    """

    path: str | os.PathLike[str]
    format: str | None = None
    delimiter: str | None = None
    texts: Sequence[str] = ()
    zero_based: bool = False

    def batches(self, table: Table | None) -> Iterator[Any]:
        """The batches of the file: chunks of the columns of a table, or pairs (X, y)."""
        path = os.fspath(self.path)
        kind = self.format or FORMATS.get(path.lower().removesuffix(".gz").rpartition(".")[2])
        if kind not in FORMATS.values():
            raise ValueError(
                f"{path}: give its format, one of {sorted(set(FORMATS.values()))}; got {kind!r}"
            )
        is_csv = kind in ("csv", "tsv")
        known = self.texts if table is None or not table.kinds else table.of_kind("levels")
        if self.texts and not (is_csv and set(self.texts) <= set(known)):
            raise ValueError(f"{path}: texts must be one-hot columns of a CSV file: {self.texts}")
        if kind == "libsvm":
            return self._libsvm(path)
        if table is None:
            raise ValueError(f"{path}: name its target column")
        if not is_csv:
            return self._parquet(path, table)
        return self._csv(path, table, self.delimiter or ("\t" if kind == "tsv" else ","))

    def _csv(self, path: str, table: Table, delimiter: str) -> Iterator[Chunk]:
        pa = arrow()
        csv = pa.csv
        how = {
            # One thread: with more, pyarrow does not tell the row of an error.
            "read_options": csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            "parse_options": csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        }
        levels = table.of_kind("levels") if table.kinds else [*self.texts]
        numbers = [*table.of_kind("number"), *table.others[:-1]]
        convert = csv.ConvertOptions(
            include_columns=table.columns or (),
            column_types=dict.fromkeys(numbers, pa.float64())
            | dict.fromkeys(levels, pa.dictionary(pa.int32(), pa.string())),
            null_values=[" " * n for n in range(9)],
            strings_can_be_null=True,
        )
        names, first = [], 2  # lines are counted from 1, and names come first
        try:
            names = csv.open_csv(path, **how).schema.names
            check_names(names, table.columns or [*self.texts, *table.others], path)
            for batch in csv.open_csv(path, **how, convert_options=convert):
                yield Chunk(batch, f"{path}, about line", first, set(levels) - set(self.texts))
                first += batch.num_rows
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            parts = r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?(?:Row #(\d+): )?(.*)"
            column, row, problem = re.fullmatch(parts, str(error), re.S).groups()
            if column:  # the cure for a word in a column of numbers
                problem = (
                    f"column {names[int(column)]!r}: {problem}; a numeric column holds numbers, "
                    "and the first rows decide what a column holds that is not named"
                )
            line = f", about line {row}" if row else ""
            raise ValueError(f"{path}{line}: {problem}") from None

    def _parquet(self, path: str, table: Table) -> Iterator[Chunk]:
        with arrow().parquet.ParquetFile(path) as file:
            check_names(file.schema_arrow.names, table.columns or table.others, path)
            first = 0
            for batch in file.iter_batches(2**18, columns=table.columns):
                yield Chunk(batch, f"{path}, row", first)
                first += batch.num_rows

    def _libsvm(self, path: str) -> Iterator[tuple[sp.csr_matrix, NDArray[np.float64]]]:
        done = 0
        with (gzip.open if path.lower().endswith(".gz") else open)(path, "rb") as file:
            while lines := file.readlines(BLOCK_BYTES):
                if not done:
                    lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")  # a byte order mark
                try:
                    yield self._pair(b"".join(lines))
                except (ValueError, OverflowError):
                    for number, line in enumerate(lines, done + 1):
                        self._pair(line, f"{path}, line {number}: ")
                    raise
                done += len(lines)

    def _pair(self, text: bytes, place: str = "") -> tuple[sp.csr_matrix, NDArray[np.float64]]:
        """X and y of lines of a libsvm file."""
        from sklearn.datasets import load_svmlight_file

        try:
            return load_svmlight_file(BytesIO(text), zero_based=self.zero_based)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{place}not 'target index:value ...' with indices that increase from "
                f"{int(not self.zero_based)}: {text[:60]!r} ({error})"
            ) from None
