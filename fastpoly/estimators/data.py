"""The rows of estimators: X and y, checked, and the training rows that the core sums over."""

import math
import re
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
    _check_n_features,
    check_consistent_length,
    validate_data,
)

from fastpoly.contributions import Sums
from fastpoly.estimators.advice import warn
from fastpoly.joined import Joined
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import BLOCK_DOUBLES, shown
from fastpoly.kernels.matrix import ScaledRows, StoredRows, as_csr, as_matrix
from fastpoly.rows import CodedRows, Design, Rows, Shards, Tables
from fastpoly.rows.block import Block, Form, Targets
from fastpoly.rows.design import check_largest
from fastpoly.rows.engine import ThreadEngine
from fastpoly.rows.rows import shard_statistics
from fastpoly.rows.shards import Shard
from fastpoly.rows.statistics import Scaling, Statistics, row_statistics
from fastpoly.state import Floats
from fastpoly.strengths import Search
from fastpoly.tables.fields import level_table
from fastpoly.tables.frames import Column, is_frame, names_of, read_columns

# Entries of X (1 MB) up to which copies cost nothing and threads gain nothing.
SMALL_DATA_ENTRIES = BLOCK_DOUBLES // 8

# What is wrong with a column, whose name takes the place of {}.
NO_DIGITS = (
    "the mean of {} is so much larger than its deviation that predictions would have no digits "
    "left; subtract a constant from it"
)
ROUNDED = (
    "{} varies by no more than the rounding of its entries, and is ignored; subtract a constant "
    "from it, or rescale it"
)
FEW_DIGITS = (
    "the mean of {} is more than 1e5 times its deviation, which costs digits in predictions; "
    "subtract a constant from it"
)


# --- X and y ---


def validate(model: Any, X: Any, reset: bool = True) -> Any:
    """X as scikit-learn validates it: an array, CSR, or `Joined` tables.

    Where it needs an encoding, it is a dict of the columns of a table, by name. `reset` says that
    the model is fitted to X, and has not been fitted to the same columns before.
    """
    if isinstance(X, Joined):
        if not reset:
            return in_columns(model, X)
        set_names(model, X.n_features)
    if isinstance(X, (Joined, StoredRows)):  # codes, checked before
        return X
    if issparse(X):
        return _sparse_rows(model, X, reset)
    cure = "give a frame, such as a pandas DataFrame, with a column for each kind"
    with explain_text(f"X holds text; {cure}"):
        return _frame_rows(model, X, reset) if is_frame(X) else _array_rows(model, X, reset)


def in_columns(model: Any, X: Joined) -> Joined:
    """Joined rows with the columns of the fit; ValueError if their tables are others."""
    if model._column_names is not None:
        return X.in_columns(model._column_names)
    model.model_.check_width(X.n_features)
    return X


def validate_targets(model: Any, X: Any, y: Any) -> tuple[NDArray, NDArray | None, NDArray]:
    """y as scikit-learn validates it, and its classes with their codes, or None and numbers."""
    with explain_text("y holds text; use a classifier"):
        y = validate_data(  # of a copy, because it forgets names
            copy(model), y=check_csr(y), multi_output=True, y_numeric=model._numeric_targets
        )
        check_consistent_length(next(iter(X.values())).data if isinstance(X, dict) else X, y)
        return model._split_targets(y)


def _sparse_rows(model: Any, X: Any, reset: bool) -> csr_array:
    """CSR. To predict takes a tenth of the time of scikit-learn for one row."""
    X = as_csr(X)
    if reset:
        return validate_data(model, X, accept_sparse="csr", dtype=[np.float64, np.float32])
    if model._encoding is not None:  # codes of another form
        model.model_.check_width(X.shape[1])
        return X
    if hasattr(model, "feature_names_in_"):
        _check_feature_names(model, X, reset=False)
    if X.shape[1] != model.n_features_in_:
        _check_n_features(model, X, reset=False)  # whose error says so
    if not X.shape[0]:
        raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}); give at least one row")
    # Its entries are checked by the model.
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _array_rows(model: Any, X: Any, reset: bool) -> Any:
    """An array; its columns if it has gaps. Where training had none, they are filled."""
    dtypes = [np.float64, np.float32]
    X = validate_data(model, check_csr(X), reset=reset, dtype=dtypes, ensure_all_finite="allow-nan")
    known = None if reset else model._encoding
    if known is not None:
        return read_columns(dict(zip(known.names, X.T, strict=True)))
    if not np.isnan(X).any():
        return X
    if reset:
        return read_columns(X)
    center = model._scaling.center
    if center is None:
        raise ValueError("X has gaps (NaN), and the rows of the fit had none; fill them")
    return np.where(np.isnan(X), center.astype(X.dtype), X)


