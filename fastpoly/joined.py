"""Joined: rows that name entities, each with a table of side information, as an X for all fits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, diags_array, vstack

from fastpoly.model import PolyModel
from fastpoly.rows import CodedRows, Rows, Shards, Tables
from fastpoly.state import Model
from fastpoly.tables.entities import Entity
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
        columns of numbers, levels or lists of levels (see `TableEncoder`), where a list of n levels
        has the entries 1 / sqrt(n). The keys of a matrix are the numbers of its rows. With None,
        the keys are those of the rows, and ids are all.

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
        if isinstance(rows, Shards):
            raise TypeError("rows are in shards: give Joined.over(shards, user=users, ...)")
        columns = _columns(rows, "rows")
        self._join(columns, tables, ids)
        self.codes = self._codes(columns)

    def _join(
        self, columns: dict[str, NDArray], tables: dict[str, Any], ids: bool, stored: bool = False
    ) -> None:
        """Read the tables of columns of keys, or of their levels in shards."""
        _check_names(columns, tables)
        self.ids = bool(ids)
        self.entities: dict[str, Entity] = {}
        for name, table in tables.items():
            self.entities[name] = Entity(name, table, columns[name], ids, stored)
        self._lay_out(stored)

    def _lay_out(self, stored: bool = False) -> None:
        """The columns of all entities, beside each other."""
        # Fields of shards end with a level for what is none of their keys.
        parts = [e.matrix for e in self.entities.values()]
        self.sizes = [B.shape[0] for B in parts]
        if stored:
            parts = [csr_array(vstack([B, csr_array((1, B.shape[1]))])) for B in parts]
        self.tables = Tables(parts)
        self.feature_names = [name for e in self.entities.values() for name in e.names]
        starts = np.cumsum([0, *(len(e.exclusive) for e in self.entities.values())])
        fields = [np.add(e.fields, i) for e, i in zip(self.entities.values(), starts, strict=False)]
        self.fields = np.concatenate(fields).astype(np.intp)
        self.exclusive = np.concatenate([e.exclusive for e in self.entities.values()]).astype(bool)
        self.later = np.concatenate([e.later for e in self.entities.values()])

    @classmethod
    def over(cls, shards: Shards, *, ids: bool = True, **tables: Any) -> Shards:
        """Shards of keys, joined with a table of each: shards for all fits.

        Its models have the columns of `Joined(rows, **tables)`, and predict such rows, too.

        Parameters
        ----------
        shards : Shards
            Of `write_shards(folder, batches, one_hot=["user", "item"], ...)`: a one-hot field for
            every table, by its name, and no other columns.
        ids, **tables
            As of `Joined`. Tables may have more keys than the shards.

        Examples
        --------
        >>> import tempfile
        >>> from fastpoly import FactorizationMachineRegressor, Joined, write_shards
        >>> rows = {"user": ["ann", "ann", "bob"], "item": ["x", "y", "y"], "y": [5.0, 4.0, 2.0]}
        >>> options = {"one_hot": ["user", "item"], "target": "y"}
        >>> shards = write_shards(tempfile.mkdtemp(), [rows], **options)
        >>> users = {"user": ["ann", "bob", "cid"], "age": [25.0, 61.0, 30.0]}
        >>> X = Joined.over(shards, user=users, item=None)
        >>> model = FactorizationMachineRegressor(alpha=0.1).fit(X)
        >>> new = Joined({"user": ["cid"], "item": ["y"]}, user=users, item={"item": ["x", "y"]})
        >>> X.n_features, model.predict(new).shape
        (6, (1,))
        """
        names = () if shards.encoding is None else shards.encoding.names
        columns = {name: shards.categories(name) for name in names}
        joined = object.__new__(cls)
        in_order = {name: tables[name] for name in columns if name in tables}
        joined._join(columns, in_order | tables, ids, True)
        if joined.tables.n_levels != shards.n_features:
            raise ValueError("the keys of shards must have no gaps; write them without such rows")
        found = shards._but(joined=joined)
        found.n_features = joined.n_features
        return found

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

    def __array__(self, *_: Any, **__: Any) -> NDArray:
        raise TypeError(
            "Joined rows are no array: give X.plain(), or of one table X.entity(name), which are "
            "sparse matrices"
        )

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

    def with_rows(self, rows: Any, **tables: Any) -> Self:
        """Other rows, joined with the same tables, or with newer ones.

        Models of the earlier rows take them: they predict a new key by the columns of its table,
        until `fold_in` gives it a vector of its own.

        Parameters
        ----------
        rows : DataFrame, or mapping of names to arrays
        **tables : DataFrame, sparse matrix, array or None
            Newer tables with the same columns. Their rows replace those of the same keys, and
            follow the others. A matrix has all earlier rows, then new ones.

        Examples
        --------
        >>> from fastpoly import FactorizationMachineRegressor, Joined
        >>> users = {"user": ["ann", "bob"], "age": [25.0, 61.0]}
        >>> X = Joined({"user": ["ann", "bob"], "item": [1, 2]}, user=users, item=None)
        >>> model = FactorizationMachineRegressor(alpha=0.1).fit(X, [5.0, 1.0])
        >>> cid = {"user": ["cid"], "age": [28.0]}
        >>> new = X.with_rows({"user": ["cid", "ann"], "item": [1, 1]}, user=cid)
        >>> bool(model.fold_in(new[:1], [2.0]).predict(new)[0] < model.predict(new)[0])
        True
        """
        columns, other = _columns(rows, "rows"), self._with(self.codes)
        _check_names(columns, self.entities)
        if tables:
            other.entities = dict(self.entities)
            for name, table in tables.items():
                other.entities[name] = self._known(name).extended(table, columns[name])
            other._lay_out()
        other.codes = other._codes(columns)
        return other

    def _known(self, name: str) -> Entity:
        if name not in self.entities:
            raise ValueError(f"there is no {name!r}; known: {list(self.entities)}")
        return self.entities[name]

    def plain(self) -> csr_array:
        """The sparse matrix that this stands for."""
        return csr_array(self.codes @ self.every_key())

    def every_key(self) -> csr_array:
        """The tables of all keys, (L, d)."""
        return csr_array(block_diag([csr_array(B) for B in self.tables.blocks], "csr"))

    def entity(self, name: str, model: Any = None) -> csr_array:
        """The rows of an entity's table (over shards, of the keys in them), (n_keys, d).

        With a fitted `model`, the columns are those of its fit: newer tables may have more.
        """
        at, e = list(self.entities).index(self._known(name).name), self.tables.level_offsets
        names = getattr(getattr(model, "model_", model), "feature_names", None)
        X = self if names is None else self.in_columns(names)
        return X.every_key()[e[at] : e[at] + self.sizes[at]]

    def places(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Where the columns of a fit are; ValueError unless all others are ids of later keys."""
        known = {name: j for j, name in enumerate(self.feature_names)}
        at = np.array([known.get(name, -1) for name in names])
        first = at[~self.later[at]]
        if at.min(initial=0) < 0 or not np.array_equal(first, np.flatnonzero(~self.later)):
            raise ValueError(
                "the tables of X have other keys or columns than those of the fit; of the X of the "
                "fit, X.with_rows(rows) joins other rows with the same tables, and "
                "X.with_rows(rows, name=table) adds the keys of a newer table"
            )
        return at

    def in_columns(self, names: Sequence[str]) -> Self:
        """The same rows with the columns of a fit, without the ids of later keys."""
        if list(names) == self.feature_names:
            return self
        at, starts = self.places(names), self.tables.column_offsets
        owners = np.searchsorted(starts, at, "right") - 1
        other = self._with(self.codes)
        other.tables = Tables(
            [B[:, at[owners == e] - starts[e]] for e, B in enumerate(self.tables.blocks)]
        )
        other.feature_names, other.fields = list(names), self.fields[at]
        other.later = self.later[at]
        return other

    @property
    def id_columns(self) -> NDArray[np.bool_]:
        """Which columns are ids, (d,), where there are ids: the first field of every entity."""
        return np.isin(self.fields, self.fields[self.tables.column_offsets[:-1]])

    @property
    def exclusive_fields(self) -> NDArray[np.intp]:
        """The field of each column, (d,); -1 where a row may have several of its columns."""
        return np.where(self.exclusive[self.fields], self.fields, -1)

    def labels(self, fit_lower: str | None) -> NDArray[np.intp]:
        """The field of every column, where a constant is one of its own."""
        constant = int(fit_lower == "augment")
        return np.append(np.zeros(constant, np.intp), self.fields + constant)

    # --- for averages over the posterior, where tables say what to expect of a key ---

    def of_ids(self, X: Any) -> Any:
        """X, which has these tables, without them: one-hot keys, or shards of them."""
        if X is self:
            return self.codes
        plain = X._but(joined=None)
        plain.n_features = X.manifest.n_features
        return type(self).over(plain, **dict.fromkeys(self.entities))

    def sides(self) -> dict[int, tuple[csr_array, NDArray]]:
        """By the number of an entity, what is known of its levels beside ids, (n_levels, p).

        Every column of a table has the mean square 1 in all; beside it are the units, (p,).
        """
        found = {}
        for e, entity in enumerate(self.entities.values()):
            (n, _), C = entity.matrix.shape, entity.known
            if C.shape[1]:
                labels = np.array(entity.fields[-C.shape[1] :])
                squares = np.bincount(labels, C.multiply(C).sum(axis=0))[labels]
                unit = np.sqrt(n / np.where(squares > 0, squares, n))
                found[e] = csr_array(C @ diags_array(unit)), unit
        return found

    def over_columns(
        self, model: Model, activation: str,
        split: Callable[[int, NDArray], NDArray] | None = None,
    ) -> Model:  # fmt: skip
        """A model over keys as a model over columns, ids included, with the same outputs.

        `split(e, Z)` are weights (k, p) for what is known of entity e, given vectors Z (k, n_keys)
        of its keys; ids have the rest, and everything where there are no linear terms.
        """
        c, linear = model.H.shape[1] - sum(self.sizes), model.linear
        ends = np.cumsum(self.sizes)[:-1]

        def columns(Z: NDArray) -> NDArray:
            found = []
            parts = zip(np.split(Z, ends, 1), self.entities.values(), strict=True)
            for e, (part, one) in enumerate(parts):
                h = np.zeros((len(Z), one.known.shape[1]))
                if split is not None and linear is not None and h.size:
                    h = split(e, part)
                found += [(part - (one.known @ h.T).T) @ one.matrix[:, : len(one)], h]
            return np.hstack(found)

        H = np.hstack([model.H[:, :c], columns(model.H[:, c:])])
        if linear is None:
            return model._replace(H=H)
        if activation == "anova":
            parts = [e.matrix for e in self.entities.values()]
            linear = linear - Tables(parts).biases(H, model.H).T @ model.V
        return model._replace(H=H, linear=columns(linear.T).T)

    # --- for estimators ---

    def rows_of(self, codes: Rows, factor: NDArray | None, fit_lower: str | None) -> CodedRows:
        """Rows of a fit from those of the codes, with columns in other units."""
        tables = self.tables
        if factor is not None:
            parts = np.split(factor, tables.column_offsets[1:-1])
            scaled = [B.multiply(f) for B, f in zip(tables.blocks, parts, strict=True)]
            tables = Tables(list(map(csr_array, scaled)))
        if codes.activation == "squared":
            return CodedRows(codes, tables)
        fields = {"fields": self.fields, "exclusive": self.exclusive}
        return CodedRows(codes, tables, within=True, fit_lower=fit_lower, **fields)

    def model_of(self, model: PolyModel) -> PolyModel:
        """The same model over keys, for rows `codes`."""
        model.check_width(self.n_features)
        within = model.activation == "anova"
        found = self.tables.level_model(model.parameters(), within)
        linear = None if found.linear is None else found.linear.T
        augment = model.augment and not within  # else it is in the biases of the keys
        plain = dict.fromkeys(("feature_names", "fields", "encoding", "background"))
        return replace(model, H=found.H, linear=linear, augment=augment, **plain)


def _check_names(columns: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Raise unless rows have a column of keys for each table, and no other."""
    lacking = [name for name in tables if name not in columns]
    extra = [name for name in columns if name not in tables]
    if lacking or extra:
        raise ValueError(
            f"rows lack the columns {lacking} of the tables, or have columns {extra} without a "
            "table; give name=None for a column whose levels are all there is"
        )


def _columns(rows: Any, name: str) -> dict[str, NDArray]:
    """The columns of a frame as arrays."""
    if not is_frame(rows):
        raise TypeError(f"{name} must be a frame or a mapping of names to arrays, got {type(rows)}")
    columns = {key: np.asarray(column.data) for key, column in read_columns(rows).items()}
    for key, values in columns.items():
        gaps = [v is None or v != v for v in values.tolist()] if values.dtype.kind in "fO" else ()
        if any(gaps):
            raise ValueError(f"{name} have gaps in the keys {key!r}; leave such rows out")
    return columns
