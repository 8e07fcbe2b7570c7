"""Joined: rows that name entities, each with a table of side information, as an X for all fits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, eye_array, hstack, issparse

from fastpoly.model import PolyModel
from fastpoly.rows import CodedRows, Rows, Tables
from fastpoly.state import Model
from fastpoly.tables import Encoding
from fastpoly.tables.frames import is_frame, read_columns


class Joined:
    """Rows that name users, items and so on, joined with a table of each: an X for estimators.

    It stands for the sparse matrix with, in every row, the id and the columns of its user, then
    those of its item. A fit takes the time of ids alone, however many columns the tables have, and
    equals that of the matrix. `fit`, `predict`, `PathSearchCV` and `PosteriorAverage` take it.

    Parameters
    ----------
    rows : DataFrame, or mapping of names to arrays
        A column of keys for every table, by its name.
    ids : bool, default=True
        Whether every key has a column of its own beside those of its table.
    **tables : DataFrame, sparse matrix, array or None
        The table of each entity. A frame has the keys in a column of the entity's name, and other
        columns of numbers, levels or lists of levels (see `TableEncoder`). The keys of a matrix are
        the numbers of its rows. With None, the keys are those of the rows, and ids are all.

    Attributes
    ----------
    shape : tuple
        (n, d) of the matrix.
    feature_names : list of str
        Such as "user=7" and "user.age".

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import FactorizationMachineRegressor, Joined
    >>> users = {"user": ["ann", "bob"], "age": [25.0, 61.0]}
    >>> items = {"item": [1, 2, 3], "genres": [["war"], ["war", "love"], ["love"]]}
    >>> rows = {"user": ["ann", "ann", "bob", "bob"], "item": [1, 2, 2, 3]}
    >>> X = Joined(rows, user=users, item=items)
    >>> X.shape
    (4, 9)
    >>> model = FactorizationMachineRegressor(alpha=0.1).fit(X, [5.0, 4.0, 2.0, 1.0])
    >>> new = X.with_rows({"user": ["ann"], "item": [3]})
    >>> bool(np.allclose(model.predict(new), model.predict(new.plain())))
    True
    """

    def __init__(self, rows: Any, *, ids: bool = True, **tables: Any) -> None:
        if not tables:
            raise ValueError("Joined needs a table for each entity, such as user=users")
        columns = _columns(rows, "rows")
        lacking = [name for name in tables if name not in columns]
        extra = [name for name in columns if name not in tables]
        if lacking or extra:
            raise ValueError(
                f"rows lack the columns {lacking} of the tables, or have columns {extra} without a "
                "table; give name=None for a column whose levels are all there is"
            )
        self.entities: dict[str, _Entity] = {}
        for name, table in tables.items():
            self.entities[name] = _Entity(name, table, columns[name], ids)
        self.tables = Tables([entity.matrix for entity in self.entities.values()])
        groups = [group for entity in self.entities.values() for group in entity.groups]
        self.feature_names = [name for names, _, _ in groups for name in names]
        firsts = np.cumsum([0, *(len(exclusive) for _, _, exclusive in groups)])
        fields = [first + labels for first, (_, labels, _) in zip(firsts, groups, strict=False)]
        self.fields = np.concatenate(fields).astype(np.intp)
        self.exclusive = np.concatenate([exclusive for _, _, exclusive in groups]).astype(bool)
        self.codes = self._codes(columns)

    def _codes(self, columns: Mapping[str, NDArray]) -> csr_array:
        """One-hot keys, (n, L)."""
        offsets = self.tables.level_offsets
        codes = [e.positions(columns[name]) for name, e in self.entities.items()]
        if len({len(own) for own in codes}) > 1:
            raise ValueError("the columns of rows differ in length")
        n, width = len(codes[0]), len(codes)
        indices = (np.column_stack(codes) + offsets[:-1]).astype(np.int32).ravel()
        ends = np.arange(0, n * width + 1, width, dtype=np.int32)
        return csr_array((np.ones(n * width), indices, ends), shape=(n, int(offsets[-1])))

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.tables.n_columns

    @property
    def n_features(self) -> int:
        return self.tables.n_columns

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {len(e)}" for name, e in self.entities.items())
        return f"Joined({self.shape[0]} rows, {self.shape[1]} columns; {parts})"

    def _with(self, codes: csr_array) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, codes=codes)
        return other

    def __getitem__(self, rows: Any) -> Self:
        """Some of the rows, by their numbers or a mask."""
        rows = rows[0] if isinstance(rows, tuple) else rows
        return self._with(csr_array(self.codes[rows]))

    def with_rows(self, rows: Any) -> Self:
        """Other rows, joined with the same tables."""
        return self._with(self._codes(_columns(rows, "rows")))

    def plain(self) -> csr_array:
        """The sparse matrix that this stands for."""
        return csr_array(self.codes @ self.every_key())

    def every_key(self) -> csr_array:
        """The tables of all keys, (L, d)."""
        return csr_array(block_diag([csr_array(B) for B in self.tables.blocks], "csr"))

    def entity(self, name: str) -> csr_array:
        """The rows of the table of an entity, among the columns of all, (n_keys, d)."""
        if name not in self.entities:
            raise ValueError(f"there is no {name!r}; known: {list(self.entities)}")
        at = list(self.entities).index(name)
        blocks = [
            csr_array(B) if i == at else csr_array((len(self.entities[name]), B.shape[1]))
            for i, B in enumerate(self.tables.blocks)
        ]
        return csr_array(hstack(blocks, "csr"))

    # --- for estimators ---

    def frequencies(self, w: NDArray | None) -> NDArray[np.float64]:
        """The weight of all rows with each key, (L,)."""
        n = self.codes.shape[0]
        return self.codes.T @ (np.ones(n) if w is None else w)

    def rows_of(self, codes: Rows, factor: NDArray | None, fit_lower: str | None) -> CodedRows:
        """Rows of a fit from those of the codes, with columns in other units."""
        tables = self.tables
        if factor is not None:
            parts = np.split(factor, tables.column_offsets[1:-1])
            tables = Tables(
                [csr_array(B.multiply(f)) for B, f in zip(tables.blocks, parts, strict=True)]
            )
        if codes.activation == "squared":
            return CodedRows(codes, tables)
        fields = {"fields": self.fields, "exclusive": self.exclusive}
        return CodedRows(codes, tables, within=True, fit_lower=fit_lower, **fields)

    def model_of(self, model: PolyModel) -> PolyModel:
        """The same model over keys, for rows `codes`."""
        model.check_width(self.n_features)
        linear = None if model.linear is None else model.linear.T
        within = model.activation == "anova"
        found = self.tables.level_model(Model(model.H, model.V, model.intercept, linear), within)
        linear = None if found.linear is None else found.linear.T
        augment = model.augment and not within  # else it is in the biases of the keys
        plain = dict.fromkeys(("feature_names", "fields", "encoding", "background"))
        return replace(model, H=found.H, linear=linear, augment=augment, **plain)


class _Entity:
    """The keys of an entity, and the columns of each."""

    def __init__(self, name: str, table: Any, used: NDArray, ids: bool) -> None:
        self.name, self.numbered = name, issparse(table) or isinstance(table, np.ndarray)
        parts: list[Any] = []
        # Names of columns, the field of each, and whether a row has one entry in each field.
        self.groups: list[tuple[list[str], NDArray, list[bool]]] = []
        if table is None:
            self.keys = np.unique(used)
        elif self.numbered:
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
                f"the table of {name!r} has the key {ordered[same[0]]!r} more than once; every key "
                "must have one row"
            )
        if ids or table is None:
            parts.append(eye_array(len(self.keys), format="csr"))
            names = [f"{name}={key}" for key in self.keys]
            self.groups.append((names, np.zeros(len(names), int), [True]))
        if self.numbered:
            parts.append(csr_array(table, dtype=np.float64))
            names = [f"{name}.{j}" for j in range(table.shape[1])]
            self.groups.append((names, np.zeros(len(names), int), [False]))
        elif table is not None and columns:
            encoding = Encoding.learn(columns, min_count=1)[0].as_form("matrix")
            parts.append(csr_array(encoding.matrix(columns)))
            names = [f"{name}.{each}" for each in encoding.column_names]
            levels = [field.kind == "level" for field in encoding.fields]
            self.groups.append((names, np.asarray(encoding.fields_of_columns), levels))
        if not parts:
            raise ValueError(f"{name!r} has neither ids nor columns; leave ids=True")
        self.matrix = csr_array(hstack(parts, "csr"), dtype=np.float64)

    def __len__(self) -> int:
        return len(self.keys)

    def positions(self, used: NDArray) -> NDArray[np.intp]:
        """The rows of the table with these keys; ValueError where there is none."""
        ordered = self.keys[self.order]
        try:
            at = np.minimum(np.searchsorted(ordered, used), len(ordered) - 1)
            unknown = ordered[at] != used
        except TypeError:
            raise ValueError(
                f"the keys of {self.name!r} in the rows and in its table differ in type"
            ) from None
        if np.any(unknown):
            raise ValueError(
                f"the table of {self.name!r} has no row for the key {used[unknown][0]!r}; add it, "
                "or leave such rows out"
            )
        return self.order[at]


def _columns(rows: Any, name: str) -> dict[str, NDArray]:
    """The columns of a frame as arrays."""
    if not is_frame(rows):
        raise TypeError(f"{name} must be a frame or a mapping of names to arrays, got {type(rows)}")
    return {key: np.asarray(column.data) for key, column in read_columns(rows).items()}