def _frame_rows(model: Any, X: Any, reset: bool) -> Any:
    """The columns of a frame, or an array where the model has no encoding."""
    columns, known = read_columns(X), None if reset else model._encoding
    if not next(iter(columns.values())).size:
        raise ValueError("X has no rows; give at least one")
    if reset:
        names = names_of(X)
        set_names(model, len(names), names)
        return columns
    if known is not None:
        plain = all(field.kind == "number" and not field.missing for field in known.fields)
        if plain and not isinstance(X, Mapping):
            _check_feature_names(model, X, reset=False)
        return columns
    for column in columns.values():
        if column.kind != "number":
            column.numbers()  # which names what is no number
    if isinstance(X, Mapping):
        names = list(getattr(model, "feature_names_in_", columns))
        if set(columns) != set(names):
            raise ValueError(f"X has the columns {list(columns)[:10]}, and not {names[:10]}")
        X = np.column_stack([columns[name].numbers() for name in names])
        model = copy(model)  # names are checked
        set_names(model, model.n_features_in_)
    return _array_rows(model, X, reset)


def plain_numbers(columns: Mapping[str, Column]) -> NDArray | None:
    """The columns of a table as an array, if all are numbers without gaps."""
    if any(column.kind != "number" for column in columns.values()):
        return None
    X = np.column_stack([column.numbers() for column in columns.values()])
    return None if np.isnan(X).any() else X


def set_names(model: Any, d: int, names: Sequence[Any] | None = None) -> None:
    """Set `n_features_in_`, and `feature_names_in_` if all names are texts."""
    model.n_features_in_ = d
    vars(model).pop("feature_names_in_", None)
    if names is not None and all(isinstance(name, str) for name in names):
        model.feature_names_in_ = np.array(names, dtype=object)


