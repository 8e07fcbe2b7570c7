"""The categories of a column: numbered as they come in, sorted at the end."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES


class Categories:
    """The distinct values of a column.

    Parameters
    ----------
    name : str
        The name of the column, for error messages.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.categories import Categories
    >>> categories = Categories("color")
    >>> codes = categories.encode(np.array(["red", "blue", "red"]))
    >>> values, places = categories.finish()
    >>> values, places[codes]
    (array(['blue', 'red'], dtype='<U4'), array([1, 0, 1], dtype=int32))
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: dict[Any, int] = {}
        self.kind = ""
        self.low = 0
        self.table: NDArray[np.int32] | None = np.empty(0, np.int32)  # None: ids are far apart

    def __len__(self) -> int:
        return len(self.known)

    def encode(self, column: Any) -> NDArray[np.int32]:
        """Provisional numbers of these values, (n,)."""
        if hasattr(column, "dictionary_encode"):
            return self._encode_arrow(column)
        column = np.asarray(column)
        if column.ndim != 1:
            raise ValueError(f"column {self.name!r} must be 1-D, got shape {column.shape}")
        if not len(column):
            return np.empty(0, np.int32)
        if column.dtype.kind in "buif":
            column = exact_numbers(column, self.name)
            self._check_kind(column.dtype.kind)
            if column.dtype.kind == "i":
                return self._encode_integers(column)
            values, inverse = np.unique(column, return_inverse=True)
            return self._numbers(values.tolist())[inverse]
        self._check_kind("U")
        before = len(self)
        codes = self._numbers(column.tolist())
        check_texts(islice(reversed(self.known), len(self) - before), self.name)
        return codes

    def _encode_arrow(self, column: Any) -> NDArray[np.int32]:
        """Encode an Arrow column; Arrow finds the distinct values itself."""
        if column.null_count:
            raise _missing(self.name)
        encoded = column if hasattr(column, "indices") else column.dictionary_encode()
        if hasattr(encoded, "combine_chunks"):
            encoded = encoded.unify_dictionaries().combine_chunks()
            if hasattr(encoded, "chunks"):  # there is one chunk, or none
                if not encoded.num_chunks:
                    return np.empty(0, np.int32)
                encoded = encoded.chunk(0)
        values = np.asarray(encoded.dictionary.to_numpy(zero_copy_only=False))
        return self.encode(values)[encoded.indices.to_numpy(zero_copy_only=False)]

    def _encode_integers(self, column: NDArray[np.int64]) -> NDArray[np.int32]:
        """Encode integers; within a short range a lookup table replaces sorting."""
        low, high = int(column.min()), int(column.max())
        if self.table is not None and len(self.table):
            low, high = min(low, self.low), max(high, self.low + len(self.table) - 1)
        if self.table is None or high - low >= BLOCK_DOUBLES:
            self.table = None  # for good: a later table could not hold all known ids
            values, inverse = np.unique(column, return_inverse=True)
            return self._numbers(values.tolist())[inverse]
        if high - low >= len(self.table):
            size = min(BLOCK_DOUBLES, max(high - low + 1, 2 * len(self.table)))
            self.low, self.table = low, np.full(size, -1, np.int32)
            for value, code in self.known.items():
                self.table[value - low] = code
        codes = self.table[column - self.low]
        new = codes < 0
        if new.any():
            values = np.unique(column[new])
            self.table[values - self.low] = self._numbers(values.tolist())
            codes = self.table[column - self.low]
        return codes

    def _numbers(self, values: list[Any]) -> NDArray[np.int32]:
        known = self.known
        return np.array([known.setdefault(v, len(known)) for v in values], np.int32)

    def _check_kind(self, kind: str) -> None:
        if self.kind not in ("", kind):
            raise ValueError(f"column {self.name!r} mixes numbers and strings; convert it to one")
        self.kind = kind

    def finish(self) -> tuple[NDArray, NDArray[np.int32]]:
        """The sorted values, and the place of each provisional number among them."""
        dtype = {"i": np.int64, "f": np.float64}.get(self.kind)
        values = np.array(list(self.known), dtype)
        order = np.argsort(values, kind="stable")
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return values[order], places


def exact_numbers(column: NDArray, name: str) -> NDArray:
    """Numbers as int64 or float64; ValueError where that would lose a digit, or one is missing."""
    if column.dtype.kind == "f":
        if np.isnan(column).any():
            raise _missing(name)
        if (np.abs(column) >= 2.0**53).any():  # from here on floats skip integers
            raise ValueError(
                f"column {name!r} has floats of 2**53 or more, which are not exact as categories; "
                "convert it to integers or strings"
            )
        return column.astype(np.float64, copy=False)
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        raise ValueError(f"column {name!r} has integers of 2**63 or more; convert it to strings")
    return column.astype(np.int64, copy=False)


def check_texts(values: Iterable[Any], name: str) -> None:
    """Raise unless all these values are strings."""
    for value in values:
        if isinstance(value, str):
            continue
        # The missing values of pandas are not equal to themselves, or refuse to be compared.
        if value is None or type(value).__name__ == "NAType" or value != value:
            raise _missing(name)
        raise TypeError(f"column {name!r} holds {value!r}; one-hot fields take numbers or strings")


def _missing(name: str) -> ValueError:
    return ValueError(f"column {name!r} has missing values; fill them or drop their rows")
