"""Training rows, in memory or in shards: checked, split, and given to the core."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from threading import current_thread, main_thread
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import (
    _check_feature_names,
    check_consistent_length,
    validate_data,
)

from fastpoly.contributions import Sums
from fastpoly.estimators.advice import warn
from fastpoly.joined import Joined
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import BLOCK_DOUBLES, shown
from fastpoly.kernels.losses import complete_loss, get_loss
from fastpoly.kernels.matrix import ScaledRows, StoredRows, as_csr, as_matrix
from fastpoly.rows import CodedRows, Design, Rows, Shards, Tables
from fastpoly.rows.block import Block, Form, Targets
from fastpoly.rows.design import check_largest
from fastpoly.rows.engine import ThreadEngine
from fastpoly.rows.rows import shard_statistics
from fastpoly.rows.shards import Shard
from fastpoly.rows.statistics import Moments, Scaling, Statistics, row_statistics
from fastpoly.strengths import Strengths
from fastpoly.tables.fields import level_table
from fastpoly.tables.frames import Column, is_frame, read_columns

Floats = NDArray[np.float64]

# Entries of X (1 MB) up to which copies cost nothing and threads gain nothing.
SMALL_DATA_ENTRIES = BLOCK_DOUBLES // 8
# Rows of joined tables that stand for all where a model explains itself.
BACKGROUND_ROWS = 10_000


@dataclass(frozen=True)
class TrainingRows:
    """Checked rows of a fit, in memory or in shards.

    Attributes
    ----------
    X : ndarray or CSR, (n, d), or Shards
    y : ndarray or None
        The checked y, otherwise as it was given; None with shards, which hold it.
    targets : Targets
        The targets in the form of the loss. With shards there are no values, only the table, or
        nothing where their targets are numbers.
    m : int
        Number of outputs.
    w : ndarray, (n,), or None
        Weights of the rows; with shards (n_classes,), weights of the classes.
    n_threads : int or None
    tables : Tables or None
        Of the fields, where X are codes.
    fields : ndarray of int, (d,), or None
        The field of each feature, for `Scaling.in_fields`.
    strengths : Strengths or None
        Where they were found together with the form of these rows.
    """

    X: Any
    y: Any
    targets: Targets
    m: int
    w: Floats | None
    n_threads: int | None = None
    tables: Tables | None = None
    fields: NDArray[np.intp] | None = None
    strengths: Strengths | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return (self.X.n_samples, self.X.n_features) if self.stored else self.X.shape

    @property
    def stored(self) -> bool:
        """Whether the rows are in shards."""
        return isinstance(self.X, Shards)

    @property
    def is_small(self) -> bool:
        """Whether a pass over the rows is cheap."""
        return not self.stored and is_small(self.X)

    def hold_out(self, share: float, seed: int, task: str) -> tuple[Self, Self]:
        """Rows to train on and rows to validate with, by class or level where there are any."""
        if self.stored:
            train, held = self.X.split(1 - share, share, seed=seed)
            return replace(self, X=train.opened()), replace(self, X=held.opened())
        rows, by = np.arange(self.X.shape[0]), strata(self.y, task, share)
        train, held = train_test_split(rows, test_size=share, random_state=seed, stratify=by)
        return self._take(train), self._take(held)

    def _take(self, rows: NDArray[np.intp]) -> Self:
        w = None if self.w is None else self.w[rows]
        X, targets = self.X, self.targets.take(rows)
        if isinstance(X, StoredRows):
            X = StoredRows((len(rows), X.shape[1]), X.indices[rows])
        else:
            X = X[rows]
        return replace(self, X=X, y=self.y[rows], targets=targets, w=w, strengths=None)

    def with_tables(self, codes: Any, tables: Tables) -> Self:
        """The same rows by their codes, with tables; statistics of shards are kept."""
        other = replace(self, X=codes, tables=tables)
        if self.stored:
            other.__dict__["found"] = self.statistics
        return other

    def identity(self) -> tuple[Any, ...]:
        """What distinguishes these rows from others; of shards, their digest."""
        X = f"shards {self.X.digest}" if self.stored else self.X
        tables = () if self.tables is None else self.tables.blocks
        if isinstance(X, Joined):
            return *self.targets, self.w, X.codes, X.every_key()
        return *self.targets, self.w, X.indices if isinstance(X, StoredRows) else X, *tables

    @property
    def statistics(self) -> Statistics:
        """What is known about the features before the fit, from one pass over them."""
        # Not a cached_property: in Python 3.11 it has a lock, which a forked child may find locked.
        if "found" not in self.__dict__:
            if self.stored:
                found = shard_statistics(self.X, self.n_threads, self.w)
            else:
                X, w = self._weighted()
                found = row_statistics(X, w=w)
            self.__dict__["found"] = found
        return self.__dict__["found"]

    def _weighted(self) -> tuple[Any, Floats | None]:
        """Rows with all values of the features, and their weights: of joined tables, their keys."""
        if not isinstance(self.X, Joined):
            return self.X, self.w
        return self.X.every_key(), self.X.frequencies(self.w)

    def units(self, standardize: bool, explicit: bool, names: Sequence[str] | None) -> Scaling:
        """The units of the features in which a model is trained; `names` are for messages."""
        if self.w is not None and not self.stored and not self.w.any():
            raise ValueError("the weights of all rows are zero")
        if self.stored and not self.statistics.weight:
            raise ValueError("the weights of all rows are zero")
        if self.tables is not None:
            return Scaling(None, None, np.ones(self.shape[1], bool), tables=self.tables)
        found = self.statistics
        check_largest(found.largest)
        if not found.weight:
            raise ValueError("the weights of all rows are zero")
        if not standardize:
            return Scaling.none(found)

        def column(positions: NDArray[np.intp]) -> str:
            j = int(positions[0])
            return f"column {j if names is None else repr(names[j])} of X"

        scaling = Scaling.standard(found, explicit)
        if self.fields is not None:
            scaling = scaling.in_fields(self._mean_squares(), self.fields)
        if len(lost := scaling.mostly_mean(0.95)):
            raise ValueError(
                f"the mean of {column(lost)} is so much larger than its deviation that predictions "
                "would have no digits left; subtract a constant from it"
            )
        if len(rounded := found.below_rounding()):
            warn(
                f"{column(rounded)} varies by no more than the rounding of its entries, and is "
                "ignored; subtract a constant from it, or rescale it"
            )
        if len(costly := scaling.mostly_mean(2 / 3)):
            warn(
                f"the mean of {column(costly)} is more than 1e5 times its deviation, which costs "
                "digits in predictions; subtract a constant from it"
            )
        return scaling

    def in_fields(
        self, fields: NDArray[np.intp] | None, activation: str
    ) -> tuple[Self, NDArray[np.intp] | None]:
        """The same rows with the fields of their columns, and the fields whose columns exclude.

        Rows with one 1 in each field are the codes of a factorization machine.
        """
        X, d = self.X, self.X.shape[1]
        if fields is None:
            return (self if issparse(X) else replace(self, fields=_kinds(X))), None
        P = X if issparse(X) else csr_array(X)
        sizes = np.bincount(fields)
        pairs = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr)) * len(sizes) + fields[P.indices]
        found, counts = np.unique(pairs, return_counts=True)
        shared = np.unique(found[counts > 1] % len(sizes))
        exclusive = np.where(np.isin(fields, shared) | (sizes[fields] == 1), -1, fields)
        complete = len(found) == len(pairs) == P.shape[0] * len(sizes) and (P.data == 1).all()
        if activation == "anova" and complete and (np.diff(fields) >= 0).all():
            p = replace(self, X=P)._mean_squares()
            tables = [level_table(part) for part in np.split(p, np.cumsum(sizes)[:-1])]
            return replace(self, X=P, tables=Tables(tables).orthogonal(p)), exclusive
        alone = np.full(d, -1) if issparse(X) else _kinds(X)
        return replace(self, fields=np.where(sizes[fields] == 1, alone, fields)), exclusive

    def _mean_squares(self) -> Floats:
        """The mean of x^2 of each feature, (d,)."""
        w = np.ones(self.X.shape[0]) if self.w is None else self.w
        if not issparse(self.X):
            return np.einsum("i,ij,ij->j", w, self.X, self.X, dtype=np.float64) / w.sum()
        each = np.repeat(w, np.diff(self.X.indptr)) * self.X.data.astype(np.float64) ** 2
        return np.bincount(self.X.indices, each, self.X.shape[1]) / w.sum()

    def within_span(self, scaling: Scaling, activation: str) -> Scaling:
        """The scaling for a model that is trained in the span of these rows."""
        if not (isinstance(self.X, np.ndarray) or issparse(self.X)) or self.tables is not None:
            return scaling
        with one_blas_thread():
            return scaling.within(self.X, activation)

    @property
    def target_moments(self) -> Moments:
        """Means and deviations of targets that are numbers."""
        return self.statistics.targets if self.stored else Moments.of(self.targets.values, self.w)

    def rows(self, scaling: Scaling, loss: Any, activation: str, fit_lower: str | None) -> Rows:
        """The rows as the core takes them, in the units of a scaling."""
        loss, targets = complete_loss(get_loss(loss)), self.targets
        if targets.table is not None:
            table = loss.encode(scaling.targets(targets.table), self.m)
            targets = targets._replace(table=table)
        elif not self.stored:
            targets = Targets(loss.encode(scaling.targets(targets.values), self.m))
        if self.stored:
            own = scaling._replace(tables=None)  # which the blocks do not need
            form = Form(activation, fit_lower, loss, self.m, targets.table, self.w, own)
            rows = Rows.of_shards(self.X, form, self.n_threads)
            return rows if scaling.tables is None else CodedRows(rows, scaling.tables)
        if isinstance(self.X, Joined):
            n_threads = default_threads(self.X) if self.n_threads is None else self.n_threads
            inner = "explicit" if activation == "anova" else fit_lower
            design = Design(self.X.codes, activation, fit_lower=inner, n_threads=n_threads)
            codes = Rows.of_block(Block(design, targets, loss, self.m, self.w))
            return self.X.rows_of(codes, scaling.factor, fit_lower)
        with one_blas_thread():
            X = scaling.features(self.X)
        n_threads = default_threads(X) if self.n_threads is None else self.n_threads
        design = Design(X, activation, fit_lower=fit_lower, n_threads=n_threads)
        rows = Rows.of_block(Block(design, targets, loss, self.m, self.w))
        return rows if scaling.tables is None else CodedRows(rows, scaling.tables)

    def background_sums(self, F: Floats, center: Floats | None) -> Sums:
        """Sums over the rows x - center as they were given, by which models explain themselves."""
        if self.stored:
            engine = self.X.engine or ThreadEngine(self.n_threads)
            return Sums(*engine.sum(self.X.listed(), shard_sums, self.w, F, center))
        if isinstance(self.X, Joined):  # some of its rows, which have all columns
            some = np.unique(np.linspace(0, len(self.X) - 1, BACKGROUND_ROWS).astype(int))
            other = replace(self._take(some), X=self.X[some].plain())
            return other.background_sums(F, center)
        n_threads = default_threads(self.X) if self.n_threads is None else self.n_threads
        X = self.X if center is None else ScaledRows(self.X, center, np.ones(len(center)))
        return Sums.of(as_matrix(X), self.w, F, n_threads)

    def score(self, model: Any) -> float:
        """The `score` of an estimator on these rows."""
        return model.score(self.X) if self.stored else model.score(self.X, self.y, self.w)


def _kinds(X: NDArray) -> NDArray[np.intp]:
    """-2 for columns of 0 and 1, -1 for others; see `Scaling.in_fields`."""
    return np.where(((X == 0) | (X == 1)).all(axis=0), -2, -1)


def as_fields(fields: Any, d: int) -> NDArray[np.intp] | None:
    """The field of each of d columns, from the sizes of fields, or from a name for each column."""
    if fields is None:
        return None
    given = [] if isinstance(fields, str) or not np.iterable(fields) else list(fields)
    if given and all(isinstance(each, str) for each in given):
        if len(given) != d:
            raise ValueError(f"fields must have a name for each of the {d} columns of X")
        return np.unique(given, return_inverse=True)[1]
    sizes = all(isinstance(each, (int, np.integer)) and each > 0 for each in given)
    if not given or not sizes or sum(given) != d:
        raise ValueError(
            f"fields must be sizes of groups of columns that add up to the {d} columns of X, or a "
            f"name for each column, got {shown(fields)}"
        )
    return np.repeat(np.arange(len(given)), given)


def shard_sums(shard: Shard, by_class: Floats | None, F: Floats, center: Floats | None) -> Sums:
    """`Sums` of one shard."""
    units = np.ones(F.shape[1])
    scaling = None if center is None else Scaling(center, units, units > 0)
    return Sums.of(shard.matrix(False, scaling), shard.weights(by_class), F)


def stored_targets(X: Any, y: Any, w: Any) -> tuple[Any, Any]:
    """y and weights as they are given, or those that shards hold."""
    return (X.targets(), X.weights()) if isinstance(X, Shards) and y is None else (y, w)


def strata(y: NDArray | None, task: str, share: float) -> NDArray | None:
    """The class or level of every row, (n,), where each can be in both parts of a split."""
    if y is None or task not in ("classification", "ordinal"):
        return None
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    held = math.ceil(share * len(codes))
    enough = counts.min() >= 2 and len(counts) <= min(held, len(codes) - held)
    return codes if enough else None


def validate(
    model: Any, X: Any, y: Any = "no_validation", reset: bool = True, **options: Any
) -> Any:
    """X, or X and y, as scikit-learn validates them; sparse ones in CSR form.

    Where X needs an encoding, it is the columns of a table, by name.
    """
    if isinstance(X, StoredRows):  # codes, checked before
        return X
    if isinstance(X, Joined):
        return validate_joined(model, X, y, reset, **options)
    if not reset and model._encoding is not None and issparse(X):
        model.model_.check_width(X.shape[1])
        return as_csr(X)  # codes of another form
    named = hasattr(model, "feature_names_in_")
    if issparse(X) and isinstance(y, str) and not reset and not named:
        return sparse_rows(model, X)
    columns = table_columns(model, X, reset)
    if columns is not None:
        if not isinstance(y, str):
            with explained_text(y, options.get("y_numeric", False)):
                y = validate_data(copy(model), y=checked_csr(y), **options)  # it forgets names
            check_consistent_length(y, next(iter(columns.values())).data)
        if reset:
            model.n_features_in_ = len(columns)
            vars(model).pop("feature_names_in_", None)
            if (names := frame_names(X)) is not None:
                model.feature_names_in_ = np.array(names, dtype=object)
        return columns if isinstance(y, str) else (columns, y)
    if isinstance(X, Mapping) and not issparse(X):  # for a model of numbers without an encoding
        model, X = copy(model), mapped_numbers(X, model)
        vars(model).pop("feature_names_in_", None)
    given = checked_csr(X), y if isinstance(y, str) else checked_csr(y)
    with explained_text(y, options.get("y_numeric", False)):
        found = validate_data(
            model, *given, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32],
            ensure_all_finite=True if issparse(X) else "allow-nan", **options,
        )  # fmt: skip
    X, *rest = found if isinstance(found, tuple) else (found,)
    if not issparse(X) and ((not reset and model._encoding is not None) or np.isnan(X).any()):
        X = array_columns(model, X, reset)
    return (X, *rest) if rest else X


def mapped_numbers(X: Mapping[str, Any], model: Any) -> NDArray:
    """The columns of a mapping as an array, in the order of the fit."""
    columns, names = read_columns(X), getattr(model, "feature_names_in_", list(X))
    if set(columns) != set(names):
        raise ValueError(f"X has the columns {list(columns)[:10]}, and not {list(names)[:10]}")
    return np.column_stack([columns[name].numbers() for name in names])


def array_columns(model: Any, X: NDArray, reset: bool) -> Any:
    """The columns of an array with gaps; filled, where the training had none."""
    if reset:
        return read_columns(X)
    if model._encoding is not None:
        return read_columns(dict(zip(model._encoding.names, X.T, strict=True)))
    center = model._scaling.center
    if center is None:
        raise ValueError("X has gaps (NaN), and the rows of the fit had none; fill them")
    return np.where(np.isnan(X), center.astype(X.dtype), X)


def validate_joined(model: Any, X: Joined, y: Any, reset: bool, **options: Any) -> Any:
    """`validate` for joined tables, which are checked already."""
    if reset:
        vars(model).pop("feature_names_in_", None)
        model.n_features_in_ = X.n_features
    else:
        model.model_.check_width(X.n_features)
    if isinstance(y, str):
        return X
    y = validate_data(copy(model), y=checked_csr(y), **options)
    check_consistent_length(y, X.codes)
    return X, y


def table_columns(model: Any, X: Any, reset: bool) -> dict[str, Column] | None:
    """The columns of a frame that is fitted, or whose model has an encoding."""
    if not is_frame(X):
        return None
    columns, known = read_columns(X), model._encoding
    if reset:
        return columns
    if known is None:
        for column in columns.values():
            if column.kind != "number":
                column.numbers()  # which names what is no number
        return None
    if all(f.kind == "number" and not f.missing for f in known.fields) and hasattr(X, "columns"):
        _check_feature_names(model, X, reset=False)  # as of any model of numbers
    return columns


def frame_names(X: Any) -> list[str] | None:
    """The names of the columns of a frame, if all are texts."""
    names = list(X if isinstance(X, Mapping) else getattr(X, "column_names", None) or X.columns)
    return names if all(isinstance(name, str) for name in names) else None


def sparse_rows(model: Any, X: Any) -> Any:
    """What scikit-learn checks of sparse rows to predict, in a tenth of its time for one row."""
    X, d = as_csr(X), model.n_features_in_
    if X.shape[1] != d:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {d} features as "
            "input"
        )
    if not X.shape[0]:
        raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}); give at least one row")
    return X  # the model checks its entries


@contextmanager
def explained_text(y: Any, numeric: bool) -> Iterator[None]:
    """Say what to do in the error that scikit-learn raises for text."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        values = np.asarray(y, dtype=object).ravel() if numeric else ()
        cure = "X holds text; give a frame, such as a pandas DataFrame, with a column for each kind"
        if any(isinstance(value, str) for value in values):
            cure = "y holds text; use a classifier"
        raise ValueError(f"{error}; {cure}") from None


def checked_csr(X: Any) -> Any:
    """X or y unchanged if dense; if sparse, in CSR form with checked indices."""
    if np.ma.is_masked(X):  # scikit-learn would take what is under the mask
        raise ValueError("X or y has masked entries; fill or remove them")
    return as_csr(X) if issparse(X) else X


def is_small(X: Any) -> bool:
    """Whether copies of X cost nothing and threads gain nothing."""
    return X.shape[0] * X.shape[1] <= SMALL_DATA_ENTRIES


def default_threads(X: Any) -> int | None:
    """The default number of threads; None leaves it to OpenMP.

    It is one for small data, where waking threads costs more than they save. It is also one in any
    thread but the main one, because such threads already share the cores.
    """
    return 1 if is_small(X) or current_thread() is not main_thread() else None


def column_names(y: Any) -> list[str] | None:
    """The column names of a frame of targets, if they can name outputs."""
    names = list(getattr(y, "columns", ()))
    return usable_names(names) if all(isinstance(name, str) for name in names) else None


def usable_names(names: Iterable[str]) -> list[str] | None:
    """Names if a model can have them: distinct, and without the character NUL."""
    names = list(names)
    usable = names and len(set(names)) == len(names) and not any("\0" in name for name in names)
    return names if usable else None
