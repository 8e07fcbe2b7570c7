"""Rows of tables and files for shards, as chunks of Arrow columns or pairs (X, y)."""

import contextlib
import gzip
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Bytes of a text file that are read at once, and the most that a row may have. The time is the same
# from 1 to 16 MB, and a batch takes about ten times as much memory.
BLOCK_BYTES = 2**22
FORMATS = {
    "csv": "csv", "tsv": "tsv", "parquet": "parquet", "pq": "parquet", "libsvm": "libsvm",
    "svm": "libsvm", "svmlight": "libsvm", "txt": "libsvm",
}  # fmt: skip
ALL = "integer", "float", "text"  # the kinds of values in a column


def arrow() -> Any:
    """The module pyarrow, which is imported when a table or a file comes."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "tables and files need pyarrow: pip install pyarrow; pairs (X, y) do not"
        ) from None
    return pyarrow


class Categories:
    """The distinct values of a column: numbered as they come in, sorted at the end."""

    def __init__(self, name: str) -> None:
        self.name, self.known = name, None
        self.kind = ""  # "integer", "float", "text", or "id": a text that may stand for an integer

    def number(self, columns: Sequence[Any]) -> NDArray[np.int32]:
        """Provisional numbers of the values in Arrow arrays of one type, (n,)."""
        pa = arrow()
        encoded = pa.chunked_array(columns).dictionary_encode().chunks
        values = encoded[-1].dictionary
        if self.known is None:
            self.known = values.slice(0, 0)
        found = pa.compute.index_in(values, value_set=self.known)
        new = found.is_null()
        codes = found.fill_null(0).to_numpy().copy()
        codes[new.to_numpy(zero_copy_only=False)] = len(self.known) + np.arange(found.null_count)
        self.known = pa.concat_arrays([self.known, values.filter(new)])
        return codes[np.concatenate([part.indices.to_numpy() for part in encoded])]

    def sorted(self) -> tuple[Any, NDArray[np.int32]]:
        """The sorted values, an Arrow array, and the place of each provisional number in it."""
        pa, values = arrow(), self.known
        if self.kind == "id":
            with contextlib.suppress(pa.ArrowInvalid):
                integers = values.cast(pa.int64())
                if integers.cast(values.type).equals(values):  # 7, but not 007, +7 or 7.0
                    values = integers
        order = pa.compute.array_sort_indices(values)
        return values.take(order), inverse(order.to_numpy())


def inverse(order: Sequence[int] | NDArray) -> NDArray[np.int32]:
    """The place of each number in a permutation of 0..n-1."""
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table: an Arrow batch, and where its rows came from, for messages."""

    batch: Any
    source: str = "a batch, row"
    first: int = 0  # the number of the first row
    ids: Sequence[str] = ()  # columns of text that may stand for integers

    def _error(self, name: str, row: Any, problem: str) -> ValueError:
        return ValueError(f"{self.source} {self.first + int(row)}: column {name!r} {problem}")

    def column(self, name: str, *kinds: str) -> tuple[Any, str]:
        """A column without missing values, and which of the kinds its values are."""
        types, found = arrow().types, self.batch.column(name)
        if types.is_dictionary(found.type):  # which may hold values that do not occur
            found = found.dictionary_decode()
        if found.null_count:
            row = np.argmax(found.is_null().to_numpy(zero_copy_only=False))
            raise self._error(name, row, "is blank or missing; fill it or drop the row")
        if str(found.type) in ("string", "large_string", "string_view"):
            kind = "text"
        elif types.is_integer(found.type) or types.is_boolean(found.type):
            kind = "integer"
        else:
            kind = "float" if types.is_floating(found.type) else str(found.type)
        if kind not in kinds:
            problem = f"must hold {' or '.join(kinds)} values, got {found[0].as_py()!r}"
            raise self._error(name, 0, f"{problem}; convert it, or leave it out")
        return found, kind

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of finite numbers, (n,)."""
        found, _ = self.column(name, "integer", "float")
        found = found.cast(arrow().float64(), safe=False).to_numpy(zero_copy_only=False)
        if not np.isfinite(found).all():
            row = np.argmin(np.isfinite(found))
            raise self._error(name, row, "is NaN or infinite; fill it or drop the row")
        return found

    def categories(self, name: str, *kinds: str) -> tuple[Any, str]:
        """A column of categories, one type for each of the kinds, and its kind."""
        pa = arrow()
        found, kind = self.column(name, *kinds)
        types = {"integer": pa.int64(), "float": pa.float64(), "text": pa.large_string()}
        try:
            found = found.cast(types[kind])
        except pa.ArrowInvalid:
            raise self._error(name, 0, "has integers of 2**63 or more; convert it") from None
        if kind == "float":
            exact = np.abs(found.to_numpy(zero_copy_only=False)) < 2**53
            if not exact.all():
                problem = "is NaN, or a float of 2**53 or more, which skip integers; convert it"
                raise self._error(name, np.argmin(exact), problem)
        return found, "id" if kind == "text" and name in self.ids else kind


def chunks(batch: Any, names: Sequence[str]) -> Iterator[Chunk]:
    """Columns of a data frame, an Arrow table or batch, or a mapping of names to arrays."""
    pa = arrow()
    is_arrow = isinstance(batch, (pa.Table, pa.RecordBatch))
    if not (is_arrow or hasattr(batch, "columns") or isinstance(batch, Mapping)):
        raise ValueError(
            f"a batch is a {type(batch).__name__}; give data frames, Arrow batches, mappings of "
            "names to arrays, files, or, without naming columns, pairs (X, y)"
        )
    check_names(batch.schema.names if is_arrow else getattr(batch, "columns", batch), names)
    columns = {}
    for name in names:
        found = batch.column(name) if is_arrow else batch[name]
        try:
            if hasattr(found, "to_arrow"):
                found = found.to_arrow()
            columns[name] = found if is_arrow else pa.array(found, from_pandas=True)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise ValueError(
                f"column {name!r} of a batch must be 1-D and hold either numbers or strings; "
                f"convert it ({error})"
            ) from None
    check_sizes({name: len(found) for name, found in columns.items()})
    first = 0
    for part in pa.table(columns).to_batches():
        yield Chunk(part, first=first)
        first += part.num_rows


def check_names(known: Any, wanted: Sequence[str], source: str = "a batch") -> None:
    """Raise unless each of the wanted columns is there once."""
    known = list(known)
    for name in wanted:
        if known.count(name) > 1:
            raise ValueError(f"{source} has more than one column {name!r}; rename or drop one")
        if name not in known:
            raise ValueError(f"{source} has no column {name!r}; it has {known[:20]}")


def check_sizes(sizes: dict[str, int]) -> None:
    """Raise unless all parts of a batch have as many rows."""
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the parts of a batch have different numbers of rows: {sizes}")


def check_kind(column: Any, kind: str) -> None:
    """Note the kind of the values of a column; ValueError if earlier batches have another one."""
    if {column.kind, kind} == {"id", "text"}:
        column.kind = kind = "text"
    if column.kind not in ("", kind):
        raise ValueError(
            f"column {column.name!r} mixes {column.kind} and {kind} values; convert it to one"
        )
    column.kind = kind


class Table:
    """The columns of a table that become X, y and the weights."""

    def __init__(
        self, one_hot: Sequence[str], numeric: Sequence[str], target: str, weight: str | None
    ) -> None:
        for name, names in (("one_hot", one_hot), ("numeric", numeric)):
            if isinstance(names, str) or not all(isinstance(n, str) for n in names):
                raise TypeError(f"{name} must be a list of column names, got {names!r}")
        self.numeric, self.target, self.weight = list(numeric), target, weight
        self.numbers = self.numeric + ([weight] if weight else [])
        self.columns = [*one_hot, *self.numbers, target]
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a column is named twice: {self.columns}")
        if not one_hot and not numeric:
            raise ValueError("name at least one column in one_hot or numeric")
        self.categories = [Categories(name) for name in one_hot]
        self.fields = [f"field {i}" for i in range(len(one_hot))]

    def arrays(self, chunk: Chunk) -> dict[str, Any]:
        """The arrays of some rows, as far as they exist: a column per field, x (n, q), y and w."""
        arrays = {}
        for field, categories in zip(self.fields, self.categories, strict=True):
            arrays[field], kind = chunk.categories(categories.name, *ALL)
            check_kind(categories, kind)
        if self.numeric:
            arrays["x"] = np.column_stack([chunk.numbers(name) for name in self.numeric])
        if self.weight:
            arrays["w"] = chunk.numbers(self.weight)
        y, kind = chunk.column(self.target, *ALL)
        arrays["y"] = chunk.numbers(self.target) if kind == "float" else y
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
        One-hot columns of a CSV file that are strings even if all of them are integers.
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
        one_hot = [] if table is None else [c.name for c in table.categories]
        if self.texts and (kind not in ("csv", "tsv") or set(self.texts) - set(one_hot)):
            raise ValueError(f"{path}: texts must be one-hot columns of a CSV file: {self.texts}")
        if kind == "libsvm":
            return self._libsvm(path)
        if table is None:
            raise ValueError(f"{path}: name its target column, and the columns that it depends on")
        if kind == "parquet":
            return self._parquet(path, table)
        return self._csv(path, table, self.delimiter or ("\t" if kind == "tsv" else ","))

    def _csv(self, path: str, table: Table, delimiter: str) -> Iterator[Chunk]:
        csv, float64, string = arrow().csv, arrow().float64(), arrow().string()
        how = {
            # One thread: with more, pyarrow does not tell the row of an error.
            "read_options": csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            "parse_options": csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        }
        ids = [c.name for c in table.categories]
        convert = csv.ConvertOptions(
            include_columns=table.columns,
            column_types=dict.fromkeys(table.numbers, float64) | dict.fromkeys(ids, string),
            null_values=[" " * n for n in range(9)],
            strings_can_be_null=True,
        )
        names, first = [], 2  # lines are counted from 1, and names come first
        try:
            names = csv.open_csv(path, **how).schema.names
            check_names(names, table.columns, path)
            for batch in csv.open_csv(path, **how, convert_options=convert):
                yield Chunk(batch, f"{path}, about line", first, set(ids) - set(self.texts))
                first += batch.num_rows
        except (arrow().ArrowInvalid, UnicodeDecodeError) as error:
            parts = r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?(?:Row #(\d+): )?(.*)"
            column, row, problem = re.fullmatch(parts, str(error), re.S).groups()
            if column:  # the cure for a word in a column of numbers
                problem = (
                    f"column {names[int(column)]!r}: {problem}; a numeric column holds numbers, "
                    "and the first rows decide if a target holds integers, other numbers or strings"
                )
            line = f", about line {row}" if row else ""
            raise ValueError(f"{path}{line}: {problem}") from None

    def _parquet(self, path: str, table: Table) -> Iterator[Chunk]:
        with arrow().parquet.ParquetFile(path) as file:
            check_names(file.schema_arrow.names, table.columns, path)
            first = 0
            for batch in file.iter_batches(columns=table.columns):
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


def encode_columns(table: Any, known: Mapping[str, NDArray | None]) -> Any:
    """A table as X, from the categories of each column, or None where it holds numbers.

    A category that is not known sets no feature.
    """
    rows, parts = list(chunks(table, list(known))), []
    for name, values in known.items():
        if values is None:
            parts.append(np.concatenate([[], *(chunk.numbers(name) for chunk in rows)])[:, None])
            continue
        places = {value: i for i, value in enumerate(values.tolist())}
        kinds = ("text",) if values.dtype == object else ("integer", "float")
        found_codes = [np.empty(0, np.int32)]
        for chunk in rows:
            column, _ = chunk.categories(name, *kinds)
            column = column.dictionary_encode()
            found = np.array([places.get(v, -1) for v in column.dictionary.to_pylist()], np.int32)
            found_codes.append(found[column.indices.to_numpy()])
        codes = np.concatenate(found_codes)
        have = np.flatnonzero(codes >= 0)
        entries = np.ones(len(have)), (have, codes[have])
        parts.append(sp.csr_array(entries, shape=(len(codes), len(values))))
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.hstack(parts)
    return sp.hstack([sp.csr_array(part) for part in parts], "csr")
