"""New levels and new rows for a fitted estimator: `fold_in` and `partial_fit`.

The output of a factorization machine is linear in the vector (h_j, w_j) of one column. So if every
row has at most one new level j, its vector solves a convex problem of k + m numbers, with all else
fixed: with z_i = H x_i of the known columns of row i,

    min  T sum_i w_i l(y_i, o_i + x_ij (w_j + V'(h_j * z_i))) + 1/2 |(h_j, w_j) - mu|^2_Lambda
"""

import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from fastpoly.estimators.advice import collected_warnings, warn
from fastpoly.estimators.data import TrainingRows, set_names, validate, validate_targets
from fastpoly.estimators.prediction import Predictor
from fastpoly.joined import Joined
from fastpoly.kernels.checks import LARGEST, as_array
from fastpoly.kernels.matrix import as_csr, as_matrix
from fastpoly.kernels.penalties import complete_penalty, get_penalty
from fastpoly.kernels.verbs import loss_curvature
from fastpoly.rows import Rows
from fastpoly.rows.block import Block, Targets, as_codes
from fastpoly.rows.design import check_largest, largest_size
from fastpoly.rows.statistics import Scaling
from fastpoly.state import Floats, Model, State
from fastpoly.storage.checkpoint import Stages
from fastpoly.strengths import as_start


class VectorPrior(NamedTuple):
    """A normal prior of (h_j, w_j), and the power T of the likelihood."""

    mean: Floats  # (k + m,), or (k,) without linear weights
    precision: Floats  # (k + m, k + m)
    temper: float = 1.0


