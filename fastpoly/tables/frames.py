"""Columns of a frame: pandas, polars and Arrow through narwhals, mappings of arrays, 2-D arrays.

A column is read as numbers (NaN where one is missing), as levels (a code for each row, -1 where it
is missing, and the distinct values), or as lists of levels. What cannot be read is refused with the
name of the column and the cure.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from fastpoly.kernels.checks import shown

# What Python values are; bool comes first, because it is also an int.
_SORTS = {
    "bool": (bool, np.bool_),
    "text": (str,),
    "number": (int, float, np.integer, np.floating, Decimal),
    "list": (list, tuple, set, frozenset, np.ndarray),
}


class Distinct(NamedTuple):
    """Levels of rows: codes (n,), -1 where missing, of values (q,): texts (object), or numbers."""

    codes: NDArray[np.integer]
    values: NDArray[Any]


class Column:
    """One column of a frame, of kind "levels", "number" or "list".

    `data` is an array, a list, or a series of narwhals.
    """

    def __init__(self, name: str, data: Any, kind: str) -> None:
        self.name, self.data, self.kind, self.size = name, data, kind, len(data)

    def to_list(self) -> list[Any]:
        """The values as Python objects."""
        if isinstance(self.data, list):
            return self.data
        return self.data.tolist() if isinstance(self.data, np.ndarray) else self.data.to_list()

    def numbers(self) -> NDArray[np.float64]:
        """The values as float64, (n,), NaN where one is missing."""
        data = self.data
        if self.kind == "number":
            if isinstance(data, list):
                data = [np.nan if _is_missing(v) else v for v in data]
            elif not isinstance(data, np.ndarray):
                data = data.cast(narwhals().Float64).to_numpy()
            found = np.asarray(data, np.float64)
            if np.isinf(found).any():
                row = int(np.argmax(np.isinf(found)))
                raise self.error(f"is infinite in row {row}; replace it by a number or a gap")
            return found
        levels = self.distinct() if self.kind == "levels" else None
        if levels is None or (levels.values.dtype == object and len(levels.values)):
            raise self.error(f"must hold numbers, got {self.example()}; convert it")
        return np.append(levels.values.astype(np.float64), np.nan)[levels.codes]

    def distinct(self) -> Distinct:
        """The level of each row, and the distinct levels in any order (some may not occur)."""
        data = self.data
        if self.kind == "list":
            raise self.error(f"must hold single values, got {self.example()}; convert it")
        if self.kind == "number" and not holds_integers(data):
            data = self.numbers()
        if isinstance(data, np.ndarray) and data.dtype.kind in "iubf":
            values, codes = np.unique(data, return_inverse=True)
            return self._as_levels(codes, values.tolist())
        if isinstance(data, (list, np.ndarray)):
            return self._as_levels(*_number(self.to_list()))
        return self._as_levels(*_factorized(data))

    def lists(self) -> tuple[NDArray[np.int64], Distinct]:
        """Where the items of each row begin, (n + 1,), and the items; -1 for a missing list."""
        if self.kind != "list":
            found = self.distinct()
            if (found.codes >= 0).any():
                raise self.error(f"must hold lists, got {self.example()}; put it into lists")
            return np.arange(self.size + 1), found
        rows = [(None,) if _is_missing(row) else row for row in self.to_list()]
        begins = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        flat = list(chain.from_iterable(rows))
        if any(isinstance(item, (list, dict, set, np.ndarray)) for item in flat):
            raise _mixed(self.name, flat)
        return begins, self._as_levels(*_number(flat))

    def _as_levels(self, codes: Any, values: Any) -> Distinct:
        """Levels of one type: texts in an object array, bool, int64 or float64."""
        codes, values = np.asarray(codes), list(values)
        examples = dict(zip(map(type, values), values, strict=True)).values()
        types = {type(v.item() if isinstance(v, np.generic) else v) for v in examples}
        if types <= {str}:
            found = np.empty(len(values), object)
            found[:] = list(map(str, values))
        elif types <= {bool} or types <= {int, float}:
            try:
                wanted = float if float in types else bool if bool in types else np.int64
                found = np.array(values, wanted)
            except (OverflowError, ValueError):
                raise self.error("has integers of 2**63 or more; convert it") from None
            if found.dtype.kind == "f" and (gaps := np.isnan(found)).any():
                codes = np.append(np.where(gaps, -1, np.cumsum(~gaps) - 1), -1)[codes]
                found = found[~gaps]
        else:
            raise _mixed(self.name, values)
        return Distinct(codes, found)

    def example(self) -> str:
        """A value of the column for messages."""
        return shown(next((v for v in self.to_list() if not _is_missing(v)), None))

    def error(self, problem: str) -> ValueError:
        return ValueError(f"column {self.name!r} {problem}")


def narwhals() -> Any:
    """The stable interface of narwhals, which is imported when a frame comes."""
    import narwhals.stable.v2 as nw

    return nw


def is_frame(X: Any) -> bool:
    """Whether X is a frame of named columns rather than a matrix."""
    if isinstance(X, (Mapping, np.ndarray)):
        return isinstance(X, Mapping) and not issparse(X)  # a dok_array is both
    return hasattr(X, "columns") or hasattr(X, "column_names")


def names_of(frame: Any) -> list[Any]:
    """The names of the columns of a frame, as they are."""
    if isinstance(frame, Mapping):
        return list(frame)
    names = getattr(frame, "column_names", None)  # of Arrow; else it may be a column
    return list(names if isinstance(names, list) else frame.columns)


def read_columns(frame: Any) -> dict[str, Column]:
    """The columns of a frame, or of a 2-D array (named x0, x1, ...), by name."""
    if isinstance(frame, dict) and all(isinstance(value, Column) for value in frame.values()):
        return frame  # it was read before
    if not is_frame(frame):
        X = np.asarray(frame)
        if X.ndim != 2:
            raise ValueError(f"X must be a frame or a 2-D array, got shape {X.shape}")
        frame = {f"x{j}": x for j, x in enumerate(X.T)}
    names = list(map(str, names_of(frame)))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"there are two columns {twice[0]!r}; rename or drop one")
    if not names:
        raise ValueError("the frame has no columns")
    data = frame.values() if isinstance(frame, Mapping) else _series_of(frame)
    found = {name: _column(name, values) for name, values in zip(names, data, strict=True)}
    sizes = {name: column.size for name, column in found.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the columns have different numbers of rows: {sizes}")
    return found


def _series_of(frame: Any) -> Any:
    """The columns of a frame of pandas, polars or Arrow, as series of narwhals."""
    if type(frame).__name__ == "RecordBatch":
        frame = sys.modules["pyarrow"].Table.from_batches([frame])
    try:
        return narwhals().from_native(frame, eager_only=True).iter_columns()
    except TypeError:
        raise TypeError(
            f"X is a {type(frame).__name__}; give a pandas or polars DataFrame (collect a lazy "
            "one), an Arrow table, or a mapping of names to arrays"
        ) from None


def _column(name: str, values: Any) -> Column:
    """A column by its dtype; by its values, if these are Python objects or nothing but gaps."""
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):  # a series
        nw = narwhals()
        series = nw.from_native(values, series_only=True)
        dtype = series.dtype
        if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Boolean):
            return Column(name, series, "levels")
        if dtype.is_numeric() or dtype in (nw.List, nw.Array):
            return Column(name, series, "number" if dtype.is_numeric() else "list")
        if dtype not in (nw.Object, nw.Unknown):
            raise _refusal(name, dtype.is_temporal(), str(dtype))
        values = series.to_list()
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise ValueError(f"column {name!r} must be a 1-D array or a list, got {shown(values)}")
    if isinstance(values, np.ma.MaskedArray):
        values = [None if v is np.ma.masked else v for v in values.tolist()]
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"column {name!r} must be a 1-D array, got shape {values.shape}")
        kind = values.dtype.kind
        if kind in "iufbUT":
            return Column(name, values, "number" if kind in "iuf" else "levels")
        if kind != "O":
            raise _refusal(name, kind in "mM", str(values.dtype))
    values = list(values)
    return Column(name, values, _kind_of(name, values))


def _kind_of(name: str, values: list[Any]) -> str:
    """What Python values are read as; all but the missing ones must be of one sort."""
    examples = {type(v): v for v in values if not _is_missing(v)}
    sorts = {}
    for kind, example in examples.items():
        sort = next((sort for sort, kinds in _SORTS.items() if issubclass(kind, kinds)), None)
        if sort is None:
            is_time = hasattr(example, "isoformat") or "time" in kind.__name__
            raise _refusal(name, is_time, kind.__name__)
        sorts[sort] = example
    if len(sorts) > 1:
        raise _mixed(name, sorts.values())
    (sort,) = sorts or {"number" if any(v is not None for v in values) else "text": None}
    return sort if sort in ("number", "list") else "levels"


def _mixed(name: str, values: Any) -> ValueError:
    """The error for values of several types, or of one that is no level."""
    examples = {type(v): shown(v) for v in values if not _is_missing(v)}
    verb = "mixes types" if len(examples) > 1 else "has values that are no levels"
    what = ", ".join(list(examples.values())[:3])
    return ValueError(f"column {name!r} {verb}: {what}; convert it to texts or to numbers")


def _refusal(name: str, is_time: bool, kind: str) -> ValueError:
    what, cure = f"values of type {kind}", "columns of numbers or texts of it"
    if is_time:
        what = f"dates or times ({kind})"
        cure = "numbers or levels of it, such as the year, the month, the weekday or the days since"
        cure += " an event"
    return ValueError(f"column {name!r} holds {what}; make {cure}, or leave it out")


def holds_integers(data: Any) -> bool:
    """Whether a column of numbers holds integers, which floats may not tell apart."""
    if isinstance(data, np.ndarray):
        return data.dtype.kind in "iu"
    if isinstance(data, list):
        return all(isinstance(v, (int, np.integer)) or _is_missing(v) for v in data)
    return data.dtype.is_integer()


def _is_missing(value: Any) -> bool:
    """None, NaN, and the missing values of pandas."""
    if value is None or isinstance(value, (float, np.floating)):
        return value is None or value != value
    return type(value).__name__ in ("NAType", "NaTType")


def _number(values: list[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Python values as codes in the order in which they come, -1 for missing ones."""
    known: dict[Any, int] = {}
    codes = [-1 if _is_missing(v) else known.setdefault(v, len(known)) for v in values]
    return np.array(codes, np.int64), list(known)


def _factorized(series: Any) -> tuple[Any, Any]:
    """Codes of a series, -1 for missing values, and the values, by the library that holds it."""
    native = series.to_native()
    if hasattr(native, "factorize"):  # pandas
        return native.factorize()
    if hasattr(native, "dictionary_encode"):  # Arrow
        native = native.unify_dictionaries().combine_chunks().dictionary_encode()
        native = native.combine_chunks() if hasattr(native, "combine_chunks") else native
        codes = native.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes, native.dictionary.to_pylist()
    if series.dtype in (narwhals().Categorical, narwhals().Enum):
        native = series.cast(narwhals().String).to_native()
    values = native.drop_nulls().unique()  # polars
    codes = native.replace_strict(values, np.arange(len(values), dtype=np.int32), default=-1)
    return codes.to_numpy(), values.to_list()
