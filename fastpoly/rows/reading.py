"""Batches of rows from text files, for `write_shards`."""

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def read_csv_batches(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    categories: Sequence[str] = (),
    delimiter: str = ",",
    rows_per_batch: int = 2**16,
) -> Iterator[dict[str, NDArray]]:
    """Read a CSV file, whose first line names the columns, one batch of rows at a time.

    The first batch decides whether a column holds integers, numbers or strings. A blank cell is an
    error in every column that is read, because it would become a category.

    Parameters
    ----------
    path : str or path-like
    columns : sequence of str, optional
        The columns to read; by default all.
    texts : sequence of str
        Columns that are strings even where they look like numbers.
    categories : sequence of str
        Columns that are integers or strings. They are strings where a value is not written as
        Python writes an integer, so that 007 is not 7, and 4.50 not 4.5.
    delimiter : str
    rows_per_batch : int
        The default takes some tens of megabytes as Python objects.

    Yields
    ------
    dict of str to ndarray

    Examples
    --------
    >>> import os, tempfile
    >>> from fastpoly.rows.reading import read_csv_batches
    >>> path = os.path.join(tempfile.mkdtemp(), "ratings.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("user,item,stars\\nann,7,4.5\\nbob,3,5\\n")
    >>> list(read_csv_batches(path, columns=["user", "stars"]))
    [{'user': array(['ann', 'bob'], dtype='<U3'), 'stars': array([4.5, 5. ])}]
    """
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter)
        names = next(lines, [])
        wanted = list(names if columns is None else columns)
        unknown = set(wanted) - set(names)
        if unknown or not wanted:
            raise ValueError(f"{path} has no columns {sorted(unknown)}; it has {names}")
        twice = [name for name in wanted if names.count(name) > 1]
        if twice:
            raise ValueError(f"{path} has more than one column {twice[0]!r}; rename or drop one")
        places = [names.index(name) for name in wanted]
        kinds: dict[str, type] = dict.fromkeys(texts, str)
        first = 2  # lines are counted from 1, and names come first
        while rows := list(islice(lines, rows_per_batch)):
            short = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
            if short is not None:
                raise ValueError(
                    f"{path}, about line {first + short}: {len(rows[short])} fields, not "
                    f"{len(names)}"
                )
            batch = {}
            for name, place in zip(wanted, places, strict=True):
                cells = [row[place] for row in rows]
                blank = next((i for i, cell in enumerate(cells) if not cell.strip()), None)
                if blank is not None:
                    raise ValueError(
                        f"{path}, about line {first + blank}: column {name!r} is blank; fill it, "
                        "drop the row, or leave the column out of columns"
                    )
                values = np.array(cells)
                if name not in kinds:
                    kinds[name] = _kind(values, name in categories)
                try:
                    batch[name] = values if kinds[name] is str else values.astype(kinds[name])
                    if name in categories and kinds[name] is not str:
                        _check_plain(values, batch[name])
                except (ValueError, OverflowError) as error:
                    raise ValueError(
                        f"{path}, column {name!r}, lines {first}..{first + len(rows) - 1}: "
                        f"{error}; name the column in texts if it holds strings"
                    ) from None
            yield batch
            first += len(rows)


def _kind(values: NDArray, category: bool) -> type:
    """The narrowest of int, float and str to which all these strings convert.

    For a category, only integers in their plain form are numbers.
    """
    for kind in (np.int64,) if category else (np.int64, np.float64):
        try:
            converted = values.astype(kind)
            if category:
                _check_plain(values, converted)
        except (ValueError, OverflowError):
            continue
        return kind
    return str


def _check_plain(values: NDArray, integers: NDArray) -> None:
    """Raise unless the strings are what Python writes for these integers."""
    other = values != integers.astype(str)
    if other.any():
        raise ValueError(f"{values[other][0]!r} is not a plain integer")


def read_libsvm_batches(
    path: str | os.PathLike[str],
    *,
    zero_based: bool = False,
    rows_per_batch: int = 2**16,
) -> Iterator[tuple[sp.csr_array, NDArray[np.float64]]]:
    """Read a libsvm file, ``target index:value index:value ...``, one batch of rows at a time.

    Parameters
    ----------
    path : str or path-like
    zero_based : bool
        Whether the first feature has index 0 instead of 1.
    rows_per_batch : int
        The default takes some tens of megabytes as Python objects.

    Yields
    ------
    X : csr_array, (n, d)
        d is given by the largest index so far.
    y : ndarray, (n,)

    Examples
    --------
    >>> import os, tempfile
    >>> from fastpoly.rows.reading import read_libsvm_batches
    >>> path = os.path.join(tempfile.mkdtemp(), "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("1 1:0.5 3:2\\n-1 2:1 # a comment\\n")
    >>> ((X, y),) = read_libsvm_batches(path)
    >>> X.toarray(), y
    (array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]]), array([ 1., -1.]))
    """
    width, done = 1, 0
    with open(path, encoding="utf-8-sig") as file:
        while lines := list(islice(file, rows_per_batch)):
            y, indices, values, ends = [], [], [], [0]
            for number, line in enumerate(lines, done + 1):
                fields = line.partition("#")[0].split()
                if not fields:
                    continue
                try:
                    y.append(float(fields[0]))
                    for field in fields[1:]:
                        index, _, value = field.partition(":")
                        indices.append(int(index) - (not zero_based))
                        values.append(float(value))
                except ValueError:
                    raise _bad_line(path, number, line) from None
                if any(not 0 <= i < np.iinfo(np.int32).max for i in indices[ends[-1] :]):
                    raise _bad_line(path, number, line)
                ends.append(len(indices))
            done += len(lines)
            width = max(width, max(indices, default=0) + 1)
            arrays: tuple[Any, ...] = np.array(values), np.array(indices, np.int32), np.array(ends)
            yield sp.csr_array(arrays, shape=(len(y), width)), np.array(y)


def _bad_line(path: Any, number: int, line: str) -> ValueError:
    return ValueError(
        f"{path}, line {number} is not 'target index:value ...' with indices from 1 (or from 0 "
        f"with zero_based=True): {line[:60]!r}"
    )