@contextmanager
def explain_text(cure: str) -> Iterator[None]:
    """Say what to do in the errors of scikit-learn for text, and for objects such as dates."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "could not convert string" in str(error):
            text = re.sub(r"np\.str_\((.*)\)", r"\1", str(error))
        elif "must be a string or a real number" in str(error):
            text, cure = str(error), "make numbers of such values, such as the days of dates"
        else:
            raise
        raise type(error)(f"{text}; {cure}") from None


def check_csr(X: Any) -> Any:
    """X or y unchanged if dense; if sparse, in CSR form with checked indices."""
    if np.ma.is_masked(X):  # scikit-learn would take what is under the mask
        raise ValueError("X or y has masked entries; fill or remove them")
    return as_csr(X) if issparse(X) else X


def usable_names(names: Iterable[Any]) -> list[str] | None:
    """Names if a model can have them: distinct texts, without the character NUL."""
    names = list(names)
    texts = all(isinstance(name, str) and "\0" not in name for name in names)
    return names if names and texts and len(set(names)) == len(names) else None


def as_fields(fields: Any, d: int) -> NDArray[np.intp] | None:
    """The field of each of d columns, from the sizes of fields, or from a name for each column."""
    if fields is None:
        return None
    given = [] if isinstance(fields, str) or not np.iterable(fields) else list(fields)
    if len(given) == d and all(isinstance(each, str) for each in given):
        return np.unique(given, return_inverse=True)[1]
    sizes = all(isinstance(each, (int, np.integer)) and each > 0 for each in given)
    if not given or not sizes or sum(given) != d:
        raise ValueError(
            f"fields must be sizes of groups of columns that add up to the {d} columns of X, or a "
            f"name for each column, got {shown(fields)}"
        )
    return np.repeat(np.arange(len(given)), given)


def strata(y: NDArray | None, task: str, share: float) -> NDArray | None:
    """The class or level of every row, (n,), where each can be in both parts of a split."""
    if y is None or task not in ("classification", "ordinal"):
        return None
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    held = math.ceil(share * len(codes))
    enough = counts.min() >= 2 and len(counts) <= min(held, len(codes) - held)
    return codes if enough else None


def split_rows(y: NDArray, task: str, share: float, seed: int | None) -> list[NDArray[np.intp]]:
    """The numbers of rows to train on and of a share held out, by class or level where possible."""
    rows, by = np.arange(len(y)), strata(y, task, share)
    return train_test_split(rows, test_size=share, random_state=seed, stratify=by)


def is_small(X: Any) -> bool:
    """Whether copies of X cost nothing and threads gain nothing."""
    return X.shape[0] * X.shape[1] <= SMALL_DATA_ENTRIES


def threads_for(X: Any, n_threads: int | None) -> int | None:
    """The number of threads, if given; one for small X, and where threads share the cores."""
    if n_threads is None and (is_small(X) or current_thread() is not main_thread()):
        return 1
    return n_threads


# --- training rows ---


@dataclass(frozen=True)
class TrainingRows:
    """Checked rows of a fit: an array, CSR, codes, `Joined` tables, or shards.

    Shards hold their targets: then y is None, `targets` have no values, only a table if they are
    classes, and w (n_classes,) are weights of classes. `tables` are those of codes. `fields` (d,)
    are for `Scaling.in_fields`. `search` chose the form of these rows.
    """

    X: Any
    y: Any
    targets: Targets
    m: int
    w: Floats | None
    n_threads: int | None = None
    tables: Tables | None = None
    fields: NDArray[np.intp] | None = None
    search: Search | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return (self.X.n_samples, self.X.n_features) if self.stored else self.X.shape

    @property
    def stored(self) -> bool:
        """Whether the rows are in shards."""
        return isinstance(self.X, Shards)

    @property
    def joined(self) -> Joined | None:
        """The tables of keys, where the rows have some."""
        return self.X if isinstance(self.X, Joined) else self.X.joined if self.stored else None

    @property
    def is_small(self) -> bool:
        """Whether a pass over the rows is cheap."""
        return not self.stored and is_small(self.X)

    def hold_out(self, share: float, seed: int, task: str) -> tuple[Self, Self]:
        """Rows to train on and rows to validate with, by class or level where there are any."""
        if self.stored:
            train, held = self.X.split(1 - share, share, seed=seed)
            return replace(self, X=train), replace(self, X=held)
        train, held = split_rows(self.y, task, share, seed)
        return self._take(train), self._take(held)

    def _take(self, rows: NDArray[np.intp]) -> Self:
        coded, w = isinstance(self.X, StoredRows), None if self.w is None else self.w[rows]
        shape = len(rows), self.X.shape[1]
        X = StoredRows(shape, self.X.indices[rows]) if coded else self.X[rows]
        targets = self.targets.take(rows)
        return replace(self, X=X, y=self.y[rows], targets=targets, w=w, search=None)

    def with_tables(self, codes: Any, tables: Tables) -> Self:
        """The same rows by their codes, with tables; statistics of shards are kept."""
        other = replace(self, X=codes, tables=tables)
        if self.stored:
            other.__dict__["found"] = self.statistics
        return other

    def identity(self) -> tuple[Any, ...]:
        """What distinguishes these rows from others; of shards, their digest."""
        tables = [] if self.tables is None else self.tables.blocks
        X, tables = self.X, tables if self.joined is None else [self.joined.every_key()]
        if self.stored:
            X = f"shards {X.digest}"
        elif isinstance(X, (StoredRows, Joined)):
            X = X.indices if isinstance(X, StoredRows) else X.codes
        return *self.targets, self.w, X, *tables

    @property
    def statistics(self) -> Statistics:
        """What is known about the features before the fit, from one pass over them."""
        # Not a cached_property: in Python 3.11 it has a lock, which a forked child may find locked.
        if "found" not in self.__dict__:
            if self.stored:
                found = shard_statistics(self.X, self.n_threads, self.w)
                if self.joined is not None:
                    keys = row_statistics(self.joined.every_key(), w=found.by_column)
                    found = replace(found, largest=keys.largest, by_column=keys.by_column)
            elif isinstance(self.X, Joined):  # every key has all values of its features
                w = np.ones(len(self.X)) if self.w is None else self.w
                found = row_statistics(self.X.every_key(), w=self.X.codes.T @ w)
            else:
                found = row_statistics(self.X, w=self.w)
            self.__dict__["found"] = found
        return self.__dict__["found"]

    def units(self, standardize: bool, explicit: bool, names: Sequence[str] | None) -> Scaling:
        """The units of the features in which a model is trained; `names` are for messages."""
        w = self.w
        if not (self.statistics.weight if self.stored else w is None or w.any()):
            raise ValueError("the weights of all rows are zero")
        if self.tables is not None:
            return Scaling(None, None, np.ones(self.shape[1], bool), tables=self.tables)
        found = self.statistics
        check_largest(found.largest)
        if not standardize:
            return Scaling.none(found)
        scaling = Scaling.standard(found, explicit)
        if self.fields is not None:
            scaling = scaling.in_fields(self._mean_squares(), self.fields)
        for columns, complaint in (
            (scaling.mostly_mean(0.95), NO_DIGITS),
            (found.below_rounding(), ROUNDED),
            (scaling.mostly_mean(2 / 3), FEW_DIGITS),
        ):
            if len(columns):
                j = int(columns[0])
                text = complaint.format(f"column {j if names is None else repr(names[j])} of X")
                if complaint is NO_DIGITS:
                    raise ValueError(text)
                warn(text)
        return scaling

    def in_fields(
        self, fields: NDArray[np.intp] | None, activation: str
    ) -> tuple[Self, NDArray[np.intp] | None]:
        """The same rows with the fields of their columns, and the fields whose columns exclude.

        Rows with one 1 in each field are the codes of a factorization machine.
        """
        X = self.X
        # -2 for columns of 0 and 1, -1 for others, as in `Scaling.in_fields`.
        zero_one = False if issparse(X) else ((X == 0) | (X == 1)).all(axis=0)
        alone = np.where(zero_one, -2, np.full(X.shape[1], -1))
        if fields is None:
            return (self if issparse(X) else replace(self, fields=alone)), None
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
        return replace(self, fields=np.where(sizes[fields] == 1, alone, fields)), exclusive

    def _mean_squares(self) -> Floats:
        """The mean of x^2 of each feature, (d,)."""
        w = np.ones(self.X.shape[0]) if self.w is None else self.w
        if issparse(self.X):
            return self.X.astype(np.float64).power(2).T @ w / w.sum()
        return np.einsum("i,ij,ij->j", w, self.X, self.X, dtype=np.float64) / w.sum()

    def within_span(self, scaling: Scaling, activation: str) -> Scaling:
        """The scaling for a model that is trained in the span of these rows."""
        if not (isinstance(self.X, np.ndarray) or issparse(self.X)) or self.tables is not None:
            return scaling
        with one_blas_thread():
            return scaling.within(self.X, activation)

    def rows(self, scaling: Scaling, loss: Any, activation: str, fit_lower: str | None) -> Rows:
        """The rows as the core takes them, in the units of a scaling, for a complete loss."""
        targets, joined = self.targets, self.joined
        if targets.table is not None:
            table = loss.encode(scaling.targets(targets.table), self.m)
            targets = targets._replace(table=table)
        elif not self.stored:
            targets = Targets(loss.encode(scaling.targets(targets.values), self.m))
        within = joined is not None and activation == "anova"  # its pairs are linear terms of keys
        lower = "explicit" if within else fit_lower
        if self.stored:
            own = scaling._replace(tables=None)  # which the blocks do not need
            own = own if joined is None else own._replace(factor=None)
            form = Form(activation, lower, loss, self.m, targets.table, self.w, own)
            rows = Rows.of_shards(self.X, form, self.n_threads)
        else:
            with one_blas_thread():
                X = scaling.features(self.X) if joined is None else joined.codes
            n_threads = threads_for(self.X if joined is not None else X, self.n_threads)
            design = Design(X, activation, fit_lower=lower, n_threads=n_threads)
            rows = Rows.of_block(Block(design, targets, loss, self.m, self.w))
        if joined is not None:
            return joined.rows_of(rows, scaling.factor, fit_lower)
        return rows if scaling.tables is None else CodedRows(rows, scaling.tables)

    def background_sums(self, F: Floats, center: Floats | None) -> Sums:
        """Sums over the rows x - center as they were given, by which models explain themselves."""
        if self.joined is not None:  # of some of the rows, with all columns
            if self.stored:
                indices, ends = next(iter(self.X)).matrix(False).arrays[1:]
                n = min(len(ends) - 1, 10_000)
                shape = n, self.X.manifest.n_features
                P = csr_array((np.ones(ends[n]), indices[: ends[n]], ends[: n + 1]), shape=shape)
                some = replace(self, X=P @ self.joined.every_key(), w=None)
            else:
                chosen = np.unique(np.linspace(0, len(self.X) - 1, 10_000).astype(int))
                some = self._take(chosen)
                some = replace(some, X=some.X.plain())
            return some.background_sums(F, center)
        if self.stored:
            engine = self.X.engine or ThreadEngine(self.n_threads)
            return Sums(*engine.sum(self.X.list, shard_sums, self.w, F, center))
        X = self.X if center is None else ScaledRows(self.X, center, np.ones(len(center)))
        return Sums.of(as_matrix(X), self.w, F, threads_for(self.X, self.n_threads))


def shard_sums(shard: Shard, by_class: Floats | None, F: Floats, center: Floats | None) -> Sums:
    """`Sums` of one shard."""
    units = np.ones(F.shape[1])
    scaling = None if center is None else Scaling(center, units, units > 0)
    return Sums.of(shard.matrix(False, scaling), shard.weights(by_class), F)
