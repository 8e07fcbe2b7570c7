"""An encoding as plain arrays, and back from arrays that nobody vouches for.

form         str, scalar        what rows become: "codes", "matrix" or "hinges"
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
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.tables.fields import MOST_BINS, Levels, Number

FORMS = ("codes", "matrix", "hinges")
DTYPES = {
    "form": "U", "names": "|u1", "kinds": "U", "missing": "|b1", "sizes": "<i8", "texts": "|u1",
    "integers": "<i8", "floats": "<f8", "frequencies": "<f8",
}  # fmt: skip
_TYPES = {"O": "text", "b": "bool", "i": "integer", "f": "float"}


def to_arrays(
    fields: tuple[Levels | Number, ...], frequencies: NDArray[np.float64], form: str
) -> dict[str, NDArray[Any]]:
    """The arrays of an encoding."""
    kinds: list[str] = []
    texts: list[str] = []
    integers, floats, sizes = [np.empty(0, np.int64)], [np.empty(0)], []
    for field in fields:
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
        "form": np.array(form),
        "names": _json([field.name for field in fields]),
        "kinds": np.array(kinds),
        "missing": np.array([field.missing for field in fields]),
        "sizes": np.array(sizes, np.int64),
        "texts": _json(texts),
        "integers": np.concatenate(integers).astype(np.int64),
        "floats": np.concatenate(floats),
        "frequencies": frequencies,
    }


def from_arrays(
    arrays: Mapping[str, NDArray[Any]],
) -> tuple[list[Levels | Number], NDArray[np.float64], str]:
    """The fields, frequencies and form; ValueError where arrays are not those of an encoding."""
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
    parts = {
        "text": _Parts(_as_objects(_texts(arrays["texts"], "texts"))),
        "integer": _Parts(arrays["integers"]),
        "float": _Parts(arrays["floats"]),
    }
    kinds, missing, sizes = (arrays[name].tolist() for name in ("kinds", "missing", "sizes"))
    fields: list[Levels | Number] = []
    for name, kind, gaps, size in zip(names, kinds, missing, sizes, strict=True):
        if kind == "number":
            fields.append(_number(name, parts["float"], size, gaps))
            continue
        kind, _, sort = kind.partition(":")
        if kind not in ("levels", "list") or sort not in _TYPES.values():
            raise ValueError(f"column {name!r} has an unknown kind")
        values = parts["integer" if sort == "bool" else sort].take(size)
        values = values.astype(bool) if sort == "bool" else values
        if not (values[1:] > values[:-1]).all() or (sort == "float" and not _finite(values)):
            raise ValueError(f"the levels of column {name!r} must increase")
        fields.append(Levels(name, values, gaps, kind))
    if any(part.left for part in parts.values()):
        raise ValueError("an encoding has more levels than its sizes say")
    p = arrays["frequencies"]
    if len(p) != sum(field.size for field in fields) or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("the frequencies of an encoding must be shares, one for each code")
    return fields, p, form


class _Parts:
    """Consecutive parts of an array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array, self.at = array, 0

    @property
    def left(self) -> int:
        return len(self.array) - self.at

    def take(self, size: int) -> NDArray[Any]:
        if not 0 <= size <= self.left:
            raise ValueError("an encoding has fewer levels or edges than its sizes say")
        self.at += size
        return self.array[self.at - size : self.at]


def _number(name: str, floats: _Parts, size: int, missing: bool) -> Number:
    if not 0 <= size < MOST_BINS:
        raise ValueError(f"column {name!r} must have 1 to {MOST_BINS} bins")
    edges, values, units = floats.take(size), floats.take(size + 1), floats.take(4)
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


def _as_objects(texts: list[str]) -> NDArray[Any]:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found
