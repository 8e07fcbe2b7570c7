"""Entities: what the keys of rows name, such as users, with the columns of a table of each."""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, hstack, issparse, vstack

from fastpoly.kernels.checks import shown
from fastpoly.tables.encoding import Encoding
from fastpoly.tables.frames import is_frame, read_columns


class Entity:
    """The keys of an entity, and the columns of each; the rows of its matrix are keys.

    With `stored`, the rows of the matrix are those of the keys that are used, in their order. An
    `encoding` is that of an earlier table.
    """

    def __init__(
        self, name: str, table: Any, used: NDArray, ids: bool, stored: bool = False,
        encoding: Encoding | None = None,
    ) -> None:  # fmt: skip
        self.name, self.encoding, columns = name, encoding, None
        if table is None:
            self.keys = used if stored else np.unique(used)
        elif issparse(table) or isinstance(table, np.ndarray):
            if np.ndim(table) != 2:
                raise ValueError(f"the table of {name!r} must be 2-D, got {np.ndim(table)}-D")
            self.keys = np.arange(table.shape[0])
        else:
            columns = dict(read_columns(table)) if is_frame(table) else {}
            if name not in columns:
                raise ValueError(
                    f"the table of {name!r} has no column {name!r} with its keys; it has "
                    f"{list(columns)}"
                )
            self.keys = np.asarray(columns.pop(name).data)
        self.order = np.argsort(self.keys, kind="stable")
        ordered = self.keys[self.order]
        same = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(same):
            raise ValueError(
                f"the table of {name!r} has the key {_shown(ordered[same])} more than once; every "
                "key must have one row"
            )
        self.numbered = columns is None and table is not None
        self.names: list[str] = []
        self.fields: list[int] = []
        self.exclusive: list[bool] = []
        parts: list[Any] = []
        # The first columns are ids, and the first of these are of the keys of the first table.
        self.n_ids = self.n_early = len(self.keys) if ids or table is None else 0
        if ids or table is None:
            self._add([f"{name}={key}" for key in self.keys], [0] * len(self.keys), [True])
            parts.append(eye_array(len(self.keys), format="csr"))
        if columns:
            if encoding is None:
                encoding = Encoding.learn(columns, min_count=1)[0].as_form("matrix")
            self.encoding = encoding
            labels = encoding.fields_of_columns
            levels = [field.kind == "levels" for field in encoding.fields]
            self._add([f"{name}.{each}" for each in encoding.column_names], labels, levels)
            try:
                known = csr_array(encoding.matrix(columns, dense=False))
            except ValueError as error:
                raise ValueError(f"the table of {name!r} is unlike the earlier: {error}") from None
            for f, field in enumerate(encoding.fields):
                if field.kind == "list":
                    known = unit_lists(known, labels == f)
            parts.append(known)
        elif self.numbered:
            d = table.shape[1]
            self._add([f"{name}.{j}" for j in range(d)], [0] * d, [False])
            parts.append(csr_array(table, dtype=np.float64))
        if not parts:
            raise ValueError(f"{name!r} has neither ids nor columns; leave ids=True")
        self.matrix = csr_array(hstack(parts, "csr"), dtype=np.float64)
        if not np.isfinite(self.matrix.data).all():
            raise ValueError(f"the table of {name!r} contains NaN or infinity; fill them")
        if stored:
            self.matrix = csr_array(self.matrix[self.positions(used)])

    def _add(self, names: list[str], labels: Sequence[int], exclusive: list[bool]) -> None:
        """Columns with these names and fields of their own."""
        self.names += names
        self.fields += [len(self.exclusive) + int(f) for f in labels]
        self.exclusive += exclusive

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def known(self) -> csr_array:
        """The columns beside ids, a row for each level."""
        return self.matrix[:, self.n_ids :]

    @property
    def later(self) -> NDArray[np.bool_]:
        """Which columns are ids of keys that came after the first table."""
        j = np.arange(len(self.names))
        return (j >= self.n_early) & (j < self.n_ids)

    def extended(self, table: Any, used: NDArray) -> Self:
        """This entity with the rows of a newer table: of its own keys, and of others after them."""
        new = type(self)(self.name, table, used, self.n_ids > 0, encoding=self.encoding)
        side, own = self.names[self.n_ids :], new.names[new.n_ids :]
        texts = {isinstance(key, str) for each in (self.keys, new.keys) for key in each[:1]}
        short = self.numbered and len(new) < len(self)
        if own != side or new.numbered != self.numbered or len(texts) > 1 or short:
            raise ValueError(
                f"the newer table of {self.name!r} must have keys of the same type and the columns "
                f"{side[:5]} of the earlier one; a matrix, all of its {len(self)} rows before new "
                f"ones; it has {own[:5]} and {len(new)} rows"
            )
        keys = np.concatenate([self.keys, new.keys])
        _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
        last, order = np.empty_like(first), np.sort(first)
        last[codes] = np.arange(len(keys))  # of equal indices, NumPy keeps the last
        known = csr_array(vstack([self.known, new.known]))[last[codes[order]]]
        other = copy(self)
        other.keys = keys[order]
        other.order = np.argsort(other.keys, kind="stable")
        other.n_ids = len(other) if self.n_ids else 0
        other.names = [f"{self.name}={key}" for key in other.keys[: other.n_ids]] + side
        other.fields = [0] * other.n_ids + self.fields[self.n_ids :]
        other.matrix = csr_array(hstack([eye_array(len(other), other.n_ids), known], "csr"))
        return other

    def positions(self, used: NDArray) -> NDArray[np.intp]:
        """The rows of the table with these keys; ValueError where there is none."""
        ordered = self.keys[self.order]
        try:
            at = np.minimum(np.searchsorted(ordered, used), len(ordered) - 1)
            unknown = ordered[at] != used
        except TypeError:
            raise ValueError(
                f"the keys of {self.name!r} in the rows and in its table differ in type; make both "
                "text, or both numbers"
            ) from None
        if np.any(unknown):
            raise ValueError(
                f"the table of {self.name!r} has no row for the key {_shown(used[unknown])}; add "
                "it, or leave such rows out"
            )
        return self.order[at]


def unit_lists(C: csr_array, columns: NDArray[np.bool_]) -> csr_array:
    """C where a list of n levels, in its columns, has entries 1 / sqrt(n): it weighs one level."""
    each = columns[C.indices]
    rows = np.repeat(np.arange(C.shape[0]), np.diff(C.indptr))
    length = np.maximum(np.bincount(rows, each, C.shape[0]), 1)
    data = np.where(each, C.data / np.sqrt(length[rows]), C.data)
    return csr_array((data, C.indices, C.indptr), shape=C.shape)


def _shown(keys: NDArray) -> str:
    """The first of some keys for messages."""
    return shown(keys[:1].tolist()[0])
