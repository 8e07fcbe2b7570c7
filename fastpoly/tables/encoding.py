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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.kernels.matrix import StoredRows
from fastpoly.state import Floats
from fastpoly.tables.fields import MOST_BINS, SHAPES, Levels, Number, indicators
from fastpoly.tables.frames import Column, read_columns

FORMS = ("codes", "plain", "matrix", "hinges")
DTYPES = {
    "form": "U", "names": "|u1", "kinds": "U", "missing": "|b1", "sizes": "<i8", "texts": "|u1",
    "integers": "<i8", "floats": "<f8", "frequencies": "<f8",
}  # fmt: skip
MOST_DENSE = 256  # plain columns, up to which dense rows are faster
_TYPES = {"O": "text", "b": "bool", "i": "integer", "f": "float"}


class Encoding:
    """Fields of a frame, in the order of its columns, and the shares (L,) of rows with each code.

    `form` is what `rows` makes of a frame: codes, or plain columns, where numbers are in plain
    units ("plain"), in soft units ("matrix"), or have hinges, too.
    """

    def __init__(
        self, fields: Sequence[Levels | Number], frequencies: Floats, form: str = "codes"
    ) -> None:
        self.fields, self.frequencies, self.form = tuple(fields), frequencies, form
        self.offsets = np.concatenate([[0], np.cumsum([f.size for f in self.fields])]).astype(int)

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
        self = cls(fields, np.empty(0))
        codes = self._codes(columns)
        counts = np.bincount(codes.indices.ravel(), minlength=self.n_codes)
        self.frequencies = p = counts / codes.shape[0]
        constant = [f.name for f, first, last in self._parts() if (p[first:last] % 1 == 0).all()]
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

    @property
    def level_names(self) -> "CodeNames":
        """Names of the codes, such as "city=Oslo" and "30 < age <= 35"."""
        return CodeNames(self)

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
        return type(self)(self.fields, other.frequencies, other.form) == other

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays that hold the encoding."""
        kinds: list[str] = []
        texts: list[str] = []
        integers, floats, sizes = [np.empty(0, np.int64)], [np.empty(0)], []
        for field in self.fields:
            if isinstance(field, Number):
                kinds.append("number")
                sizes.append(len(field.edges))
                floats += [field.edges, field.values, field.units]
                continue
            sort = field.values.dtype.kind
            kinds.append(f"{field.kind}:{_TYPES[sort]}")
            sizes.append(len(field.values))
            if sort == "O":
                texts += field.values.tolist()
            else:
                (floats if sort == "f" else integers).append(field.values)
        return {
            "form": np.array(self.form),
            "names": _json([field.name for field in self.fields]),
            "kinds": np.array(kinds),
            "missing": np.array([field.missing for field in self.fields]),
            "sizes": np.array(sizes, np.int64),
            "texts": _json(texts),
            "integers": np.concatenate(integers).astype(np.int64),
            "floats": np.concatenate(floats),
            "frequencies": self.frequencies,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoding of `arrays`; ValueError where they are not those of one."""
        if arrays.keys() != DTYPES.keys():
            raise ValueError(f"an encoding has the arrays {sorted(DTYPES)}, got {sorted(arrays)}")
        for name, array in arrays.items():
            wanted = DTYPES[name]
            if (array.dtype.kind if wanted == "U" else array.dtype.str) != wanted:
                raise ValueError(f"{name} of an encoding must not have dtype {array.dtype}")
            if array.ndim != (name != "form"):
                raise ValueError(f"{name} of an encoding must not have shape {array.shape}")
        form, names = str(arrays["form"]), _texts(arrays["names"], "names")
        if form not in FORMS:
            raise ValueError(f"the form of an encoding must be one of {FORMS}, got {form!r}")
        count = len(names)
        if not count or len(set(names)) < count:
            raise ValueError("the names of an encoding must be distinct, and at least one")
        if any(len(arrays[name]) != count for name in ("kinds", "missing", "sizes")):
            raise ValueError(f"kinds, missing and sizes of an encoding must have {count} entries")
        texts = np.array(_texts(arrays["texts"], "texts"), object)
        left = {"text": texts, "integer": arrays["integers"], "float": arrays["floats"]}

        def take(sort: str, size: int) -> NDArray[Any]:
            if not 0 <= size <= len(left[sort]):
                raise ValueError("an encoding has fewer levels or edges than its sizes say")
            found, left[sort] = left[sort][:size], left[sort][size:]
            return found

        kinds, missing, sizes = (arrays[name].tolist() for name in ("kinds", "missing", "sizes"))
        fields: list[Levels | Number] = []
        for name, kind, gaps, size in zip(names, kinds, missing, sizes, strict=True):
            if kind == "number":
                own = take("float", size), take("float", size + 1), take("float", 4)
                fields.append(_number(name, *own, gaps))
                continue
            kind, _, sort = kind.partition(":")
            if kind not in ("levels", "list") or sort not in _TYPES.values():
                raise ValueError(f"column {name!r} has an unknown kind")
            values = take("integer" if sort == "bool" else sort, size)
            values = values.astype(bool) if sort == "bool" else values
            if not (values[1:] > values[:-1]).all() or (sort == "float" and not _finite(values)):
                raise ValueError(f"the levels of column {name!r} must increase")
            fields.append(Levels(name, values, gaps, kind))
        if any(map(len, left.values())):
            raise ValueError("an encoding has more levels than its sizes say")
        p = arrays["frequencies"]
        if len(p) != sum(field.size for field in fields) or not ((p >= 0) & (p <= 1)).all():
            raise ValueError("the frequencies of an encoding must be shares, one for each code")
        return cls(fields, p, form)

    def as_form(self, form: str) -> Self:
        """The same encoding, with rows in another form."""
        if form not in FORMS:
            raise ValueError(f"form must be one of {FORMS}, got {form!r}")
        return type(self)(self.fields, self.frequencies, form)

    def columns(self, frame: Any) -> dict[str, Column]:
        """The columns of a frame by name; ValueError unless they are those of the encoding."""
        found = read_columns(frame)
        lacking = [name for name in self.names if name not in found]
        extra = found.keys() - set(self.names)
        if lacking or extra:
            told = f"lacks the columns {lacking[:10]}" if lacking else ""
            told += " and " * bool(lacking and extra)
            told += f"has the unknown columns {sorted(extra)[:10]}" if extra else ""
            raise ValueError(f"the frame {told}; give it the columns of the training")
        return found

    def codes(self, frame: Any) -> Any:
        """Rows as one-hot codes, (n, L).

        StoredRows with indices (n, F), one for each field in the order of `fields`; a csr_array
        where a field is a list, which may have several or none.
        """
        return self._codes(self.columns(frame))

    def _codes(self, columns: dict[str, Column]) -> Any:
        if any(field.kind == "list" for field in self.fields):
            blocks = [indicators(field, columns[field.name]) for field in self.fields]
            return sp.hstack(blocks, "csr")
        n = next(iter(columns.values())).size
        indices = np.empty((n, len(self.fields)), np.int32)
        for j, (field, first, _) in enumerate(self._parts()):
            indices[:, j] = field.codes(columns[field.name])
            indices[:, j] += first
        return StoredRows((n, self.n_codes), indices)

    def tables(self, shape: str | None = None) -> list[Floats]:
        """The table of each field: the units of levels, (L_f,), or the columns of bins, (L_f, d_f).

        A number's table holds beside its value hinges, or hinges and steps at all edges.
        """
        if shape not in SHAPES:
            raise ValueError(f"shape must be one of {SHAPES}, got {shape!r}")
        return [field.table(shape, self.frequencies[i:j]) for field, i, j in self._parts()]

    def rows(self, frame: Any) -> Any:
        """The rows of a frame in the form of this encoding: `codes` or `matrix`."""
        return self.codes(frame) if self.form == "codes" else self.matrix(frame)

    @property
    def column_names(self) -> Sequence[str]:
        """The names of the columns of `rows`."""
        if self.form == "codes":
            return self.level_names
        hinges, p = self.form == "hinges", self.frequencies
        names = [f.feature_names(hinges, p[first:last]) for f, first, last in self._parts()]
        return [name.replace("\0", "\\0") for own in names for name in own]

    @property
    def fields_of_columns(self) -> NDArray[np.intp]:
        """The position of the field of each column of `rows`, (d,)."""
        sizes = np.diff(self.offsets)
        if self.form != "codes":
            for i, (field, first, last) in enumerate(self._parts()):
                if isinstance(field, Number):
                    p = self.frequencies[first:last]
                    sizes[i] = len(field.feature_names(self.form == "hinges", p))
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def exclusive(self) -> NDArray[np.intp]:
        """The field of each column of `rows`, (d,); -1 where a row may have several of them."""
        kinds = ("levels", "number") if self.form == "codes" else ("levels",)
        at, alone = self.fields_of_columns, np.array([f.kind in kinds for f in self.fields])
        return np.where(alone[at], at, -1)

    @property
    def unit_fields(self) -> NDArray[np.intp]:
        """The field of each plain column, (d,), for units; -1 for numbers and -2 for their gaps."""
        at, kinds = self.fields_of_columns, np.array([f.kind == "number" for f in self.fields])
        found = np.where(kinds[at], -1, at)
        ends = np.cumsum(np.bincount(at)) - 1
        gaps = [f.kind == "number" and f.missing for f in self.fields]
        found[ends[gaps]] = -2
        return found

    def matrix(self, frame: Any, dense: bool | None = None) -> Any:
        """Plain columns, (n, d): numbers in plain or soft units, levels as 0 and 1.

        A missing number is its column's center, with an indicator where gaps occurred in training.
        The form "hinges" adds hinges to each number. An array if `dense`, by default where d is at
        most `MOST_DENSE`; else a csr_array.
        """
        columns, blocks = self.columns(frame), []
        dense = len(self.fields_of_columns) <= MOST_DENSE if dense is None else dense
        for field, first, last in self._parts():
            column, p = columns[field.name], self.frequencies[first:last]
            if isinstance(field, Number):
                blocks.append(field.features(column, self.form, p))
            else:
                block = indicators(field, column)
                blocks.append(block.toarray() if dense else block)
        return np.hstack(blocks) if dense else sp.hstack([sp.csr_array(b) for b in blocks], "csr")

    def is_narrow(self, n: int) -> bool:
        """Whether n rows as plain columns are dense, and of at most 80 MB."""
        d = len(self.as_form("plain").fields_of_columns)
        return d <= MOST_DENSE and n * d <= 10_000_000

    def _parts(self) -> Iterator[tuple[Levels | Number, int, int]]:
        bounds = self.offsets.tolist()
        return zip(self.fields, bounds[:-1], bounds[1:], strict=True)


