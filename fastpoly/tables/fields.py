"""Fields: a column of a frame as codes, and the table of what its codes mean.

A field has `size` codes, and `shares` (size,) of the rows with each. `codes(column)` gives one for
each row (of a list: several), and `table(shape)` what the columns of a model are:

    levels, lists   the levels, then one code for rare and unseen levels, then one for missing ones
    numbers         the bins between the edges, then one code for missing ones
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastpoly.state import Floats
from fastpoly.tables.frames import Column

# The bins of a number, so that a code fits into a byte beside the one for missing values.
MOST_BINS = 255
MOST_UNITS = 1e6  # of a number that is not in soft units
SHAPES = (None, "hinges", "steps")
OTHER, MISSING = "<other>", "<missing>"
SORTS = {"O": "text", "b": "bool", "i": "integer", "f": "float"}  # levels, by the kind of a dtype


@dataclass(frozen=True, eq=False, repr=False)
class Levels:
    """A field of levels; with kind "list" a row may have several of them.

    `values` (q,) are sorted texts (object), bool, int64 or float64. Missing values count as an
    unseen level, where none occurred.
    """

    name: str
    values: NDArray[Any]
    missing: bool
    kind: str = "levels"
    shares: Any = ()

    @classmethod
    def learn(cls, column: Column, min_count: int) -> "Levels":
        """The levels of at least `min_count` rows."""
        if column.kind == "list":
            begins, (codes, values) = column.lists()
            codes = each_once(begins, codes)[1]
        else:
            codes, values = column.distinct()
        counts = np.bincount(codes + 1, minlength=len(values) + 1)
        values = np.sort(values[counts[1:] >= min_count])
        return cls(column.name, values, bool(counts[0]), column.kind)

    def check(self) -> None:
        """Raise unless levels that come from a file are in order."""
        if self.kind not in ("levels", "list") or not (self.values[1:] > self.values[:-1]).all():
            raise ValueError(f"column {self.name!r} has an unknown kind, or no order of its levels")

    @property
    def size(self) -> int:
        return len(self.values) + 1 + self.missing

    def width(self, form: str) -> int:
        """The number of columns in a form of an encoding."""
        return self.size

    def codes(self, column: Column) -> NDArray[np.intp]:
        """The code of each row, (n,)."""
        codes, values = column.distinct()
        return self.places(values)[codes]

    def features(self, column: Column, form: str) -> sp.csr_array:
        """Indicators of the codes, (n, size)."""
        return indicators(self, column)

    def places(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """The codes of distinct values, and at last that of missing ones."""
        known, other = self.values, len(self.values)
        found = np.full(len(values) + 1, other)
        found[-1] = self.size - 1
        if not len(values) or not other:
            return found
        if (known.dtype == object) != (values.dtype == object):
            was, now = ("texts", "numbers") if known.dtype == object else ("numbers", "texts")
            raise ValueError(
                f"column {self.name!r} held {was} when the encoding was learned and holds {now} "
                f"now, such as {values[:1].tolist()[0]!r}; convert it"
            )
        if known.dtype == object:
            places = {value: i for i, value in enumerate(known.tolist())}
            found[:-1] = [places.get(v, other) for v in values.tolist()]
            return found
        if known.dtype.kind != values.dtype.kind:
            known, values = known.astype(np.float64), values.astype(np.float64)
        at = np.minimum(np.searchsorted(known, values), other - 1)
        found[:-1] = np.where(known[at] == values, at, other)
        return found

    def table(self, shape: str | None) -> Floats:
        """The table of levels with these shares."""
        return level_table(self.shares, self.kind == "levels")

    def __repr__(self) -> str:
        some = ", ".join(str(value) for value in self.values[:4])
        more = ", ..." * (len(self.values) > 4) + ", missing" * self.missing
        return f"{self.name}: {self.kind}, {len(self.values)} ({some}{more})"

    def column_name(self, j: int, form: str = "codes") -> str:
        """The name of a code, which is that of its column."""
        if j < len(self.values):
            return f"{self.name}={self.values[j]}"
        return f"{self.name}={OTHER if j == len(self.values) else MISSING}"


def level_table(p: Floats, exclusive: bool = True) -> Floats:
    """The unit of each level, (L,): 1 / sqrt(p + mean of p); 0 for one without rows.

    The columns of few levels that exclude each other are centered, (L, L): products are then apart
    from the effects of the levels alone. (Of more than 64 levels, each one is rare.)
    """
    seen = p > 0
    unit = np.where(seen, 1 / np.sqrt(p + (p[seen].mean() if seen.any() else 1.0)), 0.0)
    return np.diag(unit) - p * unit if exclusive and len(p) <= 64 else unit


def each_once(
    begins: NDArray[np.int64], codes: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The codes of rows, -1 or more, sorted and each once in a row."""
    n, size = len(begins) - 1, int(codes.max(initial=-1)) + 2
    keys = np.unique(np.repeat(np.arange(n), np.diff(begins)) * size + codes + 1)
    counts = np.bincount(keys // size, minlength=n)
    return np.concatenate([[0], np.cumsum(counts)]), keys % size - 1


def indicators(field: "Levels | Number", column: Column) -> sp.csr_array:
    """One column of 0 and 1 for each code of a field, (n, size)."""
    if isinstance(field, Levels) and field.kind == "list":
        begins, (codes, values) = column.lists()
        begins, codes = each_once(begins, field.places(values)[codes])
    else:
        begins, codes = np.arange(column.size + 1), field.codes(column)
    return one_hot(begins, codes, field.size)


def one_hot(begins: NDArray[np.int64], codes: NDArray[np.intp], size: int) -> sp.csr_array:
    """Rows of 0 and 1, (n, size), from where the codes of each row begin."""
    return sp.csr_array((np.ones(len(codes)), codes, begins), shape=(len(begins) - 1, size))


@dataclass(frozen=True, eq=False, repr=False)
class Number:
    """A field of a number, in up to 255 bins; edge i separates v <= edge from v > edge.

    `values` (b,) are the means of the bins in soft units; `units` (4,) center and unit of the
    number, mean and deviation of its soft form. Missing values count as the center, where none
    occurred.
    """

    name: str
    edges: Floats
    values: Floats
    units: Floats
    missing: bool
    shares: Any = ()
    kind: ClassVar[str] = "number"

    @classmethod
    def learn(cls, column: Column, min_count: int) -> "Number":
        """The bins and units of the values of a column."""
        found = column.numbers()
        gaps = int(np.isnan(found).sum())
        v, missing = np.sort(found)[: len(found) - gaps], gaps > 0  # NaN comes last
        if not len(v):
            return cls(column.name, np.empty(0), np.zeros(1), np.array([0.0, 1, 0, 1]), missing)
        firsts = np.concatenate([[0], np.flatnonzero(v[1:] != v[:-1]) + 1])
        starts = np.arange(1, len(firsts))  # bins begin at these distinct values
        # Of small tables, fewer bins: losses are much the same with 1 to 8 rows per bin.
        most = int(np.clip(len(v) // 8, 16, MOST_BINS))
        if len(firsts) > most:
            # Half of the edges by rows, half by values; where these are the same, in between.
            share = np.linspace(0, 1, most + 1)[1:-1]
            by_row = np.searchsorted(firsts, (share[::2] * len(v)).astype(np.intp), "right") - 1
            by_value = (share[1::2] * len(firsts)).astype(np.intp)
            starts = np.union1d(by_row, by_value)
            starts = starts[starts > 0]
        edges = _round_between(v[firsts[starts - 1]], v[firsts[starts]])
        first, center, third = v[[len(v) // 4, len(v) // 2, (3 * len(v)) // 4]]
        unit = third / 2 - first / 2
        if not unit > 0:  # most values are the same: the others give the unit
            away = np.abs(v - center)
            unit = np.median(away[away > 0]) if (away > 0).any() else 1.0
        units = np.array([center, unit, 0.0, 1.0])
        soft = soften(v, units)
        units[2:] = soft.mean(), soft.std() or 1.0
        bins = np.concatenate([[0], firsts[starts]])
        means = np.add.reduceat(soft, bins) / np.diff(np.append(bins, len(v)))
        return cls(column.name, edges, (means - units[2]) / units[3], units, missing)

    def check(self) -> None:
        """Raise unless edges and units that come from a file are those of a number."""
        b, edges, units = len(self.values), self.edges, self.units
        fits = 0 < b <= MOST_BINS and len(edges) == b - 1 and (edges[1:] > edges[:-1]).all()
        if not fits or len(units) != 4 or not min(units[1], units[3]) > 0:
            raise ValueError(f"column {self.name!r} has no order of its edges, or no units")

    @property
    def size(self) -> int:
        return len(self.values) + self.missing

    def width(self, form: str) -> int:
        """The number of columns in a form of an encoding."""
        if form == "codes":
            return self.size
        return 1 + self.missing + (len(self.knots) if form == "hinges" else 0)

    def codes(self, column: Column) -> NDArray[np.intp]:
        """The code of each row, (n,)."""
        found = column.numbers()
        codes = np.searchsorted(self.edges, found, "left")
        gaps = np.isnan(found)
        if gaps.any():
            center = np.searchsorted(self.edges, self.units[0], "left")
            codes[gaps] = self.size - 1 if self.missing else center
        return codes

    def table(self, shape: str | None) -> Floats:
        """Columns of the bins, (size, q), centered by the shares: value, hinges, steps, missing.

        The value has deviation 1. A hinge is max(0, value - knot), and a step 1 above its edge, so
        what is finer is smaller.
        """
        b, p = len(self.values), self.shares
        inside = p[:b] / max(p[:b].sum(), np.finfo(float).tiny)
        mean = inside @ self.values
        unit = np.sqrt(inside @ (self.values - mean) ** 2) or 1.0
        hinged = self.values[:, None] if shape is None else self.hinged(self.values)
        steps = np.tri(b, b - 1 if shape == "steps" else 0, -1)
        C = np.hstack([hinged / unit, steps])
        C -= inside @ C
        if not self.missing:
            return C
        table = np.zeros((b + 1, C.shape[1] + 1))
        table[:b, :-1] = C
        table[b, -1] = 1 / np.sqrt(p[b] + 0.5)  # a level beside that of all other rows
        return table

    @property
    def knots(self) -> NDArray[np.intp]:
        """The edges at which hinges bend; they cut the rows into about five equal parts.

        There are at least two bins on either side.
        """
        b = len(self.values)
        below = np.cumsum(self.shares[:b])
        share, below = np.linspace(0, below[-1], 6)[1:-1], below[:-1]
        knots = np.unique(np.minimum(np.searchsorted(below, share), b - 2))
        return knots[(knots > 0) & (knots < b - 2)]

    def hinged(self, soft: Floats) -> Floats:
        """Values in soft units (n,), and their hinges beside them."""
        knots = soften(self.edges[self.knots], self.units)
        return np.column_stack([soft, np.maximum(soft[:, None] - knots, 0)])

    def features(self, column: Column, form: str) -> Floats | sp.csr_array:
        """Columns, (n, width): the number in its units, hinges, gaps; or indicators of codes."""
        if form == "codes":
            return indicators(self, column)
        found = column.numbers()
        gaps = np.isnan(found)
        found = np.where(gaps, self.units[0], found)
        value = robust_units(found, self.units) if form == "plain" else soften(found, self.units)
        columns = [self.hinged(value) if form == "hinges" else value]
        return np.column_stack(columns + [gaps] * self.missing)

    def column_name(self, j: int, form: str = "codes") -> str:
        """The name of a bin, of the number, or of a hinge."""
        if self.missing and j == self.width(form) - 1:
            return f"{self.name}={MISSING}"
        edges = self.edges if form == "codes" else self.edges[self.knots]
        if form == "codes" and j < len(edges):
            low = f"{edges[j - 1]:.12g} < " if j else ""
            return f"{low}{self.name} <= {edges[j]:.12g}"
        return f"{self.name} > {edges[j - 1]:.12g}" if j else self.name

    def __repr__(self) -> str:
        more = ", missing" * self.missing
        return f"{self.name}: number, {len(self.values)} bins, about {self.units[0]:.6g}{more}"


def robust_units(v: Floats, units: Floats, most: float = MOST_UNITS) -> Floats:
    """Robust units, (v - center) / unit, of which there are at most `most`."""
    with np.errstate(over="ignore"):
        return np.clip((v - units[0]) / units[1], -most, most)


def soften(v: Floats, units: Floats) -> Floats:
    """Soft standard units: (asinh((v - center) / unit) - mean) / deviation, which tames tails."""
    return (np.arcsinh(robust_units(v, units, 1e300)) - units[2]) / units[3]


def _round_between(low: Floats, high: Floats) -> Floats:
    """For each pair a number of few digits in [low, high), for the names of bins."""
    found, left = low.copy(), np.ones(len(low), bool)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        middle, digits = low / 2 + high / 2, -np.ceil(np.log10(high - low))
        for more in range(3):
            factor = 10.0 ** (digits + more)
            round_ = np.floor(middle * factor) / factor
            fits = left & (low <= round_) & (round_ < high)
            found[fits], left[fits] = round_[fits], False
    return found
