"""Batches of rows in any of the supported formats, as plain arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.matrix import as_csr
from fastpoly.rows.categories import Categories
from fastpoly.rows.manifest import level_dtype


class Table:
    """The names of the columns that become X, y and the weights.

    Parameters
    ----------
    one_hot, numeric : sequence of str
    target : str
    weight : str or None
    """

    def __init__(
        self, one_hot: Sequence[str], numeric: Sequence[str], target: str, weight: str | None
    ) -> None:
        for name, names in (("one_hot", one_hot), ("numeric", numeric)):
            if isinstance(names, str) or not all(isinstance(n, str) for n in names):
                raise TypeError(f"{name} must be a list of column names, got {names!r}")
        self.one_hot, self.numeric = list(one_hot), list(numeric)
        self.target, self.weight = target, weight
        every = [*self.one_hot, *self.numeric, target, *([weight] if weight else [])]
        if len(set(every)) < len(every):
            raise ValueError(f"a column is named twice: {every}")
        if not self.one_hot and not self.numeric:
            raise ValueError("name at least one column in one_hot or numeric")
        self.categories = [Categories(name) for name in self.one_hot]

    def arrays(self, batch: Any) -> dict[str, Any]:
        """The arrays of a batch, as far as they exist: codes (n, p), x (n, q), y and w."""
        arrays = {}
        if self.one_hot:
            codes = [c.encode(column(batch, c.name)) for c in self.categories]
            arrays["codes"] = np.column_stack(codes)
        if self.numeric:
            arrays["x"] = np.column_stack([numbers(batch, name) for name in self.numeric])
        arrays["y"] = column(batch, self.target)
        if self.weight:
            arrays["w"] = numbers(batch, self.weight)
        return arrays


def column(batch: Any, name: str) -> Any:
    """A column of a table: an Arrow column as it is, any other as an array."""
    arrow = hasattr(batch, "num_rows")  # a table or a batch; else a data frame or a mapping
    names = batch.schema.names if arrow else getattr(batch, "columns", ())
    if list(names).count(name) > 1:
        raise ValueError(f"a batch has more than one column {name!r}; rename or drop one")
    try:
        found = batch.column(name) if arrow else batch[name]
    except (KeyError, LookupError, TypeError) as error:
        raise ValueError(
            f"a batch has no column {name!r} ({type(batch).__name__}: {error}); give data frames, "
            "Arrow batches, or pairs (X, y)"
        ) from None
    if hasattr(found, "dictionary_encode"):
        return found
    return found.to_numpy() if hasattr(found, "to_numpy") else np.asarray(found)


def values(batch: Any, name: str) -> NDArray:
    """A column of a table as an array."""
    found = column(batch, name)
    if hasattr(found, "dictionary_encode"):
        chunked = hasattr(found, "chunks")
        found = found.to_numpy() if chunked else found.to_numpy(zero_copy_only=False)
    return np.asarray(found)


def numbers(batch: Any, name: str) -> NDArray[np.float64]:
    """A column of finite numbers."""
    found = values(batch, name)
    if found.ndim != 1:
        raise ValueError(f"column {name!r} must be 1-D, got shape {found.shape}")
    if not len(found):  # an empty column may have any dtype
        return np.empty(0)
    if found.dtype.kind not in "buif":
        raise TypeError(f"column {name!r} must hold numbers, got {found.dtype}")
    found = found.astype(np.float64, copy=False)
    if not np.isfinite(found).all():
        raise ValueError(f"column {name!r} has NaN, infinity or missing values; fill or drop them")
    return found


def pair_arrays(batch: tuple[Any, ...]) -> dict[str, Any]:
    """The arrays of a batch (X, y) or (X, y, w): x or csr, then y and w."""
    if len(batch) not in (2, 3):
        raise ValueError(f"a batch must be (X, y) or (X, y, weights), got {len(batch)} items")
    X, *rest = batch
    if sp.issparse(X):
        X = as_csr(X)
        X = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape, copy=True)
        X.sum_duplicates()
        arrays: dict[str, Any] = {"csr": X}
        values = X.data
    else:
        X = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
        if X.ndim != 2:
            raise ValueError(f"X of a batch must be 2-D, got shape {X.shape}")
        arrays = {"x": X}
        values = X
    if values.dtype.kind not in "buif":
        raise TypeError(f"X of a batch must hold numbers, got {values.dtype}")
    if not np.isfinite(values).all():
        raise ValueError("X of a batch contains NaN or infinity; remove or impute these entries")
    arrays["y"] = np.asarray(rest[0])
    if len(rest) == 2:
        arrays["w"] = np.asarray(rest[1], dtype=np.float64)
    return arrays


class Finished(NamedTuple):
    """The kind of the targets and their classes; see `Targets.finish`."""

    kind: str
    classes: list[Any]
    n_targets: int
    places: NDArray[np.int32] | None


class Targets:
    """Collects targets: they are levels while there are few different ones, else numbers."""

    def __init__(self, name: str) -> None:
        self.categories = Categories(name)
        self.name, self.numbers, self.width = name, False, 0
        self.levels: NDArray | None = np.empty(0)

    def encode(self, y: Any) -> NDArray:
        """Provisional level numbers (n,), or targets as float64 (n, m)."""
        shape = getattr(y, "shape", (len(y),))  # Arrow columns have none
        if len(shape) not in (1, 2) or not shape[-1]:
            raise ValueError(f"target {self.name!r} must be (n,) or (n, m), got shape {shape}")
        if not hasattr(y, "dictionary_encode") and np.asarray(y).dtype.kind != "f":
            y = np.asarray(y)
            if y.ndim == 2 and y.shape[1] > 1:
                return self._real(y.astype(np.float64))
            y = y.reshape(-1)
        elif hasattr(y, "dictionary_encode") and str(y.type) in ("float", "double", "halffloat"):
            y = numbers({self.name: y}, self.name)
        if hasattr(y, "dictionary_encode") or y.dtype.kind != "f":
            if self.numbers:
                raise ValueError(f"target {self.name!r} changes between numbers and levels")
            return self.categories.encode(y)
        return self._real(y)

    def _real(self, y: NDArray) -> NDArray[np.float64]:
        y = (y[:, None] if y.ndim == 1 else y).astype(np.float64, copy=False)
        if not np.isfinite(y).all():
            raise ValueError(f"target {self.name!r} has NaN, infinity or missing values")
        if len(self.categories) or (self.numbers and y.shape[1] != self.width):
            raise ValueError(f"target {self.name!r} is not the same in all batches")
        self.numbers, self.width = True, y.shape[1]
        if self.width > 1:
            self.levels = None
        if self.levels is not None:
            self.levels = np.union1d(self.levels, y)
            if level_dtype(len(self.levels)) != np.uint8:  # too many to be levels
                self.levels = None
        return y

    def finish(self) -> Finished:
        """The kind of the targets, and the final place of each provisional number."""
        if self.numbers and self.levels is None:
            return Finished("real", [], self.width, None)
        if self.numbers:
            return Finished("levels", self.levels.tolist(), 1, None)
        values, places = self.categories.finish()
        return Finished("levels", values.tolist(), 1, places)