class CodeNames(Sequence[str]):
    """The names of codes, made when they are asked for: there may be millions."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    def __len__(self) -> int:
        return self.encoding.n_codes

    def __getitem__(self, j: Any) -> Any:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(len(self)))]
        if not -len(self) <= j < len(self):
            raise IndexError(f"there are {len(self)} codes, and no {j}")
        j %= len(self)
        at = int(np.searchsorted(self.encoding.offsets, j, "right")) - 1
        name = self.encoding.fields[at].code_name(j - int(self.encoding.offsets[at]))
        return name.replace("\0", "\\0")  # which the names of a model cannot hold


def _number(name: str, edges: Floats, values: Floats, units: Floats, missing: bool) -> Number:
    if len(edges) >= MOST_BINS:
        raise ValueError(f"column {name!r} must have 1 to {MOST_BINS} bins")
    if not (_finite(edges) and _finite(values) and _finite(units)):
        raise ValueError(f"edges, values and units of column {name!r} must be finite")
    if not (edges[1:] > edges[:-1]).all() or not units[1] > 0 or not units[3] > 0:
        raise ValueError(f"the edges of column {name!r} must increase, its units be positive")
    return Number(name, edges, values, units, missing)


def _finite(values: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(values).all())


def _json(texts: list[str]) -> NDArray[np.uint8]:
    # JSON keeps NUL and halves of surrogate pairs, which NumPy's own texts and UTF-8 lose.
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


def _texts(stored: NDArray[np.uint8], name: str) -> list[str]:
    try:
        found = json.loads(stored.tobytes())
    except (ValueError, RecursionError):
        found = None
    if type(found) is not list or not all(type(text) is str for text in found):
        raise ValueError(f"{name} of an encoding must be a list of texts in JSON")
    return found
