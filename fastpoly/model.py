"""PolyModel: the numbers of a trained network, independent of how it was trained."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from fastpoly import decoding
from fastpoly.contributions import Reading, Sums
from fastpoly.kernels.checks import as_flag, as_float_array, as_weights, shown
from fastpoly.kernels.features import ACTIVATIONS, make_features
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.matrix import Matrix, ScaledRows, StoredRows, as_matrix
from fastpoly.state import Floats, Model
from fastpoly.storage.npz import read_model, write_model
from fastpoly.tables import Encoding


@dataclass(frozen=True, eq=False, repr=False)
class PolyModel(Reading):
    """A polynomial of degree 2 with m outputs: o(x) = V's(H x) + linear x + intercept.

    s is the squared activation (h'x)^2 or the ANOVA kernel sum_{i<j} h_i x_i h_j x_j of each
    basis vector; with `augment`, x is [1, x] inside s. Instances do not change: the arrays are
    copies and read-only. `==` compares contents.

    Parameters
    ----------
    H : array-like, (k, d), or (k, d + 1) with `augment`
        Basis vectors; with `augment` the weight of the constant comes first. k may be 0.
    V : array-like, (k, m)
        Output layer.
    intercept : array-like, (m,)
    linear : array-like, (m, d), or None
        Weights of the features themselves.
    activation : {"squared", "anova"}
    augment : bool
    feature_names : iterable of d str, or None
    output_names : iterable of m distinct str, or None
        An output can then be asked for by its name.
    task : {"regression", "rates", "classification", "multilabel", "ordinal"}
        What the outputs mean: numbers; logarithms of rates; scores of classes (a single output is
        the log odds of the second of two); log odds of labels; or, for each level but the last, log
        odds that y is at most that level.
    classes : array-like, or None
        Classes, (m,), or (2,) where m = 1; or ordinal levels, (m + 1,). Positions if None.
    level_values : array-like, (m + 1,), or None
        The numbers that ordinal levels stand for. By default they are the levels themselves, or
        the ranks 1 .. m + 1 where levels are not numbers.
    log_odds : bool
        Whether the outputs of classes, labels and levels are log odds, as those of a logistic loss
        are. Only then there are probabilities.
    encoding : Encoding, or None
        How rows of frames become features. `predict` and the others then take frames with the
        columns of the training, and features have the encoding's names.
    fields : array-like of int, (d,), or None
        Features with the same number are never nonzero in one row together, as one-hot columns of
        a field; -1 where there is no such field. An encoding knows its own.
    background : array-like, (2 + m, d), or None
        What `contributions` and standard units need to know of the training rows: means and
        deviations of the features, and for each output sum_j C_ij Cov(x_i, x_j), with the C of
        `interaction_matrix`. `with_background` computes it.

    Notes
    -----
    `save` writes a .npz file of these arrays by their names, which `numpy.load` reads, with
    `format_version` (2; files of 1 have neither fields nor background). What is None is left out,
    and so is a log_odds of True; an encoding has arrays `encoding.*` (`fastpoly.tables.encoding`).

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastpoly import PolyModel
    >>> model = PolyModel(H=[[1.0, 2.0, 3.0]], V=[[0.5, -1.0]], intercept=[0.0, 10.0], augment=True)
    >>> model
    PolyModel(squared, n_features=2, n_components=1, n_outputs=2)
    >>> X = np.array([[1.0, 1.0], [0.0, -1.0]])
    >>> model.decision(X)
    array([[ 18., -26.],
           [  2.,   6.]])

    A saved model, scored by NumPy alone. (For "anova", the activations are
    ``(Z ** 2 - (X1 ** 2) @ (H ** 2).T) / 2``; add ``X @ linear.T`` where there is `linear`.)

    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> model.save(path)
    >>> saved = np.load(path)
    >>> Z = np.column_stack([np.ones(len(X)), X]) @ saved["H"].T
    >>> Z**2 @ saved["V"] + saved["intercept"]
    array([[ 18., -26.],
           [  2.,   6.]])
    >>> PolyModel.load(path) == model
    True
    """

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {self.activation!r}")
        if self.task not in decoding.TASKS:
            raise ValueError(f"task must be one of {decoding.TASKS}, got {self.task!r}")
        augment = as_flag(self.augment, "augment")
        H = _copy(self.H, "H", (None, None))
        V = _copy(self.V, "V", (len(H), None))
        d, m = H.shape[1] - augment, V.shape[1]
        if not 1 <= d < 2**31:
            constant = " after that of the constant" if augment else ""
            raise ValueError(f"H must have columns for the features{constant}, got {H.shape}")
        if m < 1:
            raise ValueError(f"V must have a column for each output, got shape {V.shape}")
        names, fields = self._names_and_fields(d)
        # The one place that assigns to the fields of this frozen class, which are all it has.
        vars(self).update(
            H=H,
            V=V,
            intercept=_copy(self.intercept, "intercept", (m,)),
            linear=_copy(self.linear, "linear", (m, d)),
            activation=str(self.activation),
            augment=augment,
            feature_names=names,
            output_names=_names(self.output_names, "output_names", m),
            task=str(self.task),
            classes=_as_classes(self.classes, self.task, m),
            level_values=_as_level_values(self.level_values, self.task, m),
            log_odds=as_flag(self.log_odds, "log_odds"),
            fields=fields,
            background=_copy(self.background, "background", (2 + m, d)),
        )
        if self.output_names and len(set(self.output_names)) < m:
            raise ValueError(f"output_names must be distinct, got {self.output_names}")

    def _names_and_fields(self, d: int) -> tuple[Sequence[str] | None, NDArray[np.int64] | None]:
        """The names and fields that were given, or those of the encoding."""
        if self.encoding is None:
            names, fields = _names(self.feature_names, "feature_names", d), self.fields
        elif not isinstance(self.encoding, Encoding):
            raise TypeError(f"encoding must be an Encoding or None, got {shown(self.encoding)}")
        else:
            names, fields = self.encoding.column_names, self.encoding.exclusive
            if len(names) != d:
                raise ValueError(f"encoding makes {len(names)} features, but H has {d}")
        if fields is None:
            return names, None
        found = np.array(fields)
        if found.shape != (d,) or found.dtype.kind not in "iu" or (found < -1).any():
            raise ValueError(f"fields must be {d} integers >= -1, got {shown(fields)}")
        return names, _read_only(found.astype(np.int64))

    @classmethod
    def from_state(cls, state: Any, design: Any, *names: Any, **fields: Any) -> Self:
        """The model of a state of `conditional_gradient` on a Design.

        `names` and `fields` are `feature_names`, `output_names` and further parameters.

        Examples
        --------
        >>> import numpy as np
        >>> from fastpoly import Design, PolyModel, conditional_gradient
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> design = Design(X, "anova", fit_lower="explicit")
        >>> y = (X[:, 0] * X[:, 1] + X[:, 2])[:, None]
        >>> *_, state = conditional_gradient(design, y, loss="squared", alpha=0.01, random_state=0)
        >>> bool(np.abs(PolyModel.from_state(state, design).decision(X) - y).max() < 0.1)
        True
        """
        linear = None if state.linear is None else state.linear.T
        kind = design.activation, design.fit_lower == "augment"
        return cls(state.H, state.V, state.intercept, linear, *kind, *names, **fields)

    def parameters(self) -> Model:
        """H, V, intercept and linear as the algorithm has them: linear is (d, m)."""
        linear = None if self.linear is None else self.linear.T
        return Model(self.H, self.V, self.intercept, linear)

    def __repr__(self) -> str:
        return (
            f"PolyModel({self.activation}, n_features={self.n_features}, "
            f"n_components={self.n_components}, n_outputs={self.n_outputs})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PolyModel):
            return NotImplemented
        # array_equal compares the names and None, too.
        return all(np.array_equal(value, vars(other)[name]) for name, value in vars(self).items())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self).values())

    def decision(self, X: Any, n_threads: int | None = None) -> Floats:
        """Outputs of the polynomial, (n, m), without an n x k matrix; ValueError if they overflow.

        X (n, d) is what `Design` accepts: an array, a frame, scipy sparse, or a Matrix; float32 is
        not copied. Sparse rows with fewer entries than features cost by their entries, whatever d.
        """
        X, H, linear = self._with_columns_of(X)
        outputs = make_features(X, H, self.activation, n_threads).outputs(self.V)
        if linear is not None:
            outputs += LinearTerms(X).outputs(linear)
        outputs += self.intercept
        if not np.isfinite(outputs).all():
            raise ValueError("the outputs overflow: X is too large for this model; scale it down")
        return outputs

    def activations(self, X: Any, n_threads: int | None = None) -> Floats:
        """The activations s(H x) of all rows, (n, k): k features that were learned."""
        X, H, _ = self._with_columns_of(X)
        S = make_features(X, H, self.activation, n_threads).activations()
        if not np.isfinite(S).all():
            raise ValueError("activations overflow: X is too large for this model; scale it down")
        return S

    def check_width(self, n_features: int) -> None:
        """Raise unless rows with this number of features fit the model."""
        if n_features != self.n_features:
            raise ValueError(
                f"X has {n_features} features, but PolyModel is expecting {self.n_features} "
                "features as input"
            )

    def _encode(self, X: Any) -> Any:
        """Rows as the features of the model: those of a frame or an array by the encoding."""
        return self.encoding.rows(X) if self.encodes(X) else X

    def encodes(self, X: Any) -> bool:
        """Whether rows are not features yet."""
        are_features = isinstance(X, (Matrix, StoredRows)) or issparse(X)
        return self.encoding is not None and not are_features

    def _with_columns_of(self, X: Any) -> tuple[Matrix, Floats, Floats | None]:
        """X as a Matrix of the model's width, H, and the linear weights of its columns, or None.

        Where sparse rows have fewer entries than there are features, the three have only those
        features that occur (and the first, so that there is one).
        """
        X = as_matrix(self._encode(X), self.augment)
        self.check_width(X.d - X.augment)
        H, linear = self.H, self.linear
        if X.sparse and len(X.arrays[1]) < self.n_features:
            data, indices, indptr = X.arrays
            if X.n == 1 and len(indices):  # they increase
                columns, positions = indices, np.arange(len(indices), dtype=np.int32)
            else:
                columns, positions = np.unique(np.append(0, indices), return_inverse=True)
                positions = positions[1:].astype(np.int32)
            X = as_matrix(StoredRows((X.n, len(columns)), positions, data, indptr), self.augment)
            linear = None if linear is None else linear[:, columns]
            H = H[:, np.append(0, columns + 1) if self.augment else columns]
        if linear is None or not self.augment:
            return X, H, None if linear is None else linear.T
        return X, H, np.vstack([np.zeros(self.n_outputs), linear.T])  # the constant has no weight

    def decision_function(self, X: Any, n_threads: int | None = None) -> Floats:
        """Outputs in the form of scikit-learn: `decision`, but (n,) for two classes or one number.

        For two classes it is the output of the second minus that of the first.
        """
        return decoding.decision_values(self.decision(X, n_threads), self.task)

    def predict(self, X: Any, n_threads: int | None = None) -> NDArray[Any]:
        """Predicted targets: a number, a class, labels, or the expected level.

        Parameters
        ----------
        X : as in `decision`
        n_threads : int or None

        Returns
        -------
        ndarray
            "regression": the outputs, (n, m), or (n,) where m = 1. "classification": the class
            with the largest output. "multilabel": 0 or 1, (n, m). "ordinal": the expected level
            (of levels that are not numbers, their `level_values` or ranks).

        Examples
        --------
        >>> from fastpoly import PolyModel
        >>> model = PolyModel(
        ...     [[1.0]], [[1.0, -1.0]], [0.0, 2.0], task="classification", classes=["far", "near"]
        ... )
        >>> model.predict([[0.5], [2.0]])
        array(['near', 'far'], dtype='<U4')
        >>> model.predict_proba([[1.0]])
        array([[0.5, 0.5]])
        """
        O = self.decision(X, n_threads)
        return decoding.predictions(O, self.task, self.classes, self.level_values)

    def predict_proba(self, X: Any, n_threads: int | None = None) -> Floats:
        """Probabilities of classes or levels, whose rows sum to 1, or of labels, one by one.

        There is one column for each. Cumulative probabilities of levels that cross are sorted, so
        no probability is negative.
        """
        return self._probabilities(X, n_threads, log=False)

    def predict_log_proba(self, X: Any, n_threads: int | None = None) -> Floats:
        """Logarithms of `predict_proba`, without underflow; -inf where a level has none."""
        return self._probabilities(X, n_threads, log=True)

    def _probabilities(self, X: Any, n_threads: int | None, log: bool) -> Floats:
        numbers = self.task in ("regression", "rates")
        if numbers or not self.log_odds:
            what = "numbers" if numbers else "scores"
            raise ValueError(f"there are no probabilities: the outputs are {what}, not log odds")
        return decoding.probabilities(self.decision(X, n_threads), self.task, log)

    def with_background(
        self, X: Any, sample_weight: ArrayLike | None = None, n_threads: int | None = None
    ) -> Self:
        """The same model with rows X, as in `decision`, as the background of `contributions`."""
        X = self.features(X)
        w = as_weights(sample_weight, "sample_weight", X.n, some=True)
        if not X.n:
            raise ValueError("the background has no rows")
        center = None
        if not X.sparse:
            center = X.rows(slice(None)).mean(axis=0)
            X = as_matrix(ScaledRows(X.array, center, np.ones(X.d)))
        return self._with_sums(Sums.of(X, w, self.H[:, self.augment :], n_threads), center)

    def _with_sums(self, sums: Sums, center: Floats | None) -> Self:
        """The same model with a background of which the sums over rows x - center are known."""
        return replace(self, background=sums.background(center, self.terms(standardized=False)))

    def features(self, X: Any) -> Matrix:
        """X as a Matrix of the model's width, without the constant."""
        X = as_matrix(self._encode(X))
        self.check_width(X.d)
        return X

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a .npz file, without pickle, all or nothing."""
        write_model(path, vars(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. This is safe for any file: nothing is unpickled.

        ValueError if the file is damaged, of another version, or not a consistent model.
        """
        return read_model(path, cls)


def _copy(a: ArrayLike | None, name: str, shape: tuple[int | None, ...]) -> Any:
    if a is None and name in ("linear", "background"):
        return None
    return _read_only(as_float_array(a, name, shape).copy())


def _as_classes(classes: ArrayLike | None, task: str, m: int) -> NDArray[Any] | None:
    """Return a read-only copy of the classes or levels that m outputs stand for, or None."""
    if classes is None:
        return None
    if task not in ("classification", "ordinal"):
        raise ValueError(f"classes must be None for task={task!r}")
    count = m + (task == "ordinal" or m == 1)  # one output stands for two classes
    classes = np.array(classes)
    if classes.dtype.kind not in "UOifub":
        raise TypeError(f"classes must be numbers, strings or objects, got dtype {classes.dtype}")
    if classes.shape != (count,) or len(set(classes.tolist())) < count:
        raise ValueError(f"classes must be {count} distinct values, got shape {classes.shape}")
    return _read_only(classes)


def _as_level_values(values: ArrayLike | None, task: str, m: int) -> Floats | None:
    """Return a read-only copy of the increasing numbers that m + 1 levels stand for, or None."""
    if values is None:
        return None
    if task != "ordinal":
        raise ValueError(f"level_values must be None for task={task!r}")
    values = as_float_array(values, "level_values", (m + 1,)).copy()
    if (np.diff(values) <= 0).any():
        raise ValueError(f"level_values must increase, got {values.tolist()}")
    return _read_only(values)


def _read_only(a: NDArray[Any]) -> NDArray[Any]:
    a.setflags(write=False)
    return a


def _names(names: Iterable[str] | None, name: str, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = None if isinstance(names, str) else tuple(names)
    if names is None or not all(isinstance(each, str) for each in names):
        raise TypeError(f"{name} must be a sequence of str, or None")
    if len(names) != count:
        raise ValueError(f"{name} must have {count} entries, got {len(names)}")
    if any("\0" in each for each in names):
        raise ValueError(f"{name} must not contain the character NUL")
    return tuple(map(str, names))
