"""PosteriorAverage: the mean of many models around a fitted one, as one small model."""

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from scipy.stats import norm
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from fastpoly.decoding import level_probabilities, level_values
from fastpoly.estimators.advice import warn
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import validate
from fastpoly.kernels.checks import as_count
from fastpoly.model import PolyModel
from fastpoly.objective import Objective
from fastpoly.path import walk
from fastpoly.posterior import Average, Chain, Watch, composite_temper
from fastpoly.rows import Design, Rows
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Rows whose outputs are watched: for R-hat, the temper and the calibration.
WATCHED_ROWS = 1000
# Above it, the two halves of a chain differ by more than a third of their deviation.
MIXED_RHAT = 1.1
# The chain has at least that many vectors; on MovieLens 20 are better than 10 by .001 RMSE.
CHAIN_VECTORS = 20
LIKELIHOODS = ("squared", "poisson", "multiclass_logistic", "binary_logistic")


def _has(name: str) -> Callable[[Any], Callable]:
    """A condition for `available_if`: the estimator has the method."""

    def check(average: "PosteriorAverage") -> bool:
        getattr(getattr(average, "estimator_", average.estimator), name)
        return True

    return available_if(check)


class PosteriorAverage(MetaEstimatorMixin, BaseEstimator):
    """Average a model over its posterior distribution, and keep the mean as one small model.

    The estimator is fitted first. A chain of models starts there, with normal priors for every
    field of columns instead of the penalty, and the mean of its draws is compressed into one
    ordinary model. This pays off for factorization machines on sparse one-hot rows, such as
    ratings, where a single best model is too sure of rare levels. Elsewhere it works, and seldom
    gains anything.

    Parameters
    ----------
    estimator : estimator
        One of the six estimators of fastpoly, with alpha (not tau), and a loss that is a
        likelihood: "squared", "logistic" or "poisson".
    n_samples : int, default=200
        Draws that are averaged, after the warm-up. At least 2.
    n_warmup : int, default=30
        Draws that are left out.
    n_components : int, default=12
        The most basis vectors of the mean.
    fields : list of int, optional
        Sizes of the fields: how many neighboring columns of X belong to each. By default the
        fields of one-hot rows are found in X, if every row has one entry in each of them;
        otherwise all columns are one field.
    verbose : int, default=0
        1 or more shows a progress bar.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator, whose `model_` is the mean.
    model_ : PolyModel
        The mean.
    n_draws_ : int
        Draws that are kept for deviations, intervals and samples.
    rhat_ : float
        Split R-hat of the outputs of some rows, a median; near 1 where the chain has mixed.
    effective_draws_ : float
        To how many independent draws the chain amounts, for the same rows.
    missed_ : float
        Share of the squares of the mean's quadratic part that `model_` does not have.
    temper_ : float
        Power of the likelihood. It is below 1 for ordered levels, whose loss counts every row
        several times. For the squared loss it is the precision of the noise, in standard units.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from fastpoly import FactorizationMachineRegressor, PosteriorAverage
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.integers(0, 20, size=(1000, 2))
    >>> taste, style = rng.standard_normal((2, 20))
    >>> y = taste[pairs[:, 0]] * style[pairs[:, 1]] + 0.5 * rng.standard_normal(1000)
    >>> X = OneHotEncoder().fit_transform(pairs)
    >>> machine = FactorizationMachineRegressor(random_state=0)
    >>> model = PosteriorAverage(machine, n_samples=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:2], return_std=True)
    >>> mean.shape, bool((std > 0.4).all())
    ((2,), True)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_samples: int = 200,
        n_warmup: int = 30,
        n_components: int = 12,
        fields: list[int] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_samples = n_samples
        self.n_warmup = n_warmup
        self.n_components = n_components
        self.fields = fields
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.input_tags = inner.estimator_type, inner.input_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags = inner.target_tags
        return tags

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the estimator, run the chain, and keep the mean.

        Ctrl-C during the chain keeps the mean of the draws so far, if there are two.

        Parameters
        ----------
        X, y, sample_weight
            As for the estimator.

        Returns
        -------
        self
        """
        self._check()
        estimator: PolyEstimator = clone(self.estimator)
        with warnings.catch_warnings():  # a chain may have vectors where its start has none
            warnings.filterwarnings("ignore", "the model has no basis vectors")
            estimator.fit(X, y, sample_weight)
        name = estimator._model_loss()
        if name not in LIKELIHOODS:
            raise ValueError(
                "PosteriorAverage needs a loss that is a likelihood, by its name: squared, "
                f"logistic or poisson, not {estimator.loss!r}"
            )
        data = estimator._prepare(X, y, sample_weight)
        estimator._scaling = estimator._units(data)
        objective = estimator._objective(data)
        objective = objective.at(estimator.alpha_, getattr(estimator, "alpha_linear_", None))
        loss = objective.problem.loss
        start = self._start(estimator, objective)
        if not len(start.H):
            raise ValueError(
                "the fitted model has no basis vectors, so there is nothing to average; give the "
                "estimator a smaller alpha"
            )
        fields = self._fields(objective.rows)
        seed = PolyEstimator._seed(self)  # type: ignore[arg-type]
        outputs, O = watched(objective.rows, fields, start, np.random.default_rng(seed))
        temper = None if name == "squared" else 1.0
        if estimator._task == "ordinal":
            temper = composite_temper(O)
        chain = Chain(objective, start, fields, seed, temper)
        average, watch = Average(objective, fields), Watch(outputs, loss.target)
        self._run(chain, average, watch)
        model, self.missed_ = average.model(self.n_components)
        model = watch.calibrate(model)
        unit, activation = estimator._scaling, estimator._activation
        self.estimator_ = estimator._with_model(unit.fold(model, activation))
        self._draws = [
            estimator._poly_model(unit.fold(_doubles(draw), activation)) for draw in average.draws
        ]
        self.n_draws_, self.temper_ = len(self._draws), chain.temper
        target_unit = 1.0 if unit.target_unit is None else unit.target_unit
        self._noise = np.asarray(target_unit) / np.sqrt(chain.temper)
        self.rhat_, self.effective_draws_ = watch.rhat(), watch.effective_draws()
        if self.rhat_ > MIXED_RHAT:
            warn(
                f"the chain has not mixed: R-hat is {self.rhat_:.2f}, and its draws amount to "
                f"{self.effective_draws_:.0f} independent ones; raise n_samples or n_warmup"
            )
        return self

    def _check(self) -> None:
        if not isinstance(self.estimator, PolyEstimator):
            raise TypeError(
                "estimator must be one of the six estimators of fastpoly, got "
                f"{type(self.estimator).__name__}"
            )
        if self.estimator.tau is not None:
            raise ValueError("estimator must have alpha, not tau: a ball has no posterior")
        for name, least in (("n_samples", 2), ("n_components", 1), ("n_warmup", 0)):
            if as_count(getattr(self, name) + (least == 0), name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def _start(self, estimator: PolyEstimator, objective: Objective) -> Model:
        """The fitted model, with more vectors from smaller alphas where it has few."""
        options = estimator._options(finish=False)
        wanted = min(CHAIN_VECTORS, options.n_components)
        start = estimator._scaling.unfold(estimator.model_.parameters(), estimator._activation)
        alphas = objective.problem.alpha * 0.5 ** np.arange(1, 4)
        if len(start.H) < wanted and estimator.alpha is None:
            for _, state in walk(objective, alphas, options, estimator._state):
                start = state.model
                if state.n_components >= wanted:
                    break
        return start.nonzero()

    def _fields(self, rows: Rows) -> NDArray[np.intp]:
        """The field of every column of the rows."""
        d = rows.n_features - (rows.fit_lower == "augment")
        if self.fields is None:
            sizes = one_hot_fields(rows)
        else:
            sizes = [as_count(size, "fields") for size in self.fields]
            if sum(sizes) != d:
                raise ValueError(f"fields must add up to the {d} columns of X, got {sum(sizes)}")
        labels = np.repeat(np.arange(len(sizes)), sizes)
        return np.append(labels, len(sizes))[np.r_[-1, :d]] if d < rows.n_features else labels

    def _run(self, chain: Chain, average: Average, watch: Watch) -> None:
        """Draw; keep what comes after the warm-up."""
        draws = range(self.n_warmup + self.n_samples)
        try:
            for i in tqdm(draws, "draws", disable=not self.verbose, leave=False):
                model = chain.draw()
                if i >= self.n_warmup:
                    average.add(model)
                    watch.add(model)
        except KeyboardInterrupt:
            if average.count < 2:
                raise
            warn(f"interrupted: the mean is that of {average.count} draws")

    # --- the fitted model ---

    @property
    def model_(self) -> PolyModel:
        """The mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.model_

    @property
    def classes_(self) -> NDArray:
        """The classes or levels."""
        return self.estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """The number of features."""
        return self.estimator_.n_features_in_

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict with the mean.

        Parameters
        ----------
        X : as for the estimator
        return_std : bool
            Whether to return the deviation of a new observation, too; for numbers and levels.

        Returns
        -------
        ndarray, or with `return_std` two of them
        """
        check_is_fitted(self, "estimator_")
        mean = self.estimator_.predict(X)
        return (mean, self._std(X)) if return_std else mean

    def _std(self, X: Any) -> Floats:
        """The deviation of new observations, from the variance between and within draws."""
        task = self._numeric_task()
        X = validate(self.estimator_, X, reset=False)
        O = np.array([draw.decision(X) for draw in self._draws])
        if task == "regression":
            std = np.sqrt(O.var(axis=0) + self._noise**2)
            return std[:, 0] if std.shape[1] == 1 else std
        values = self._values()
        P = np.array([level_probabilities(o) for o in O])
        within = (P @ values**2 - (P @ values) ** 2).mean(axis=0)
        return np.sqrt((P @ values).var(axis=0) + within)

    def _numeric_task(self) -> str:
        task = self.estimator_.model_.task
        if task not in ("regression", "ordinal"):
            raise ValueError(
                "deviations and intervals are for numbers with the squared loss and for levels; "
                "predict_proba says how sure classes, labels and rates are"
            )
        return task

    def _values(self) -> Floats:
        model = self.estimator_.model_
        count = len(model.classes)
        return level_values(model.classes, count) if model.level_values is None else (
            model.level_values
        )  # fmt: skip

    def predict_interval(self, X: Any, coverage: float = 0.8) -> Floats:
        """Intervals that hold a new observation with this probability.

        Parameters
        ----------
        X : as for the estimator
        coverage : float, between 0 and 1

        Returns
        -------
        ndarray, (n, 2) or (n, 2, m)
            Lower and upper ends; for levels, levels.
        """
        check_is_fitted(self, "estimator_")
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        tail = 0.5 * (1 - coverage)
        if self._numeric_task() == "regression":
            mean, std = self.predict(X, return_std=True)
            return np.stack([mean + norm.ppf(q) * std for q in (tail, 1 - tail)], axis=1)
        X = validate(self.estimator_, X, reset=False)
        P = np.mean([level_probabilities(draw.decision(X)) for draw in self._draws], axis=0)
        below = np.cumsum(P, axis=1)
        ends = [(below < q - 1e-12).sum(axis=1) for q in (tail, 1 - tail)]
        return self._values()[np.minimum(np.stack(ends, axis=1), P.shape[1] - 1)]

    def sample(self, X: Any, n: int = 1) -> NDArray:
        """Predictions of n draws, evenly spaced over the chain: (n, rows) or (n, rows, m)."""
        check_is_fitted(self, "estimator_")
        if as_count(n, "n") > len(self._draws):
            raise ValueError(f"n must be at most {len(self._draws)}, the draws that are kept")
        X = validate(self.estimator_, X, reset=False)
        chosen = np.linspace(0, len(self._draws) - 1, n).astype(int)
        return np.array([self._draws[i].predict(X) for i in chosen])

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of classes, labels or levels, from the mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Floats:
        """The outputs of the mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(X)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The `score` of the estimator, with the mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.score(X, y, sample_weight)

    def top_interactions(self, output: Any = None, k: int = 10, **options: Any) -> list[tuple]:
        """`top_interactions` of the estimator, with the mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.top_interactions(output, k, **options)


def _doubles(model: Model) -> Model:
    return Model(*(None if part is None else part.astype(np.float64) for part in model))


def one_hot_fields(rows: Rows) -> list[int]:
    """The sizes of the fields of one-hot rows in memory; one field where there are none.

    Every row must have the same number of entries, and the columns of its first, second, ... entry
    must not overlap with those of the others.
    """
    d = rows.n_features - (rows.fit_lower == "augment")
    matrix = None if rows.block is None else rows.block.design.matrix
    if matrix is None or not matrix.sparse or not matrix.n:
        return [d]
    _, indices, indptr = matrix.arrays
    width = int(indptr[1] - indptr[0])
    if not width or not (np.diff(indptr) == width).all():
        return [d]
    columns = np.sort(np.reshape(indices, (-1, width)), axis=1)
    first, last = columns.min(axis=0), columns.max(axis=0)
    if not (last[:-1] < first[1:]).all():
        return [d]
    return np.diff(np.r_[0, last[:-1] + 1, d]).tolist()


def watched(
    rows: Rows, fields: NDArray[np.intp], model: Model, rng: np.random.Generator
) -> tuple[Callable[[Model], Floats], Floats]:
    """A function from models to outputs of some rows, and those of a model.

    Where there are fields, each comes from rows of its own, so that most of these rows are new.
    """
    X = rows.sample_rows(WATCHED_ROWS, rng)
    labels = fields[len(fields) - X.shape[1] :]
    parts = []
    for f in np.unique(labels):
        shuffled = X[rng.permutation(X.shape[0])]
        mask = (labels == f).astype(np.float64)
        parts.append(shuffled @ _diagonal(mask) if issparse(X) else shuffled * mask)
    X = csr_array(sum(parts)) if issparse(X) else sum(parts)
    design = Design(X, rows.activation, fit_lower=rows.fit_lower, n_threads=1)

    def outputs(model: Model) -> Floats:
        H, V = np.ascontiguousarray(model.H), np.ascontiguousarray(model.V)
        O = design.outputs(H, V) + model.intercept
        return O if model.linear is None else O + X @ model.linear

    return outputs, outputs(model)


def _diagonal(entries: Floats) -> csr_array:
    d = len(entries)
    return csr_array((entries, np.arange(d), np.arange(d + 1)), shape=(d, d))
