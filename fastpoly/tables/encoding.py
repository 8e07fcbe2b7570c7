"""Encoding: what was learned of a frame, so that its rows become codes with tables.

    P (n x L) one-hot codes, a block of columns per field;  B (L x d) block diagonal, a table each

An encoding holds plain arrays. It pickles, and `arrays` writes it without pickle:

form         str, scalar        what rows become, one of `FORMS`
names        uint8              the names of the F columns, JSON
kinds        str (F,)           "number", "levels:text", "list:integer", ...
missing      bool (F,)          whether gaps occurred
sizes        int64 (F,)         the number of levels, or of edges
texts        uint8              all levels that are texts, JSON
integers     int64              all levels that are integers or bools
floats       float64            levels that are floats; edges, values and units of numbers
frequencies  float64 (L,)
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.matrix import StoredRows
from fastpoly.state import Floats
from fastpoly.tables.fields import SHAPES, SORTS, Levels, Number
from fastpoly.tables.frames import Column, read_columns

FORMS = ("codes", "plain", "matrix", "hinges")
MOST_DENSE = 256  # plain columns, up to which dense rows are faster


class Encoding:
    """Fields of a frame, in the order of its columns, and the shares (L,) of rows with each code.

    `form` is what `rows` makes of a frame: codes, or plain columns, where numbers are in plain
    units ("plain"), in soft units ("matrix"), or have hinges, too.
    """

    def __init__(
        self, fields: Sequence[Levels | Number], frequencies: Floats, form: str = "codes"
    ) -> None:
        if form not in FORMS:
            raise ValueError(f"form must be one of {FORMS}, got {form!r}")
        self.frequencies, self.form = frequencies, form
        self.offsets = np.concatenate([[0], np.cumsum([f.size for f in fields])]).astype(int)
        places = zip(fields, pairwise(self.offsets.tolist()), strict=True)
        self.fields = tuple(replace(f, shares=frequencies[i:j]) for f, (i, j) in places)

    @classmethod
    def learn(cls, frame: Any, *, min_count: int = 2) -> tuple[Self, Any]:
        """The encoding of a frame, and its rows as codes (see `codes`).

        Levels of fewer than `min_count` rows are one level, which is also that of unseen ones:
        levels that occur once tell best what those do that have not occurred.
        """
        columns = read_columns(frame)
        if not next(iter(columns.values())).size:
            raise ValueError("the frame has no rows")
        fields = [
            (Number if column.kind == "number" else Levels).learn(column, min_count)
            for column in columns.values()
        ]
        size = sum(field.size for field in fields)
        codes = cls(fields, np.zeros(size))._codes(columns)
        self = cls(fields, np.bincount(codes.indices.ravel(), minlength=size) / codes.shape[0])
        constant = [field.name for field in self.fields if (field.shares % 1 == 0).all()]
        if constant:
            warnings.warn(
                f"these columns say nothing, because they are constant, missing in all rows, or "
                f"different in every row: {constant[:10]}; leave them out",
                UserWarning,
                stacklevel=3,
            )
        return self, codes

    @property
    def names(self) -> list[str]:
        """The columns of the frame."""
        return [field.name for field in self.fields]

    @property
    def n_codes(self) -> int:
        """L, the number of codes of all fields."""
        return int(self.offsets[-1])

    def __repr__(self) -> str:
        lines = [f"  {field!r}" for field in self.fields[:30]]
        lines += [f"  ... {len(self.fields) - 30} more"] * (len(self.fields) > 30)
        return "\n".join([f"Encoding({self.form}, {len(self.fields)} fields)", *lines])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        mine, others = self.arrays(), other.arrays()
        return all(np.array_equal(mine[name], others[name]) for name in mine)

    __hash__ = None

    def same_codes(self, other: Self) -> bool:
        """Whether codes mean the same in another encoding, whatever their frequencies."""
        return type(self)(other.fields, self.frequencies, self.form) == self

    def as_form(self, form: str) -> Self:
        """The same encoding, with rows in another form."""
        return type(self)(self.fields, self.frequencies, form)

    # --- rows of frames ---

    def columns(self, frame: Any) -> dict[str, Column]:
        """The columns of a frame by name; ValueError unless they are those of the encoding."""
        found = read_columns(frame)
        lacking = [name for name in self.names if name not in found]
        extra = sorted(found.keys() - set(self.names))
        if lacking or extra:
            told = [f"lacks the columns {lacking[:10]}"] * bool(lacking)
            told += [f"has the unknown columns {extra[:10]}"] * bool(extra)
            raise ValueError(f"the frame {' and '.join(told)}; give it the columns of the training")
        return found

    def rows(self, frame: Any) -> Any:
        """The rows of a frame in the form of this encoding: `codes` or `matrix`."""
        return self.codes(frame) if self.form == "codes" else self.matrix(frame)

    def codes(self, frame: Any) -> Any:
        """Rows as one-hot codes, (n, L).

        StoredRows with indices (n, F), one for each field in the order of `fields`; a csr_array
        where a field is a list, which may have several or none.
        """
        return self._codes(self.columns(frame))

    def _codes(self, columns: dict[str, Column]) -> Any:
        if any(field.kind == "list" for field in self.fields):
            return sp.hstack([f.features(columns[f.name], "codes") for f in self.fields], "csr")
        n = next(iter(columns.values())).size
        indices = np.empty((n, len(self.fields)), np.int32)
        for j, (field, first) in enumerate(zip(self.fields, self.offsets, strict=False)):
            indices[:, j] = field.codes(columns[field.name])
            indices[:, j] += first
        return StoredRows((n, self.n_codes), indices)

    def matrix(self, frame: Any, dense: bool | None = None) -> Any:
        """Plain columns, (n, d): numbers in plain or soft units, levels as 0 and 1.

        A missing number is its column's center, with an indicator where gaps occurred in training.
        The form "hinges" adds hinges to each number. An array if `dense`, by default where d is at
        most `MOST_DENSE`; else a csr_array.
        """
        columns = self.columns(frame)
        blocks = [field.features(columns[field.name], self.form) for field in self.fields]
        if len(self.fields_of_columns) <= MOST_DENSE if dense is None else dense:
            return np.hstack([b.toarray() if sp.issparse(b) else b for b in blocks])
        return sp.hstack([sp.csr_array(b) for b in blocks], "csr")

    def is_narrow(self, n: int) -> bool:
        """Whether n rows as plain columns are dense, and of at most 80 MB."""
        d = sum(field.width("plain") for field in self.fields)
        return d <= MOST_DENSE and n * d <= 10_000_000

    def tables(self, shape: str | None = None) -> list[Floats]:
        """The table of each field: the units of levels, (L_f,), or the columns of bins, (L_f, d_f).

        A number's table holds beside its value hinges, or hinges and steps at all edges.
        """
        if shape not in SHAPES:
            raise ValueError(f"shape must be one of {SHAPES}, got {shape!r}")
        return [field.table(shape) for field in self.fields]

    # --- the columns of rows ---

    @property
    def column_names(self) -> "ColumnNames":
        """The names of the columns of `rows`, such as "city=Oslo" and "30 < age <= 35"."""
        return ColumnNames(self)

    @property
    def fields_of_columns(self) -> NDArray[np.intp]:
        """The position of the field of each column of `rows`, (d,)."""
        return np.repeat(np.arange(len(self.fields)), [f.width(self.form) for f in self.fields])

    @property
    def exclusive(self) -> NDArray[np.intp]:
        """The field of each column of `rows`, (d,); -1 where a row may have several of them."""
        kinds = ("levels", "number") if self.form == "codes" else ("levels",)
        at, alone = self.fields_of_columns, np.array([f.kind in kinds for f in self.fields])
        return np.where(alone[at], at, -1)

    @property
    def unit_fields(self) -> NDArray[np.intp]:
        """The field of each plain column, (d,), for units; -1 for numbers and -2 for their gaps."""
        found = self.fields_of_columns
        for i, field in enumerate(self.fields):
            if isinstance(field, Number):
                own = np.flatnonzero(found == i)
                found[own], found[own[len(own) - field.missing :]] = -1, -2
        return found

    # --- files ---

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays that hold the encoding."""
        kinds, sizes = [], []
        pools: dict[str, list[Any]] = {"text": [], "integer": [], "float": []}
        for field in self.fields:
            if isinstance(field, Number):
                kind, own = "number", field.edges
                pools["float"] += [field.edges, field.values, field.units]
            else:
                sort, own = SORTS[field.values.dtype.kind], field.values
                kind = f"{field.kind}:{sort}"
                pools["integer" if sort == "bool" else sort].append(own)
            kinds.append(kind)
            sizes.append(len(own))
        return {
            "form": np.array(self.form),
            "names": _json(self.names),
            "kinds": np.array(kinds),
            "missing": np.array([field.missing for field in self.fields]),
            "sizes": np.array(sizes, np.int64),
            "texts": _json([text for own in pools["text"] for text in own.tolist()]),
            "integers": np.concatenate([np.empty(0, np.int64), *pools["integer"]]),
            "floats": np.concatenate([np.empty(0), *pools["float"]]),
            "frequencies": self.frequencies,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoding of `arrays`; ValueError where they are not those of one.

        They are not trusted: what they give must be in order, and have these arrays.
        """
        try:
            found = cls._read(**arrays)
            own = found.arrays()
        except (KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"these arrays are not those of an encoding: {error}") from error
        for name, array in arrays.items():
            if array.dtype != own[name].dtype or not np.array_equal(array, own[name]):
                raise ValueError(f"{name} does not fit the other arrays of an encoding")
        return found

    @classmethod
    def _read(
        cls, form: NDArray, names: NDArray, kinds: NDArray, missing: NDArray, sizes: NDArray,
        texts: NDArray, integers: NDArray, floats: NDArray, frequencies: NDArray,
    ) -> Self:  # fmt: skip
        """The encoding of its arrays, whose lengths may still be wrong."""
        left = {"text": np.array(_texts(texts), object), "integer": integers, "float": floats}

        def take(sort: str, size: int) -> NDArray[Any]:
            found, left[sort] = left[sort][:size], left[sort][size:]
            return found

        kind_names = map(str, kinds.tolist())
        columns = zip(_texts(names), kind_names, missing.tolist(), sizes.tolist(), strict=False)
        fields: list[Levels | Number] = []
        for name, kind, gaps, size in columns:
            if kind == "number":
                own = take("float", size), take("float", size + 1), take("float", 4)
                fields.append(Number(name, *own, bool(gaps)))
            else:
                kind, _, sort = kind.partition(":")
                values = take("integer", size).astype(bool) if sort == "bool" else take(sort, size)
                fields.append(Levels(name, values, bool(gaps), kind))
            fields[-1].check()
        if not fields or len({field.name for field in fields}) < len(fields):
            raise ValueError("its names must be distinct, and at least one")
        size, p = sum(field.size for field in fields), frequencies
        if p.shape != (size,) or p.dtype != float or not ((p >= 0) & (p <= 1)).all():
            raise ValueError("its frequencies must be shares, one for each code")
        if not np.isfinite(floats).all():
            raise ValueError("its floats must be finite")
        return cls(fields, p, str(form))


class ColumnNames(Sequence[str]):
    """The names of columns, made when they are asked for: there may be millions."""

    def __init__(self, encoding: Encoding) -> None:
        self.fields, self.form = encoding.fields, encoding.form
        widths = [field.width(self.form) for field in self.fields]
        self.firsts, self.size = np.cumsum(widths) - widths, sum(widths)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, j: Any) -> Any:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(len(self)))]
        if not -len(self) <= j < len(self):
            raise IndexError(f"there are {len(self)} columns, and no {j}")
        at = int(np.searchsorted(self.firsts, j % len(self), "right")) - 1
        name = self.fields[at].column_name(int(j % len(self) - self.firsts[at]), self.form)
        return name.replace("\0", "\\0")  # which the names of a model cannot hold


def _json(texts: list[str]) -> NDArray[np.uint8]:
    # JSON keeps NUL and halves of surrogate pairs, which NumPy's own texts and UTF-8 lose.
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


def _texts(stored: NDArray[np.uint8]) -> list[str]:
    found = json.loads(stored.tobytes())
    if type(found) is not list or not all(type(text) is str for text in found):
        raise ValueError("its names and texts must be lists of texts in JSON")
    return found
