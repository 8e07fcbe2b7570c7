"""The joint descent: basis vectors, output layer and lower-order terms together.

Refitting V alone cannot turn a vector that is nearly right: a neighbor enters, and the old one is
dropped, over and over. Here a block of vectors enters at once, and all parameters descend in the
smooth form of the penalty (`fastpoly.kernels.smooth_forms`):

    1. enter:    new rows v_r = -polar(q_r), weighted by their violation, with one step size t
                 from a line search: near zero the problem is flat, and a tiny start stays there
    2. descend:  preconditioned L-BFGS, with a preconditioner that is refreshed at intervals
    3. tidy:     merge nearly parallel vectors, and drop those with almost no weight

The objective never rises: the smooth form is at least the penalty, and equal to it at the start.
"""

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES, Floats
from fastpoly.objective import Objective
from fastpoly.refit.lbfgs import SHORTEST_STEP, Minimum, Preconditioner, minimize
from fastpoly.selection import Selection
from fastpoly.state import Model, State

# Iterations of a round with one preconditioner each. Far from the optimum it is soon out of date.
# With stretches of equal length, letter takes twice as long, and segment 1.5 times as long.
STRETCHES = (10, 20, 40, 80)
# Share of the gain of a round. A few iterations of the next round must gain at least this much, and
# merging and dropping vectors may cost at most this much.
GAIN_SHARE = 0.1


