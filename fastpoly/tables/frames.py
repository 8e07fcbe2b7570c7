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


class Distinct(NamedTuple):
    """Levels of rows: codes (n,), -1 where missing, of values (q,): texts (object), or numbers."""

    codes: NDArray[np.integer]
    values: NDArray[Any]


class Column:
    """One column of a frame, of kind "levels", "number" or "list"."""

    def __init__(self, name: str, data: Any, kind: str) -> None:
        self.name, self.data, self.kind, self.size = name, data, kind, len(data)

    def numbers(self) -> NDArray[np.float64]:
        """The values as float64, (n,), NaN where one is missing."""
        data = self.data
        if self.kind != "number":
            codes, values = self.distinct() if self.kind == "levels" else (None, None)
            if values is None or (values.dtype == object and len(values)):
                raise self.error(f"must hold numbers, got {self.example()}; convert it")
            return np.append(values.astype(np.float64), np.nan)[codes]
        if isinstance(data, list):
            data = np.array([np.nan if _is_missing(v) else v for v in data], np.float64)
        elif not isinstance(data, np.ndarray):
            import narwhals.stable.v2 as nw

            if data.dtype not in (nw.Float64, nw.Float32):
                data = data.cast(nw.Float64)
            data = data.to_numpy()
        found = np.asarray(data, np.float64)
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise self.error(f"is infinite in row {row}; replace it by a number or a gap")
        return found

    def distinct(self) -> Distinct:
        """The level of each row, and the distinct levels in any order (some may not occur)."""
        data = self.data
        if self.kind == "list":
            raise self.error(f"must hold single values, got {self.example()}; convert it")
        if self.kind == "number" and not holds_integers(data):
            found = self.numbers()
            values, codes = np.unique(found, return_inverse=True, equal_nan=True)
            if len(values) and np.isnan(values[-1]):
                values, codes = values[:-1], np.where(codes == len(values) - 1, -1, codes)
            return Distinct(codes, values)
        if isinstance(data, np.ndarray) and data.dtype.kind in "iub":
            values, codes = np.unique(data, return_inverse=True)
            return self._as_levels(codes, values.tolist())
        if isinstance(data, (list, np.ndarray)):
            return self._as_levels(
                *_number(data.tolist() if isinstance(data, np.ndarray) else data)
            )
        native = data.to_native()
        if hasattr(native, "factorize"):  # pandas
            return self._as_levels(*native.factorize())
        if hasattr(native, "dictionary_encode"):  # Arrow
            native = native.unify_dictionaries().combine_chunks().dictionary_encode()
            native = native.combine_chunks() if hasattr(native, "combine_chunks") else native
            codes = native.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            return self._as_levels(codes, native.dictionary.to_pylist())
        if not hasattr(native, "replace_strict"):
            return self._as_levels(*_number(data.to_list()))
        import narwhals.stable.v2 as nw

        if data.dtype in (nw.Categorical, nw.Enum):  # polars
            native = data.cast(nw.String).to_native()
        values = native.drop_nulls().unique()
        new = np.arange(len(values), dtype=np.int32)
        codes = native.replace_strict(values, new, default=-1).to_numpy()
        return self._as_levels(codes, values.to_list())

    def lists(self) -> tuple[NDArray[np.int64], Distinct]:
        """Where the items of each row begin, (n + 1,), and the items; -1 for a missing list."""
        if self.kind != "list":
            found = self.distinct()
            if (found.codes >= 0).any():
                raise self.error(f"must hold lists, got {self.example()}; put it into lists")
            return np.arange(self.size + 1), found
        rows = self.data if isinstance(self.data, list) else self.data.to_list()
        rows = [(None,) if _is_missing(row) else row for row in rows]
        begins = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        flat = list(chain.from_iterable(rows))
        if any(isinstance(item, (list, dict, set, np.ndarray)) for item in flat):
            raise self.mixed(flat)
        return begins, self._as_levels(*_number(flat))

    def _as_levels(self, codes: NDArray, values: Any) -> Distinct:
        """Levels of one type: texts in an object array, bool, int64 or float64."""
        values = values if isinstance(values, list) else list(values)
        examples = dict(zip(map(type, values), values, strict=True)).values()
        types = {type(v.item() if isinstance(v, np.generic) else v) for v in examples}
        codes = np.asarray(codes)
        if types <= {str}:
            found = np.empty(len(values), object)
            found[:] = list(map(str, values))
        elif types <= {bool} or types <= {int, float}:
            try:
                wanted = float if float in types else bool if bool in types else np.int64
                found = np.array(values, wanted)
            except (OverflowError, ValueError):
                raise self.error("has integers of 2**63 or more; convert it") from None
            if found.dtype.kind == "f" and np.isnan(found).any():
                codes = np.where(np.isnan(found)[codes], -1, codes)
        else:
            raise self.mixed(values)
        return Distinct(codes, found)

    def example(self) -> str:
        """A value of the column for messages."""
        rows = self.data if isinstance(self.data, (list, np.ndarray)) else self.data.to_list()
        return shown(next((v for v in rows if not _is_missing(v)), None))

    def mixed(self, values: Any) -> ValueError:
        """The error for values of several types or of one that is no level."""
        examples = {type(v).__name__: v for v in values if not _is_missing(v)}
        what = ", ".join(shown(v) for v in list(examples.values())[:3])
        verb = "mixes types" if len(examples) > 1 else "has values that are no levels"
        return self.error(f"{verb}: {what}; convert it to texts or to numbers")

    def error(self, problem: str) -> ValueError:
        return ValueError(f"column {self.name!r} {problem}")


