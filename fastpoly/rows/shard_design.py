"""Shards as the algorithm sees them: rows with an activation, and sums over all rows."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import vstack

from fastpoly.kernels.checks import as_float_array, as_positive, as_weights
from fastpoly.kernels.explicit import ExplicitGamma, explicit_pays
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.kernels.penalties import get_penalty
from fastpoly.kernels.summed import SummedGamma
from fastpoly.problem import Problem, check_strength, encode, resolve_loss, small_objective
from fastpoly.rows.contract import Curvature, Gradient
from fastpoly.rows.curvature import eigen_curvature, has_eigenbasis
from fastpoly.rows.design import check_kind
from fastpoly.rows.engines import ThreadEngine
from fastpoly.rows.job import ShardJob
from fastpoly.rows.shard import Affine
from fastpoly.rows.shard_rows import At
from fastpoly.rows.shards import Shards
from fastpoly.rows.statistics import Statistics
from fastpoly.rows.sums import empty_model, loss_curvature_bound, noise_of
from fastpoly.state import Model

Floats = NDArray[np.float64]


class ShardDesign:
    """`Shards` with an activation, in place of a `Design`.

    Parameters
    ----------
    shards : Shards
    activation : {"squared", "anova"}
    fit_lower : {None, "augment", "explicit"}
    center, factor : array-like, (d,), optional
        The features are (x - center) * factor, with x from the shards. Sparse rows have no center,
        and their scaled values are kept in memory.
    n_threads : int or None
        Threads that compute the sums, unless another engine was given; each takes whole shards.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fastpoly import conditional_gradient, write_shards
    >>> from fastpoly.rows import ShardDesign
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> shards = write_shards(tempfile.mkdtemp(), [(X, y)], rows_per_shard=50)
    >>> design = ShardDesign(shards, "anova")
    >>> *_, state = conditional_gradient(design, alpha=2.0, random_state=0)
    >>> state.stop
    'optimal'
    """

    def __init__(
        self,
        shards: Shards,
        activation: str = "squared",
        *,
        fit_lower: str | None = None,
        center: ArrayLike | None = None,
        factor: ArrayLike | None = None,
        n_threads: int | None = None,
    ) -> None:
        check_kind(activation, fit_lower)
        self.shards, self.activation, self.fit_lower = shards, activation, fit_lower
        self.scaling = self._scaling(center, factor)
        self.engine = shards.engine or ThreadEngine(n_threads)
        self.loaders = list(shards)
        for shard in self.loaders:
            shard.check_unchanged()  # here, because workers cannot compare as precisely
        self._running: ref[ShardJob] | None = None
        self.n_samples = shards.n_samples
        self.n_features = shards.n_features + (fit_lower == "augment")

    def _scaling(self, center: ArrayLike | None, factor: ArrayLike | None) -> Affine | None:
        if center is None and factor is None:
            return None
        d = self.shards.n_features
        center = np.zeros(d) if center is None else as_float_array(center, "center", (d,))
        factor = np.ones(d) if factor is None else as_float_array(factor, "factor", (d,))
        if center.any() and self.shards.manifest.kind != "dense":
            raise ValueError("center must be None or zero, because these rows are sparse")
        return Affine(center, factor)

    def statistics(self, y: None = None, sample_weight: ArrayLike | None = None) -> Statistics:
        """The statistics of the rows before scaling, from one pass.

        Parameters
        ----------
        y : None
            The shards hold the targets.
        sample_weight : array-like, (n_classes,), optional
            Weights of the classes; the shards hold the weights of the rows.
        """
        if y is not None:
            raise ValueError("y must be None: the shards hold the targets")
        w = self._class_weights(sample_weight)
        return self._plain if w is None else self._found(w)

    @cached_property
    def _plain(self) -> Statistics:
        return self._found(None)

    def _found(self, by_class: Floats | None) -> Statistics:
        job = self.job(None)
        found = self.engine.reduce(job, "statistics", (by_class,))
        return found if self.shards.classes is None else found.with_classes(self.shards.classes)

    def _class_weights(self, sample_weight: ArrayLike | None) -> Floats | None:
        if sample_weight is None:
            return None
        if self.shards.classes is None:
            raise ValueError("sample_weight must be None: these targets have no classes")
        return as_weights(sample_weight, "sample_weight", len(self.shards.classes), some=True)

    def largest(self) -> float:
        """The largest |x|; of centered rows, the largest root mean square of a feature."""
        found = self.statistics()
        if self.scaling is None:
            return found.largest
        center, factor = self.scaling
        if found.features is None:
            return float((found.by_column * factor).max())
        mean, deviation = found.features.mean, found.features.deviation
        return float((np.hypot(deviation, mean - center) * factor).max())

    def held_out_weights(self, w: Floats | None) -> None:
        """None: rows in files have weights of their own. They are many, so noise fits them less."""

    def problem(
        self,
        y: ArrayLike | None = None,
        *,
        loss: Any = "logistic",
        penalty: Any = "l1/l2",
        alpha: float | None = None,
        tau: float | None = None,
        alpha_linear: float = 1.0,
        sample_weight: ArrayLike | None = None,
        n_outputs: int | None = None,
    ) -> Problem:
        """The problem of these rows; the shards hold the targets.

        Parameters
        ----------
        y : array-like, (n_classes,) or (n_classes, m), optional
            The target of the loss for each class of the shards. By default class codes for a
            multi-class loss, -1 and +1 for a binary loss and two classes, and the classes
            themselves for the squared loss. Where targets t are numbers, y is (2, m) and the loss
            takes (t - y[0]) / y[1].
        sample_weight : array-like, (n_classes,), optional
            Weights of the classes; the shards hold the weights of the rows.
        loss, penalty, alpha, tau, alpha_linear, n_outputs
            As for `Problem.of`.
        """
        alpha, tau = check_strength(alpha, tau)
        Y, loss = self._targets(y, loss)
        Y, m = encode(loss, Y, n_outputs, len(Y))
        w = self._class_weights(sample_weight)
        ridge = as_positive(alpha_linear, "alpha_linear", or_zero=True)
        problem = Problem(loss, get_penalty(penalty), Y, m, w, alpha, tau, ridge, 0.0)
        sums = self.sums(problem)
        if not self.statistics().weight:
            raise ValueError("the weights of all rows are zero")
        nothing = sums.value(sums.empty_model())
        return replace(problem, small=small_objective(nothing))

    def _targets(self, y: ArrayLike | None, loss: Any) -> tuple[NDArray, Any]:
        """The targets of every class, or one row where targets are numbers; and the loss."""
        classes = self.shards.classes
        if classes is None:
            m = self.shards.manifest.n_targets
            loss = resolve_loss(loss, np.ones((1, m)))
            if loss.target == "label":
                raise ValueError(
                    f"{type(loss).__name__} needs classes, but the targets of the shards are "
                    'numbers; use loss="squared"'
                )
            if loss.target == "sign":
                return np.ones((1, m)), loss
            y = as_float_array([np.zeros(m), np.ones(m)] if y is None else y, "y", (2, m))
            if not (y[1] > 0).all():
                raise ValueError("y[1], the units of the targets, must be positive")
            return y, loss
        if y is not None:
            y = as_float_array(y, "y", (len(classes), *(None,) * (np.ndim(y) - 1)))
            return y, resolve_loss(loss, y)
        loss = resolve_loss(loss, np.arange(len(classes)))
        if loss.target == "label":
            return np.arange(len(classes)), loss
        if loss.target == "sign":
            if len(classes) != 2:
                raise ValueError(
                    f"y must be given: {type(loss).__name__} takes signs, and there are "
                    f"{len(classes)} classes"
                )
            return np.array([-1.0, 1.0]), loss
        return as_float_array(classes, "the targets of the shards", (None,)), loss

    def sums(self, problem: Problem) -> "ShardSums":
        """The sums over the rows that a problem needs; earlier ones forget their row gradients."""
        before = None if self._running is None else self._running()
        if before is not None:
            before.release()
        sums = ShardSums(self, problem)
        self._running = ref(sums.job)
        return sums

    def job(self, problem: Problem | None, *how: Any) -> ShardJob:
        """A job of these shards, within the memory that they may take."""
        memory = self.shards.memory
        n_threads = 1 if memory is None else self.engine.n_threads
        return ShardJob(self.loaders, problem, *how, memory=memory, n_threads=n_threads)

    def outputs(self, model: Model) -> Iterator[Floats]:
        """The outputs of the rows, (n, m), one shard at a time, in order."""
        job = self.job(None, self.activation, self.fit_lower, self.scaling)
        for place in range(len(job)):
            yield job.open(place).outputs(model)


class ShardSums:
    """The sums of one problem over all shards; see `fastpoly.rows.contract.Sums`."""

    design = None

    def __init__(self, rows: ShardDesign, problem: Problem) -> None:
        self.rows, self.problem = rows, problem
        self.explicit = rows.fit_lower == "explicit"
        self.n_samples, self.n_features = rows.n_samples, rows.n_features
        self.job = rows.job(problem, rows.activation, rows.fit_lower, rows.scaling)
        self.version = 0

    @cached_property
    def weight(self) -> float:
        """Sum of the weights of the rows, each times the weight of its class."""
        return self.rows.statistics(sample_weight=self.problem.w).weight

    def total(self, verb: str, *arguments: Any) -> Any:
        """The sum of a method of `ShardRows` over all shards."""
        return self.rows.engine.reduce(self.job, verb, arguments)

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""
        return empty_model(self.n_features, self.problem.m, self.explicit)

    def value(self, model: Model) -> float:
        """The loss."""
        return self.total("value", model)

    def value_grad_packed(self, x: Floats, k: int, g: Floats) -> float:
        """The loss at the packed model [H | V | intercept | linear]; its gradient goes to g."""
        value, g[:] = self.total("value_grad_packed", x, k)
        return value

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        """The loss and its gradients in V, intercept and linear weights."""
        return self.total("value_layers", model)

    def value_dual(self, model: Model) -> tuple[Any, ...]:
        """As `value_layers`, and the conjugate of the loss at the row gradients."""
        at, *parts = self._evaluate(model)
        return *parts, lambda c: self.total("conjugate", at, c)

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""
        at, *parts = self._evaluate(model)
        return Gradient(*parts, self._gamma(at), lambda c: self.total("conjugate", at, c))

    def _evaluate(self, model: Model) -> tuple[Any, ...]:
        """The model at which rows now keep their gradients, the loss, and its gradients."""
        self.version += 1
        # Where gradients may be forgotten, workers need the model in every pass.
        at = At(self.version, model, send=self.job.memory is not None)
        value, *gradients = self.total("gradient", replace(at, send=True))
        if not np.isfinite(value):
            raise ValueError("the loss overflows; scale X, y or sample_weight down")
        return at, value, *gradients

    def noise_level(self, model: Model) -> float:
        """The violation that the row gradients of a model would have if their signs were random."""
        at, *_ = self._evaluate(model)
        return noise_of(self._operators(at, 1, "noise_matrix", "noise"), self.rows.activation)

    def _gamma(self, at: At) -> ExplicitGamma | SummedGamma:
        return self._operators(at, self.problem.m, "explicit", "gamma")

    def _operators(self, at: At, m: int, matrices: str, verbs: str) -> ExplicitGamma | SummedGamma:
        """m operators whose matrices, or the results of their methods, are sums over shards."""
        d, shards = self.n_features, self.rows.shards
        stored = float(d)
        if shards.manifest.kind != "dense":
            stored = shards.n_entries / self.n_samples
        if explicit_pays(self.n_samples, d, m, stored):
            return ExplicitGamma(self.total(matrices, at))

        def verb(name: str, S: Floats | None, *arguments: Any) -> Floats:
            return self.total(verbs, at, name, S, *arguments)

        return SummedGamma(d, m, verb, self.sample)

    def sample(self, most: int, rng: np.random.Generator) -> tuple[Matrix, str]:
        """At most this many distinct rows, drawn at random, and the activation."""
        n, sizes = self.n_samples, [shard.n_rows for shard in self.job.shards]
        chosen = np.arange(n) if n <= most else np.unique(rng.integers(n, size=most))
        ends = np.cumsum(sizes)
        cuts = np.searchsorted(chosen, ends)
        numbers = np.split(chosen, cuts[:-1])
        numbers = [own - end + size for own, end, size in zip(numbers, ends, sizes, strict=True)]
        parts = self.total("sample", numbers)
        together = np.vstack(parts) if isinstance(parts[0], np.ndarray) else vstack(parts, "csr")
        return as_matrix(together, self.rows.fit_lower == "augment"), self.rows.activation

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        """The loss and its slope at the model with t V appended on H, as a function of t."""
        k = len(model.H)

        def at(t: float) -> tuple[float, float]:
            value, GV, _, _ = self.value_layers(model.append(H, t * V))
            return value, float(np.vdot(GV[k:], V))

        squares = self.total("squared_outputs", H, V)
        return at, squares * loss_curvature_bound(self.problem)

    def squared_norms(self, H: Floats) -> Floats:
        """sum_i w_i a_i^2 for each activation, the constant and each feature, (k + 1 + d,)."""
        return self.total("squared_norms", H)

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """The sums of the preconditioner, in an eigenbasis where there are few features."""
        sparse = self.rows.shards.manifest.kind != "dense"
        if not has_eigenbasis(sparse, self.n_features):
            return Curvature(None, *self.total("diagonal_curvature", model))

        def ask(name: str, *arguments: Any) -> Floats:
            if name != "mean":
                return self.total("dense_curvature", model, name, *arguments)
            shares, start = arguments
            none = np.zeros_like(start)
            return start + self.total("dense_curvature", model, name, shares, none)

        return eigen_curvature(ask, len(model.H), self.n_features, penalty)