class JointRefit:
    """The refit of both layers, and of V alone for a finished model, by what `make_output` makes.

    A descent takes at most `max_iter` iterations; one that reaches `n_components` is the last one.
    """

    corrective = True

    def __init__(
        self, objective: Objective, tol: float, max_iter: int, n_components: int,
        make_output: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        self.objective, self.problem, self.make_output = objective, objective.problem, make_output
        self.form = objective.form
        self.tol, self.max_iter, self.n_components = tol, max_iter, n_components
        self.spent = 0

    def block(self, k: int) -> int:
        """How many vectors to add when there are k of them; n rows need at most n m."""
        d, m = self.objective.rows.n_features, self.problem.m
        most = min(d, 20, self.objective.rows.n_samples * m)
        return max(m, k // 2) if k else max(2 * m, most)

    def flops(self, state: State) -> float:
        """An estimate of the cost of the next round."""
        (k, d), m = state.H.shape, self.problem.m
        return 6.0 * sum(STRETCHES) * self.objective.rows.n_samples * (k + self.block(k)) * (d + m)

    def first(self, model: Model, gain: float = 1.0) -> Model:
        """The best lower-order terms, or a model of another problem after one descent."""
        if not len(model.H):
            return self.descend(model, gain, last=True) if self.objective.explicit else model
        before, last = self.objective.value(model), len(model.H) >= self.n_components
        return self.tidy(self.descend(model, gain, last), before)

    def advance(self, state: State, chosen: Selection) -> Model:
        """Enter, descend, tidy."""
        model = self.enter(state.model, chosen.H, chosen.Q, chosen.outputs)
        recent = np.array([*state.memory.recent, state.objective])
        gains = -np.diff(recent) / max(abs(state.objective), 1e-300)
        gain = float(gains.min(initial=1.0))
        last = len(model.H) >= self.n_components
        model = self.descend(model, min(gain, GAIN_SHARE * self.tol) if last else gain, last)
        return self.tidy(model, state.objective)

    def polish(self, state: State) -> Model:
        """Descend to the end; then fit V alone, where a vector may serve several outputs of l1."""
        output = self.make_output()
        model = output.refit(self.descend(state.model, self.tol**3, last=True), self.tol)
        self.spent += output.spent
        return model

    def enter(self, model: Model, H: Floats, Q: Floats, outputs: Floats) -> Model:
        """The model with the unit vectors H (b, d) appended, at the best step along polar rows.

        Q (b, m) has the gradients in their rows of V; each serves one of the outputs (b,), or -1.
        """
        penalty, alpha = self.problem.penalty, self.problem.alpha
        one = np.arange(Q.shape[1]) == outputs[:, None]
        Q = np.where(one | (outputs < 0)[:, None], Q, 0.0)
        V = -np.array([penalty.polar(q) for q in Q])
        excess = np.einsum("rc,rc->r", Q, -V) - alpha
        weights = np.maximum(excess, 0.0)
        if not weights.any():
            return model
        V *= (weights / weights.sum())[:, None]
        loss, curvature = self.objective.rows.ray(model, H, V)
        omega = float(penalty.value(V))

        def at(t: float) -> tuple[float, float]:
            value, slope = loss(t)
            return value + alpha * omega * t, slope + alpha * omega

        return model.append(H, line_minimum(at, curvature) * V).nonzero()

    def descend(self, model: Model, gain: float, last: bool = False) -> Model:
        """Descend until a few iterations gain little of the relative `gain` of a round.

        The last round takes as many iterations as it needs.
        """
        ftol = min(GAIN_SHARE * gain, 1e-3)  # which is always enough to continue
        previous = np.inf
        for n_iter in self.stretches(last):
            start = self.rescale(model)
            found = self._stretch(start, ftol, n_iter)
            self.spent += found.n_iter
            model = self.normalize(self.objective.unpack(found.x, len(start.H)))
            if found.converged or previous - found.value <= 10 * ftol * abs(found.value):
                break
            previous = found.value
        return model

    def stretches(self, last: bool) -> Iterator[int]:
        """The lengths of the stretches, at most `max_iter` in all; the last round has more."""
        left = self.max_iter
        for n_iter in chain(STRETCHES, repeat(STRETCHES[-1]) if last else ()):
            if left <= 0:
                return
            yield min(n_iter, left)
            left -= n_iter

    def _stretch(self, model: Model, ftol: float, n_iter: int) -> Minimum:
        """Iterations with one preconditioner, from a model in the scale of the form."""
        objective, problem, form = self.objective, self.problem, self.form
        k, d = model.H.shape
        x = objective.pack(model)
        bounds = None
        if form.bound is not None and k:
            upper = np.full(len(x), np.inf)
            upper[k * d : k * (d + problem.m)] = form.bound
            bounds = -upper, upper
        penalty = form.curvature(model.H, problem.alpha, model.H, np.ones(d)).mean(axis=1)
        P = Preconditioner(problem, form, model, objective.rows.curvature(model, penalty))
        # A whole stretch, unless d is large; but always as many pairs as the first one has.
        memory = min(n_iter, max(STRETCHES[0], BLOCK_DOUBLES // (2 * max(1, len(x)))))
        # A perfect fit has no curvature. A trial step there may overflow; it is then refused.
        with np.errstate(over="ignore", invalid="ignore"):
            return minimize(
                lambda x, g: objective.smooth_value_grad(x, k, g), x, P,
                max_iter=n_iter, ftol=ftol, memory=memory, bounds=bounds,
            )  # fmt: skip

    def tidy(self, model: Model, before: float) -> Model:
        """Merge and drop vectors, at the cost of at most a share of the gain since `before`."""
        if not len(model.H):
            return model
        value = self.objective.value(model)
        most = value + GAIN_SHARE * max(0.0, before - value)
        for fewer in (self.merge, self.drop_light):
            new = fewer(model)
            if len(new.H) < len(model.H) and self.objective.value(new) <= most:
                model = new
        return model

    def drop_light(self, model: Model) -> Model:
        """The model without the vectors that have almost no weight."""
        weights = self.problem.penalty.row_norms(model.V)
        return model.keep(weights > 1e-4 * weights.max(initial=0.0))

    def merge(self, model: Model) -> Model:
        """The model with nearly parallel vectors merged; those of one output and sign for l1."""
        groups = np.zeros(len(model.H), dtype=int)
        if self.form.fixed and len(model.H):
            output = np.abs(model.V).argmax(axis=1)
            groups = 2 * output + (model.V[np.arange(len(output)), output] > 0)
        H, V = [model.H[:0]], [model.V[:0]]
        for group in np.unique(groups):
            h, v = model.H[groups == group], model.V[groups == group]
            while (fewer := merge_parallel(h, v)) is not None:
                h, v = fewer
            H.append(h)
            V.append(v)
        return model._replace(H=np.vstack(H), V=np.vstack(V))

    def rescale(self, model: Model) -> Model:
        """The same model in the scale of the form; with fixed signs, one unit per output.

        A model of another penalty may then have too many units; those of largest weight stay.
        """
        model = model.nonzero()
        if self.form.fixed:
            rows, outputs = np.nonzero(model.V)
            most = max(self.n_components, len(model.H))
            if len(rows) > most:
                weights = np.abs(model.V[rows, outputs])
                heaviest = np.sort(np.argsort(-weights, kind="stable")[:most])
                rows, outputs = rows[heaviest], outputs[heaviest]
            V = np.zeros((len(rows), self.problem.m))
            V[np.arange(len(rows)), outputs] = model.V[rows, outputs]
            model = model._replace(H=model.H[rows], V=V)
        if not len(model.H):
            return model
        norms = self.problem.penalty.row_norms(model.V)
        H, V = self.form.scale(model.H, model.V, norms)
        return model._replace(H=H, V=V)

    def normalize(self, model: Model) -> Model:
        """The same model with unit vectors."""
        norms = np.linalg.norm(model.H, axis=1)
        kept = (norms > 0) & model.V.any(axis=1)
        H, V, norms = model.H[kept], model.V[kept], norms[kept, None]
        return model._replace(H=H / norms, V=V * norms**2)


def fit_linear_terms(objective: Objective, tol: float, max_iter: int = 1000) -> Model:
    """The best model without basis vectors: its loss falls by less than tol in a few iterations."""
    return JointRefit(objective, tol, max_iter, 1).first(objective.empty_model(), tol)


def merge_parallel(H: Floats, V: Floats) -> tuple[Floats, Floats] | None:
    """H and V with every bundle of nearly parallel basis vectors replaced by its mean, or None.

    Close to the optimum, the next best vector is often almost one that the model already has. Two
    such vectors make the refit ill-conditioned, and their mean is mostly better. Vectors that stay
    come first; the new ones have norm 1. The norm of V, by rows, does not grow.
    """
    norms = np.linalg.norm(H, axis=1)
    if len(H) < 2 or not norms.all():
        return None
    U = H / norms[:, None]
    cosines = U @ U.T
    close = np.triu(np.abs(cosines) > 1 - 1e-3, 1)  # an angle of 2.6 degrees
    if not close.any():
        return None
    kept = np.ones(len(H), dtype=bool)
    weights = np.abs(V).sum(axis=1) * norms**2
    vectors, rows = [], []
    for r in range(len(H)):
        bundle = np.flatnonzero(close[r] & kept)
        if not kept[r] or not bundle.size:
            continue
        bundle = np.append(r, bundle)
        kept[bundle] = False
        mean = (weights[bundle] * np.sign(cosines[r, bundle])) @ U[bundle]
        vectors.append(mean / np.linalg.norm(mean))
        rows.append(norms[bundle] ** 2 @ V[bundle])
    return np.vstack([H[kept], *vectors]), np.vstack([V[kept], *rows])


def line_minimum(at: Callable[[float], tuple[float, float]], curvature: float) -> float:
    """A step near the minimum of a convex function on t >= 0; `at` gives value and slope.

    It starts with the minimum of a parabola, and ends where the slope is a tenth of that at 0.
    """
    start, slope = at(0.0)
    if not (slope < 0 and curvature > 0):
        return 0.0
    t = first = -slope / curvature
    low, high, best = 0.0, np.inf, 0.0
    while SHORTEST_STEP * first < t < np.inf and (
        high == np.inf or high - low > SHORTEST_STEP * high
    ):
        value, there = at(t)
        if not value < start or there > 0.1 * abs(slope):
            high = t
        else:
            best = t
            if there >= -0.1 * abs(slope):
                break
            low = t
        t = 0.5 * (low + high) if high < np.inf else 4 * t
    return best