class Arriving(Predictor):
    """The methods of estimators for what arrives after a fit."""

    _state: State
    _information: Model | None = None  # the curvature of all rows so far in each parameter

    def fold_in(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """The estimator with vectors for unseen levels, from a few rows; all else is fixed.

        A new user or item is a column of X that was 0 in all rows of the fit, or one beyond them:
        X may have more columns than before. Its vector minimizes the objective of the fit over
        these rows, which is a convex problem that takes less than a millisecond.

        Parameters
        ----------
        X : sparse, (n, d) or wider, or Joined
            Rows with one new level each. Others are ignored: first fold in new users with known
            items, then new items. `X.with_rows(rows, user=table)` joins a table with new users.
        y : array-like, (n,) or (n, m)
            Their targets: of the classes or levels of the fit.
        sample_weight : array-like, (n,), optional

        Returns
        -------
        estimator
            A fitted copy. This one stays as it is.

        Examples
        --------
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> from fastpoly import FactorizationMachineRegressor
        >>> taste, style = np.random.default_rng(0).standard_normal((2, 11))
        >>> def one_hot(items, users):  # of 10 items and 11 users
        ...     return csr_array(np.hstack([np.eye(10)[items], np.eye(11)[users]]))
        >>> items, users = np.divmod(np.arange(100), 10)
        >>> model = FactorizationMachineRegressor(alpha=0.1, random_state=0)
        >>> model = model.fit(one_hot(items, users), taste[users] * style[items])
        >>> rated, new = np.arange(8), np.full(8, 10)  # user 10 comes after the fit
        >>> wider = model.fold_in(one_hot(rated, new), taste[10] * style[rated])
        >>> rest = one_hot([8, 9], [10, 10])
        >>> bool(np.allclose(wider.predict(rest), taste[10] * style[[8, 9]], atol=0.1))
        True
        """
        return self._folded(X, y, sample_weight)

    def partial_fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *,
        classes: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Go on with rows that arrive; earlier rows are not needed.

        The first call is a fit. Later ones fold new levels in, then move the vectors, the linear
        weights and the intercept, with the curvature of all earlier rows as their precision. The
        output layer, the number of vectors and alpha stay, so fit again when much has changed.

        Parameters
        ----------
        X : array-like or sparse, (n, d)
            In later calls, sparse X may have more columns.
        y : array-like, (n,) or (n, m)
            The first ones must have all classes or levels.
        sample_weight : array-like, (n,), optional
        classes : array-like, optional
            All classes, in the first call: an error if y does not have all of them.

        Returns
        -------
        self
        """
        if not hasattr(self, "model_"):
            if classes is not None and not np.array_equal(np.unique(classes), np.unique(y)):
                raise ValueError("the first rows must have all classes, and no other ones")
            return self.fit(X, y, sample_weight)
        if self._information is None:
            raise ValueError(
                "partial_fit needs a model that was fitted on an array or a sparse matrix: of "
                "frames, Joined and shards the curvature of the rows is not kept; fit again"
            )
        centered = self._scaling.center is not None
        X = as_csr(X).toarray() if issparse(X) and centered else X
        new = issparse(X) and self._activation == "anova"  # levels, perhaps
        folded = self._folded(X, y, sample_weight) if new else copy.copy(self)
        folded._move(X, y, sample_weight)
        self.__dict__ = folded.__dict__
        return self

    def _remember(self, rows: Rows, own: Model | None = None) -> None:
        """Keep the curvature of the rows of a fit in memory, for `partial_fit`.

        `own` is the model in units and columns of the fit, where these rows have those columns.
        """
        self._information = None
        if rows.block is not None:  # not shards, or codes of a frame
            if own is not None:
                self._information = self._widen(curvature(rows, own))
                return
            model = self._scaling.unfold(self.model_.parameters(), self._activation)
            self._information = curvature(rows, model)

    def _folded(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, prior_of: Any = None
    ) -> Self:
        """`fold_in`; `prior_of` gives the prior of columns, in units of the fit."""
        check_is_fitted(self, "model_")
        if self._activation != "anova":
            raise ValueError("fold_in is for factorization machines: networks are not linear in a "
                             "column; fit again with the new rows")  # fmt: skip
        joined, places = X if isinstance(X, Joined) else None, np.arange(len(self._scaling.seen))
        if joined is not None:  # whose tables have the new keys already
            validate(self, X, reset=False)
            if self._column_names is not None:
                places = joined.places(self._column_names)
            X = X.plain()
        if not issparse(X) or self._scaling.center is not None or self._encoding is not None:
            raise ValueError(
                "fold_in needs sparse or joined X, and a model that was fitted on such X; of a "
                "frame of ids, fit Joined(frame, user=users, ...), whose tables have the new keys"
            )
        X, y = as_csr(X), as_array(y, "y")
        weight = None if sample_weight is None else as_array(sample_weight, "sample_weight")
        check_consistent_length(X, y, weight)
        if not np.isfinite(X.data).all():
            raise ValueError("X contains NaN or infinity; remove or impute these entries")
        check_largest(largest_size(as_matrix(X)))
        d = len(self._scaling.seen)
        if X.shape[1] < d:
            raise ValueError(f"X has {X.shape[1]} columns, the model {d}; X cannot have fewer")
        largest = np.zeros(X.shape[1])
        np.maximum.at(largest, X.indices, np.abs(X.data))
        seen = np.zeros(X.shape[1], dtype=bool)
        seen[places] = self._scaling.seen
        new = ~seen & (largest > 0)
        if joined is not None and joined.ids:  # a level of a table that no user had stays unknown
            new &= joined.id_columns
        other = self._widened(seen | new, np.where(new, largest, 1.0), places, joined)
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        chosen = np.flatnonzero(np.bincount(row, new[X.indices], X.shape[0]) == 1)
        lost = np.setdiff1d(np.flatnonzero(new), X[chosen].indices)
        if len(lost):
            warn(
                f"the new levels {lost[:5].tolist()} have no vectors: all of their rows have other "
                "new levels, too; fold in those first"
            )
        if not len(chosen):
            return other
        weight = None if weight is None else weight[chosen]
        rows = other._rows_for(X[chosen], y[chosen], weight, other._scaling)
        model = other._scaling.unfold(other.model_.parameters(), "anova")
        levels = np.flatnonzero(new)
        model.H[:, levels + model.H.shape[1] - len(new)] = 0.0  # the mean of draws has some noise
        if model.linear is not None:
            model.linear[levels] = 0.0
        if prior_of is None:
            prior = other._level_prior(model)
        else:
            prior = prior_of(model, X[chosen], levels)
        other._keep(with_levels(rows.block, model, levels, prior))
        return other

    def _widened(
        self, seen: NDArray[np.bool_], unit: Floats, places: NDArray[np.intp], joined: Joined | None
    ) -> Self:
        """A copy with more columns, whose vectors are 0; `unit` (d,) are those of new ones.

        `places` are those of the columns of the fit; `joined` names all of them.
        """
        other, scaling = copy.copy(self), self._scaling
        d = len(seen)

        def widen(model: Model) -> Model:
            augment, linear = model.H.shape[1] - len(places), model.linear
            H = np.zeros((len(model.H), augment + d))
            H[:, np.append(np.arange(augment), augment + places)] = model.H
            if linear is not None:
                linear = np.zeros((d, linear.shape[1]))
                linear[places] = model.linear
            return model._replace(H=H, linear=linear)

        factor = np.ones(d)
        factor[places] = 1.0 if scaling.factor is None else scaling.factor
        other._scaling = scaling._replace(factor=factor / unit, seen=seen)
        if d > len(places):
            set_names(other, d)
        if joined is not None:
            other._column_names, other._fields = joined.feature_names, joined.exclusive_fields
        if self._information is not None:
            other._information = widen(self._information)
        other._keep(widen(scaling.unfold(self.model_.parameters(), "anova")))
        return other

    def _keep(self, model: Model) -> None:
        """Make a model, in units of the fit, that of this estimator."""
        norms = np.linalg.norm(model.H, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        model = model._replace(H=model.H / norms, V=model.V * norms**2)
        folded, old = self._scaling.fold(model, self._activation), self._state
        kept = {name: getattr(old, name) for name in ("alpha", "alpha_linear", "n_iter")}
        self._state = replace(as_start(model, old.memory.seed), **kept)
        self._stages, self._columns = Stages().after(self._state, folded), None
        self._set_model(self._poly_model(folded))

    def _rows_for(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, scaling: Scaling
    ) -> Rows:
        """Rows with targets of the classes or levels of the fit, in its units."""
        X = validate(self, X, reset=False)
        check_largest(largest_size(as_matrix(X)))
        y, found, values = validate_targets(self, X, y)
        known = None if found is None else self.classes_
        if found is not None:
            places = {each: i for i, each in enumerate(known.tolist())}
            unknown = [each for each in found.tolist() if each not in places]
            if unknown:
                raise ValueError(f"y has {unknown[:3]}, which the fit did not have")
            values = np.array([places[each] for each in found.tolist()])[values]
        with collected_warnings():  # few rows with many levels are no reason to warn
            table, m, _ = self._encode(known, y.shape)
        if m != self.model_.n_outputs:
            raise ValueError(f"y has {m} columns, that of the fit {self.model_.n_outputs}")
        if known is None and not np.abs(scaling.targets(values)).max(initial=0.0) <= LARGEST:
            raise ValueError("y is too large beside the targets of the fit; fit again")
        values = values if table is None else as_codes(values, len(table))
        w = self._weights(X, y, sample_weight)
        data = TrainingRows(X, y, Targets(values, table), m, w, self.n_threads)
        return data.rows(scaling, self._model_loss(), self._activation, self.fit_lower)

    def _level_prior(self, model: Model) -> VectorPrior:
        """The objective of the fit: alpha |v_r| |h_r|^2 for all r, and the ridge."""
        if self.tau is not None:
            raise ValueError(
                "fold_in and partial_fit need a model that was fitted with alpha, not tau"
            )
        norms = complete_penalty(get_penalty(self.penalty)).row_norms(model.V)
        precision = 2 * self._state.alpha * np.asarray(norms)
        if model.linear is not None:
            precision = np.append(precision, [self._state.alpha_linear] * model.V.shape[1])
        return VectorPrior(np.zeros(len(precision)), np.diag(precision))

    def _move(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        """Descend on new rows, from a model whose precision is the curvature of earlier ones."""
        if issparse(X) and X.shape[1] < self.n_features_in_:
            X = as_csr(X).copy()
            X.resize((X.shape[0], self.n_features_in_))
        rows = self._rows_for(X, y, sample_weight, self._scaling)
        model = self._scaling.unfold(self.model_.parameters(), self._activation)
        k, ridge = len(model.H), np.diag(self._level_prior(model).precision)
        known, start = self._information, rows.pack(model)
        linear = None if known.linear is None else known.linear + ridge[k:]
        precision = rows.pack(known._replace(H=known.H + ridge[:k, None], linear=linear))
        scale = 1 / np.sqrt(precision + rows.pack(curvature(rows, model)) + 1e-12)
        rows.unpack(scale, k).V[:] = 0.0  # the output layer stays

        def value_grad(u: Floats) -> tuple[float, Floats]:
            g, step = np.empty_like(u), scale * u
            value = rows.value_grad(start + step, k, g)
            return value + 0.5 * float(precision @ step**2), scale * (g + precision * step)

        options = {"maxiter": 100}
        found = minimize(value_grad, 0 * start, jac=True, method="L-BFGS-B", options=options)
        model = rows.unpack(start + scale * found.x, k)
        more = curvature(rows, model)
        squares = (model.H**2).sum(axis=1, keepdims=True)  # vectors become units again
        linear = None if known.linear is None else known.linear + more.linear
        H, intercept = (known.H + more.H) * squares, known.intercept + more.intercept
        self._information = known._replace(H=H, intercept=intercept, linear=linear)
        self._keep(model)


def curvature(rows: Rows, model: Model) -> Model:
    """The curvature of the loss in each parameter, and 0 in the output layer."""
    basis, _, *lower = rows.diagonal_curvature(model, flat=True)
    intercept, linear = lower if rows.explicit else (np.zeros_like(model.intercept), None)
    return Model(basis, np.zeros_like(model.V), intercept, linear)


def with_levels(block: Block, model: Model, columns: NDArray[np.intp], prior: VectorPrior) -> Model:
    """The model with the vectors of new columns, by Newton's method for each of them.

    Every row of the block has one of these columns; there the model is 0.
    """
    data, indices, indptr = block.design.matrix.arrays
    n, augment = block.design.n_samples, block.design.matrix.augment
    X = csr_array((data, indices, indptr), shape=(n, model.H.shape[1] - augment))
    Z = X @ model.H[:, augment:].T + (model.H[:, 0] if augment else 0.0)
    O, Y, w = block.outputs(model), block.targets.by_row(), block.w
    entries = np.isin(indices, columns)
    own, x = indices[entries], data[entries].astype(np.float64)
    order = np.argsort(own, kind="stable")
    levels, starts = np.unique(own[order], return_index=True)
    H, linear = model.H.copy(), None if model.linear is None else model.linear.copy()
    for j, rows in zip(levels, np.split(order, starts[1:]), strict=True):
        J = (x[rows, None] * Z[rows])[:, None] * model.V.T  # (n, m, k)
        if linear is not None:
            unit = x[rows, None, None] * np.eye(len(model.V.T))
            J = np.concatenate([J, unit], axis=2)
        weights = None if w is None else w[rows]
        found = newton(block.loss, Y[rows], O[rows], J, weights, prior)
        H[:, j + augment] = found[: len(H)]
        if linear is not None:
            linear[j] = found[len(H) :]
    return model._replace(H=H, linear=linear)


def newton(
    loss: Any, Y: Floats, O: Floats, J: Floats, w: Floats | None, prior: VectorPrior
) -> Floats:
    """Minimize T l(Y, O + J t) + 1/2 |t - mean|^2 over t (p,), with J (n, m, p).

    The second derivatives of the loss are those of each output alone; for classes, whose outputs
    are coupled, that is a preconditioner.
    """
    t, flat = prior.mean.copy(), J.reshape(-1, J.shape[2])

    def value_grad(t: Floats) -> tuple[float, Floats, Floats]:
        now, pull = O + J @ t, prior.precision @ (t - prior.mean)
        value, D = loss.value_grad(Y, now, w)
        total = prior.temper * float(value) + 0.5 * float(pull @ (t - prior.mean))
        return total, prior.temper * (D.ravel() @ flat) + pull, now

    value, g, now = value_grad(t)
    tiny = 1e-10 * (1.0 + np.trace(prior.precision)) * np.eye(len(t))  # what nothing bounds is 0
    for _ in range(100):
        C = prior.temper * loss_curvature(loss, Y, now, w).ravel()
        step = np.linalg.solve((flat.T * C) @ flat + prior.precision + tiny, g)
        slope = float(g @ step)
        if slope <= 1e-10 * max(abs(value), 1e-12):
            break
        for size in 0.5 ** np.arange(27.0):
            after = value_grad(t - size * step)
            if after[0] <= value - 0.1 * size * slope:
                break
        else:
            break
        t, (value, g, now) = t - size * step, after
    return t