def is_frame(X: Any) -> bool:
    """Whether X is a frame of named columns rather than a matrix."""
    if isinstance(X, (Mapping, np.ndarray)):
        return isinstance(X, Mapping) and not issparse(X)  # a dok_array is both
    return hasattr(X, "columns") or hasattr(X, "column_names")


def read_columns(frame: Any) -> dict[str, Column]:
    """The columns of a frame, or of a 2-D array (named x0, x1, ...), by name."""
    if isinstance(frame, dict) and all(isinstance(value, Column) for value in frame.values()):
        return frame  # it was read before
    if not is_frame(frame):
        X = np.asarray(frame)
        if X.ndim != 2:
            raise ValueError(f"X must be a frame or a 2-D array, got shape {X.shape}")
        frame = {f"x{j}": x for j, x in enumerate(X.T)}
    if isinstance(frame, Mapping):
        names, data = list(frame), [_plain(name, v) for name, v in frame.items()]
    else:
        names, data = _narwhals_columns(frame)
    _check_names(names)
    texts = [str(name) for name in names]
    sizes = {name: len(values) for name, values in zip(texts, data, strict=True)}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the columns have different numbers of rows: {sizes}")
    return {
        name: Column(name, values, _kind(name, values))
        for name, values in zip(texts, data, strict=True)
    }


def _narwhals_columns(frame: Any) -> tuple[list[Any], list[Any]]:
    """The names and the columns of a frame of pandas, polars or Arrow."""
    import narwhals.stable.v2 as nw

    if type(frame).__name__ == "RecordBatch":
        frame = sys.modules["pyarrow"].Table.from_batches([frame])
    names = list(getattr(frame, "column_names", None) or frame.columns)
    _check_names(names)  # narwhals would not name the cure
    try:
        found = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise TypeError(
            f"X is a {type(frame).__name__}; give a pandas or polars DataFrame (collect a lazy "
            "one), an Arrow table, or a mapping of names to arrays"
        ) from None
    return names, [_opened(series) for series in found.iter_columns()]


def _opened(series: Any) -> Any:
    """A series of narwhals; a list, if it holds Python objects or nothing but gaps."""
    import narwhals.stable.v2 as nw

    return series.to_list() if series.dtype in (nw.Object, nw.Unknown) else series


def _check_names(names: list[Any]) -> None:
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if twice:
        raise ValueError(f"there are two columns {twice[0]!r}; rename or drop one")
    if not names:
        raise ValueError("the frame has no columns")


def _plain(name: Any, values: Any) -> Any:
    """A column of a mapping: an array of numbers, bools or NumPy's own texts, or a list."""
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):  # a series
        import narwhals.stable.v2 as nw

        return _opened(nw.from_native(values, series_only=True))
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise ValueError(f"column {name!r} must be a 1-D array or a list, got {shown(values)}")
    if isinstance(values, np.ma.MaskedArray):
        values = [None if v is np.ma.masked else v for v in values.tolist()]
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.ndim != 1:
        raise ValueError(f"column {name!r} must be a 1-D array, got shape {values.shape}")
    return values.tolist() if values.dtype.kind == "O" else values


def _kind(name: str, data: Any) -> str:
    """What a column is read as, by its dtype."""
    if isinstance(data, list):
        return _kind_of_values(name, data)
    if isinstance(data, np.ndarray):
        kind = data.dtype.kind
        if kind in "iufbUT":
            return "number" if kind in "iuf" else "levels"
        raise _refusal(name, kind in "mM", str(data.dtype))
    import narwhals.stable.v2 as nw

    dtype = data.dtype
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Boolean):
        return "levels"
    if dtype.is_numeric() or dtype in (nw.List, nw.Array):
        return "number" if dtype.is_numeric() else "list"
    raise _refusal(name, dtype.is_temporal(), str(dtype))


def _kind_of_values(name: str, values: list[Any]) -> str:
    """What Python values are read as; all but the missing ones must be of one sort."""
    sorts: dict[str, Any] = {}
    present = [v for v in values if not _is_missing(v)]
    for kind in {type(v) for v in present}:
        sort = next((sort for sort, kinds in _SORTS.items() if issubclass(kind, kinds)), None)
        example = next(v for v in present if type(v) is kind)
        if sort is None:
            is_time = hasattr(example, "isoformat") or "time" in kind.__name__
            raise _refusal(name, is_time, kind.__name__)
        sorts[sort] = example
    if len(sorts) > 1:
        what = ", ".join(shown(v) for v in sorts.values())
        raise ValueError(f"column {name!r} mixes types: {what}; convert it to texts or to numbers")
    (sort,) = sorts or {"number" if any(v is not None for v in values) else "text": None}
    return sort if sort in ("number", "list") else "levels"


_SORTS = {  # bool comes first, because it is also an int
    "bool": (bool, np.bool_),
    "text": (str,),
    "number": (int, float, np.integer, np.floating, Decimal),
    "list": (list, tuple, set, frozenset, np.ndarray),
}


def _refusal(name: str, is_time: bool, kind: str) -> ValueError:
    if is_time:
        return ValueError(
            f"column {name!r} holds dates or times ({kind}); make numbers or levels of it, such as "
            "the year, the month, the weekday or the days since an event, or leave it out"
        )
    return ValueError(
        f"column {name!r} holds values of type {kind}; make columns of numbers or texts of it, or "
        "leave it out"
    )


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
