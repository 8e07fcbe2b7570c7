"""PosteriorAverage: the mean of many models around a fitted one, as one small model."""

import copy
import os
import warnings
from functools import partial
from time import monotonic
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from fastpoly import posterior
from fastpoly.decoding import level_probabilities, level_values
from fastpoly.draws import calibrated, composite_temper, effective_draws, split_rhat
from fastpoly.estimators.advice import warn
from fastpoly.estimators.arriving import VectorPrior
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import TrainingRows
from fastpoly.estimators.prediction import Method
from fastpoly.estimators.search import MetaEstimator, PathSearchCV
from fastpoly.joined import Joined
from fastpoly.kernels.checks import as_count, as_positive
from fastpoly.model import PolyModel
from fastpoly.objective import Objective
from fastpoly.path import walk
from fastpoly.priors import Side, occurrence_sides
from fastpoly.state import Floats, Model
from fastpoly.storage.checkpoint import fingerprint, read_record, write_record

# The chain has at least that many vectors; on MovieLens 20 are better than 10 by .001 RMSE.
CHAIN_VECTORS = 20


class PosteriorAverage(MetaEstimator):
    """Average a model over its posterior distribution, and keep the mean as one small model.

    The estimator is fitted first. A chain of models starts there, with normal priors for every
    field of columns instead of the penalty, and the mean of its draws is compressed into one
    ordinary model. This pays off for factorization machines on sparse one-hot rows, such as
    ratings, where a single best model is too sure of rare levels. On tables of numbers it does
    not: there the chain mixes badly, as a warning says, and the mean is worse than the model that
    it starts from (test log-losses of .30 for .22 on vowel, and of .45 for .09 on segment).

    Parameters
    ----------
    estimator : estimator
        One of the six estimators of fastpoly, with alpha (not tau), and a loss that is a
        likelihood: "squared", "logistic" or "poisson"; or a `PathSearchCV` of one.
    n_samples : int, default=200
        Draws that are averaged, after the warm-up. At least 2.
    n_warmup : int, default=30
        Draws that are left out.
    n_components : int, default=20
        The most basis vectors of the mean, at first as many as those of the draws. With 12, errors
        on MovieLens 1M are larger by .0007.
    fields : list of int, optional
        Sizes of the fields: how many neighboring columns of X belong to each. By default the
        fields of one-hot rows are found in X, if every row has one entry in each of them;
        otherwise all columns are one field.
    memory : float, default=2.5e8
        Bytes for the draws that are kept for deviations, intervals and samples; of more draws,
        every second one is kept.
    checkpoint : str or path-like, optional
        A file that keeps the chain, from which a fit with the same data and parameters goes on,
        bit for bit; `n_samples` may grow. Unless the estimator has a checkpoint of its own, the
        file beside it with the suffix ".fit" keeps its fit.
    checkpoint_every : float, default=60
        Seconds between two writes.
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
        What the compression costs: the share of the variance of the mean outputs that `model_`
        misses, over rows whose fields come from different rows. There is a warning above .05.
    temper_ : float
        Power of the likelihood. It is below 1 for ordered levels, whose loss counts every row
        several times. For the squared loss it is the precision of the noise, in standard units.

    Notes
    -----
    Everything else of the fitted estimator is here, too: `predict_proba`, `score`,
    `top_interactions`, `contributions`, `classes_` and so on, by the mean. `model_.save` writes the
    mean, and the plots take the average. With the Poisson loss, the mean is that of log rates: the
    mean of rates is ruled by the largest of few draws.

    The vectors of users and items are drawn around a regression, with a ridge that is drawn, too,
    on the items and the users that they occur with, in at most 50 directions: what somebody rates
    says much about their taste, whatever the ratings are. This holds for all fields of at least 10
    levels, and costs next to nothing; on MovieLens it is worth more than the average.

    With `Joined` rows, the estimator is fitted to the ids, and the columns of tables are in this
    regression, too. So columns cost nothing in a pass over the rows, and users without rows are
    predicted by their columns. The mean is a model over all columns.

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
        self, estimator: Any, *, n_samples: int = 200, n_warmup: int = 30, n_components: int = 20,
        fields: list[int] | None = None, memory: float = 2.5e8,
        checkpoint: str | os.PathLike[str] | None = None, checkpoint_every: float = 60.0,
        verbose: int = 0, random_state: Any = None,
    ) -> None:  # fmt: skip
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

    def __getattr__(self, name: str) -> Any:
        """What is not here is that of the fitted estimator; before, of the one to fit."""
        known = self.__dict__.get("estimator_")
        if known is None and not name.endswith("_"):
            known = self.__dict__.get("estimator")
        if name.startswith("_") or known is None or name in ("fit", "partial_fit"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(known, name)

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
        average = copy.copy(self)
        average._fit(X, y, sample_weight)
        self.__dict__ = average.__dict__  # in one step, for other threads and for errors
        return self

    def _fit(self, X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None) -> None:
        """Fit the estimator, run the chain, and keep the mean."""
        self._check(X)
        fitted, rows, sizes = clone(self.estimator), X, self.fields
        joined = X if isinstance(X, Joined) else getattr(X, "joined", None)
        joined = joined if joined is not None and joined.ids else None
        if joined is not None:
            rows, sizes = joined.of_ids(X), joined.sizes
        if self.checkpoint is not None and getattr(fitted, "checkpoint", "none") is None:
            fitted.checkpoint = f"{os.fspath(self.checkpoint)}.fit"
        with warnings.catch_warnings():  # a chain may have vectors where its start has none
            warnings.filterwarnings("ignore", "the model has no basis vectors")
            fitted.fit(rows, y, sample_weight)
        estimator = getattr(fitted, "best_estimator_", fitted)
        data = estimator._prepare(rows, y, sample_weight)
        scaling = estimator._scaling = estimator._units(data)
        if joined is not None:  # keys without rows mean something, by their tables
            scaling = estimator._scaling = scaling._replace(seen=np.ones_like(scaling.seen))
        start = self._start(estimator, data)
        if scaling.tables is not None:
            scaling = estimator._scaling = scaling._replace(tables=scaling.tables.plain())
        objective = estimator._objective(data)
        start = scaling.unfold(start, estimator._activation).nonzero()
        fields, exclusive = posterior.field_labels(objective.rows, sizes)
        sides = occurrence_sides(objective.rows, fields, exclusive)
        constant = int(estimator.fit_lower == "augment")
        for e, known in ({} if joined is None else joined.sides()).items():
            side, more = Side.of(*known), sides.get(e + constant)
            sides[e + constant] = side if more is None else side.joined(more)
        chain, fit = self._chain(estimator, data, objective, start, fields, sides)
        chain = self._advance(chain, fit)
        model, draws = self._finish(estimator, chain, exclusive)
        if joined is not None:
            activation, tau = estimator._activation, np.median(chain.prior.tau, axis=0)

            def split(e: int, Z: Floats) -> Floats:
                return sides[e + constant].split(Z, float(tau[e + constant]))

            model = joined.over_columns(model, activation, split)
            draws = [joined.over_columns(draw, activation) for draw in draws]
            data = estimator._prepare(X, y, sample_weight)
            self._labels = joined.labels(estimator.fit_lower)
        self._draws = [estimator._poly_model(draw) for draw in draws]
        self.estimator_ = copy.copy(estimator)
        self.estimator_._set_model(estimator._poly_model(model))
        if joined is None:
            self.estimator_._remember(objective.rows)
        else:
            self.estimator_._information = None
            self.estimator_._scaling = estimator._units(data)
        self.estimator_._keep_background(data)

    def _check(self, X: Any) -> None:
        """Raise unless the parameters make sense."""
        inner = self.estimator
        inner = inner.estimator if isinstance(inner, PathSearchCV) else inner
        if not isinstance(inner, PolyEstimator):
            raise TypeError(
                "estimator must be one of the six estimators of fastpoly, or a PathSearchCV of "
                f"one, got {type(inner).__name__}"
            )
        if inner.tau is not None:
            raise ValueError("estimator must have alpha, not tau: a ball has no posterior")
        if inner.loss not in ("squared", "logistic", "poisson"):
            raise ValueError(
                "PosteriorAverage needs a loss that is a likelihood, by its name: squared, "
                f"logistic or poisson, not {inner.loss!r}"
            )
        as_count(self.n_warmup, "n_warmup", or_zero=True)
        as_count(self.n_components, "n_components")
        if as_count(self.n_samples, "n_samples") < 2:
            raise ValueError(f"n_samples must be at least 2, got {self.n_samples}")
        as_positive(self.checkpoint_every, "checkpoint_every", or_zero=True)
        d = getattr(X, "n_features", None) or (np.shape(X) or (0, 0))[-1]
        least = 8.0 * d * (min(CHAIN_VECTORS, as_count(inner.n_components, "n_components")) + 1)
        if as_positive(self.memory, "memory") < least:
            raise ValueError(
                f"memory must hold two draws, {least:.1e} bytes for {d} features; got "
                f"{self.memory:.1e}"
            )

    def _start(self, estimator: PolyEstimator, data: TrainingRows) -> Model:
        """The fitted model, with more vectors from smaller alphas where it has few."""
        options, model = estimator._options(finish=False), estimator.model_.parameters()
        wanted = min(CHAIN_VECTORS, options.n_components)
        if len(model.H) < wanted and estimator.alpha is None:
            objective = estimator._objective(data)
            objective = objective.at(estimator.alpha_, getattr(estimator, "alpha_linear_", None))
            alphas = estimator.alpha_ * 0.5 ** np.arange(1, 4)
            last = estimator._widen(estimator._state.model)
            for _, state in walk(objective, alphas, options, last):
                model = estimator._scaling.fold(state.model, estimator._activation)
                if state.n_components >= wanted:
                    break
        if not model.V.any():
            raise ValueError(
                "the fitted model has no basis vectors, so there is nothing to average; give the "
                "estimator a smaller alpha"
            )
        return model

    def _chain(
        self, estimator: PolyEstimator, data: TrainingRows, objective: Objective, start: Model,
        fields: NDArray[np.intp], sides: dict[int, Side],
    ) -> tuple[posterior.Chain, str]:  # fmt: skip
        """A chain from a model, or that of the checkpoint, and the fingerprint of its fit."""
        fit, path = "", self.checkpoint
        if path is not None:
            own = repr((self.n_warmup, self.memory, self.random_state))
            known = [side.S for side in sides.values()]
            fit = fingerprint("posterior", estimator._fingerprint(data), fields, own, *known)
            if os.path.exists(path):
                resume = partial(posterior.Chain.resume, objective, fields, sides, self.memory)
                return read_record(path, fit, resume), fit
        seed = PolyEstimator._seed(self)  # type: ignore[arg-type]
        temper = None if estimator.loss == "squared" else 1.0
        chain = posterior.Chain(objective, start, fields, seed, temper, sides, memory=self.memory)
        if estimator._task == "ordinal":
            chain.temper = composite_temper(chain.watch(start))
        return chain, fit

    def _advance(self, chain: posterior.Chain, fit: str) -> posterior.Chain:
        """The chain after all draws, which keeps what comes after the warm-up."""
        whole, total, saved = chain, self.n_warmup + self.n_samples, monotonic()
        options = {"desc": "draws", "disable": not self.verbose, "leave": False}
        try:
            with tqdm(total=total, initial=chain.n_draws, **options) as bar:
                while chain.n_draws < total:
                    whole = chain.copy()
                    chain.draw()
                    if chain.n_draws > self.n_warmup:
                        chain.keep()
                    bar.update()
                    if fit and chain.outputs and monotonic() - saved >= self.checkpoint_every:
                        write_record(self.checkpoint, fit, *chain.record())
                        saved = monotonic()
        except KeyboardInterrupt:
            chain = whole  # without a part of a draw, from which a checkpoint could not go on
            if len(chain.outputs) < 2:
                raise
            warn(f"interrupted: the mean is that of {len(chain.outputs)} draws")
        if fit:
            write_record(self.checkpoint, fit, *chain.record())
        return chain

    def _finish(
        self, estimator: PolyEstimator, chain: posterior.Chain, exclusive: NDArray[np.bool_]
    ) -> tuple[Model, list[Model]]:
        """The mean and the draws; keep what is known of the chain."""
        outputs, target = np.array(chain.outputs), chain.objective.problem.loss.target
        model, _ = chain.mean(self.n_components, exclusive)
        mean, found = outputs.mean(axis=0), chain.watch(model)
        self.missed_ = float(((found - mean) ** 2).sum() / (mean.var(axis=0).sum() * len(mean)))
        if self.missed_ > 0.05:
            warn(
                f"a model of {self.n_components} basis vectors misses {self.missed_:.0%} of the "
                "variance of the mean; raise n_components"
            )
        model = calibrated(model, found, outputs, target)
        unit, activation = estimator._scaling, estimator._activation
        draws = [unit.fold(draw, activation) for draw in chain.kept_models()]
        self.n_draws_, self.temper_ = len(draws), chain.temper
        self._labels = chain.prior.fields
        target_unit = 1.0 if unit.target_unit is None else unit.target_unit
        self._noise = np.asarray(target_unit) / np.sqrt(chain.temper)
        self.rhat_ = split_rhat(outputs)
        self.effective_draws_ = effective_draws(outputs)
        if self.rhat_ > 1.1:  # the halves of the chain differ by more than a third of a deviation
            warn(
                f"the chain has not mixed: R-hat is {self.rhat_:.2f}, and its draws amount to "
                f"{self.effective_draws_:.0f} independent ones; raise n_samples or n_warmup"
            )
        return unit.fold(model, activation), draws

    # --- the fitted model ---

    @property
    def model_(self) -> PolyModel:
        """The mean."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.model_

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
        now = copy.copy(self)  # a fit in another thread does not change it
        check_is_fitted(now, "estimator_")
        mean = now.estimator_.predict(X)
        if not return_std:
            return mean
        found, levels = now._outputs(X)
        if levels is None:
            return mean, np.sqrt(found.var(axis=0) + now._noise**2).reshape(mean.shape)
        # The variance between draws, and that within them.
        within = (found @ levels**2 - (found @ levels) ** 2).mean(axis=0)
        return mean, np.sqrt((found @ levels).var(axis=0) + within)

    def _outputs(self, X: Any) -> tuple[Floats, Floats | None]:
        """The outputs of all draws, (n_draws, n, m); of levels their probabilities and values."""
        model = self.estimator_.model_
        if model.task not in ("regression", "ordinal"):
            raise ValueError(
                "deviations and intervals are for numbers with the squared loss and for levels; "
                "predict_proba says how sure classes, labels and rates are"
            )
        O = self._by_draws(PolyModel.decision, X, self._draws)
        if model.task == "regression":
            return O, None
        values = model.level_values
        values = level_values(model.classes, len(model.classes)) if values is None else values
        return np.array([level_probabilities(o) for o in O]), values

    def _by_draws(self, method: Method, X: Any, draws: list[PolyModel]) -> NDArray:
        """What a method of `PolyModel` gives for each of the draws."""
        apply = self.estimator_._applier(X)
        return np.array([apply(method, draw) for draw in draws])

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
        now = copy.copy(self)
        check_is_fitted(now, "estimator_")
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
        ends = 0.5 * (1 - coverage), 0.5 * (1 + coverage)
        if now.estimator_.model_.task != "ordinal":
            mean, std = now.predict(X, return_std=True)
            return np.stack([mean + norm.ppf(q) * std for q in ends], axis=1)
        P, levels = now._outputs(X)
        below = P.mean(axis=0).cumsum(axis=1)
        positions = [(below < q - 1e-12).sum(axis=1) for q in ends]
        return levels[np.minimum(np.stack(positions, axis=1), len(levels) - 1)]

    def fold_in(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> PolyEstimator:
        """The mean with vectors for unseen levels, from a few rows, by the prior of their field.

        As `fold_in` of the estimators, but the prior of a vector is normal, with the mean and
        covariance of the levels of its field. All new levels must be of one field.

        Returns
        -------
        estimator
            A fitted copy of `estimator_`.
        """
        now = copy.copy(self)
        check_is_fitted(now, "estimator_")
        labels = now._labels
        if isinstance(X, Joined):  # which may have columns that the fit did not have
            labels = X.labels(now.estimator_.fit_lower)
        return now.estimator_._folded(X, y, sample_weight, partial(now._prior_of, labels))

    def _prior_of(
        self, labels: NDArray[np.intp], model: Model, X: Any, new: NDArray[np.intp]
    ) -> VectorPrior:
        """The prior of the field of new columns, from its levels in the mean.

        `labels` are the fields of the columns and of a constant.
        Columns beyond those of the fit are of the field that these rows lack.
        """
        constant = model.H.shape[1] - X.shape[1]
        labels, d = labels[constant:], len(labels) - constant
        known = X.indices[X.indices < d]
        known = known[np.abs(model.H[:, known + constant]).max(axis=0, initial=0.0) > 0]
        lacking = np.setdiff1d(labels, labels[known])
        if (new < d).all():
            lacking = np.unique(labels[new])
        if len(lacking) > 1 or (not len(lacking) and labels.max(initial=0) > 0):
            raise ValueError(
                "the field of the new levels is not clear: fold in the levels of one field, in "
                "rows that have a known level of each other field"
            )
        own = np.flatnonzero(labels == lacking[0]) if len(lacking) else np.arange(d)
        A = model.H[:, own + constant].T
        A = A if model.linear is None else np.hstack([A, model.linear[own]])
        A = A[A.any(axis=1)]
        spread = np.cov(A.T) + 1e-3 * np.diag(A.var(axis=0) + 1e-12)
        return VectorPrior(A.mean(axis=0), np.linalg.inv(spread), self.temper_)

    def sample(self, X: Any, n: int = 1) -> NDArray:
        """Predictions of n draws, evenly spaced over the chain: (n, rows) or (n, rows, m)."""
        now = copy.copy(self)
        check_is_fitted(now, "estimator_")
        if as_count(n, "n") > len(now._draws):
            raise ValueError(f"n must be at most {len(now._draws)}, the draws that are kept")
        chosen = np.linspace(0, len(now._draws) - 1, n).astype(int)
        return now._by_draws(PolyModel.predict, X, [now._draws[i] for i in chosen])
