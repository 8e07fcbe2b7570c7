"""Algorithm 1: fully corrective conditional gradient over an infinite set of basis vectors.

    repeat:  D = gradients of the loss with respect to the outputs
             h = the basis vector with the largest dual norm of (h' Gamma_c h)_c    (selection)
             append h to H, refit V (or V and H), drop the rows of V that became zero

`conditional_gradient` is a generator of `State`s. Each state is a usable model with its
certificate, computed at that very point, and each can be the start of another run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.design import Design, check_design
from fastpoly.kernels.checks import as_count, as_positive, as_seed, as_weights
from fastpoly.kernels.features import RowBlocks, StoredFeatures
from fastpoly.kernels.penalties import get_penalty
from fastpoly.merging import merge_parallel
from fastpoly.refit import OutputRefit, check_choice, check_strength, encode, resolve_loss
from fastpoly.refit_full import refit_full
from fastpoly.selection import METHODS, Selection, select_basis
from fastpoly.step import single_step
from fastpoly.threads import one_blas_thread

Floats = NDArray[np.float64]

REFITS = ("output", "full", None)
STOPS = (None, "optimal", "n_components", "no progress", "max_iter")
TIMED = ("selection", "refit", "features", "gradient")

LAST_REFIT = 100  # iterations of the refit that makes a finished model accurate
WINDOW = 10  # states over which the objective must fall
LOOSE = 5e-2  # relative gap of a refit far from the optimum; the true error is far smaller


@dataclass(frozen=True)
class State:
    """One step of Algorithm 1: a model and what is known of its optimality.

    Attributes
    ----------
    H : ndarray, (k, n_features)
        Basis vectors, of norm at most 1.
    V : ndarray, (k, m)
        Output layer.
    intercept : ndarray, (m,)
    linear : ndarray, (d, m) or None
        Linear weights, with fit_lower="explicit".
    objective : float
        Loss, plus penalty in the penalised form, plus the ridge of the linear weights.
    loss : float
        sum_i w_i l(y_i, o_i): a sum over the rows, not a mean.
    penalty : float
        Omega(V).
    violation : float
        The largest dual norm of a gradient row that was found: a lower bound of Omega*(G). In the
        penalised form the model is optimal when Omega*(G) <= alpha.
    violation_bound : float
        Upper bound of Omega*(G), as far as the eigen-solver's bounds hold.
    gap : float
        Constrained form: the duality gap with `violation_bound`, an upper bound of
        objective - optimum. NaN otherwise.
    gap_found : float
        Constrained form: the same with `violation`, which the true gap may exceed. NaN otherwise.
    n_iter : int
        Basis vectors added so far, dropped ones included.
    stop : str or None
        Why the run ends here; None if it goes on. "optimal": within the tolerance, no basis vector
        that was found would improve the model, and the refit is accurate. "n_components": the
        model is full. "no progress": adding vectors gains nothing any more. "max_iter": the refit
        ran out of iterations.
    refit_gap : float
        Duality gap of this model among those with the same basis vectors; an upper bound of
        its error, up to the rows that nothing bounds (see `fastpoly.refit.Refit`).
    timings : dict
        Seconds so far in "selection", "refit", "features" and "gradient".
    alpha, tau : float or None
    seed : int
        What the random numbers of every iteration are derived from.
    vectors : ndarray or None
        Eigenvectors that the selection at this state started from.
    recent : tuple of float
        Objectives of the last states, by which the lack of progress is noticed.
    """

    H: Floats
    V: Floats
    intercept: Floats
    linear: Floats | None
    objective: float
    loss: float
    penalty: float
    violation: float = np.nan
    violation_bound: float = np.nan
    gap: float = np.nan
    gap_found: float = np.nan
    n_iter: int = 0
    stop: str | None = None
    refit_gap: float = np.nan
    timings: dict[str, float] = field(default_factory=dict)
    alpha: float | None = None
    tau: float | None = None
    seed: int = 0
    vectors: Floats | None = None
    recent: tuple[float, ...] = ()

    @property
    def n_components(self) -> int:
        """Number of basis vectors."""
        return len(self.H)


def conditional_gradient(
    design: Design,
    y: ArrayLike,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alpha: float | None = None,
    tau: float | None = None,
    n_components: int = 50,
    refit: str | None = "output",
    alpha_linear: float = 1.0,
    solver: str = "auto",
    max_iter: int = 1000,
    tol: float = 1e-3,
    selection: str = "refine",
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    start: State | None = None,
    memory: float = 1e9,
    random_state: object = None,
) -> Iterator[State]:
    """Run Algorithm 1, one basis vector an iteration.

    Parameters
    ----------
    design : Design
        The data, with activation and lower-order terms.
    y : array-like
        Targets, as the loss takes them: class codes 0..m-1 (n,), signs or numbers (n, m).
    loss : str or object
        "logistic", "smoothed_hinge" or "squared_hinge" (multi-class for class codes, binary for
        signs), "squared", any name of `fastpoly.kernels.losses.LOSSES`, or a loss object.
    penalty : {"l1/l2", "l1", "l1/linf"} or a penalty object
    alpha : float, optional
        Penalised form, loss + alpha Omega(V); 1.0 when neither alpha nor tau is given. The loss is
        a sum over the rows, and alpha is on that scale.
    tau : float, optional
        Constrained form, Omega(V) <= tau.
    n_components : int
        Stop at this number of basis vectors.
    refit : {"output", "full", None}
        After each added basis vector: fit V again (convex), fit V and H (the objective can only
        improve on that of the output layer), or only choose the step towards the new vector (then
        explicit lower-order terms stay as they are without basis vectors).
    alpha_linear : float
        Ridge penalty of the linear weights, with fit_lower="explicit".
    solver : {"auto", "fista", "newton"}
    max_iter : int
        Iterations of one refit at most.
    tol : float
        Relative tolerance of the stopping rule: optimal when the violation is at most
        (1 + tol) alpha (constrained: what it adds to the gap at most tol times the objective) and
        the gap of the refit at most tol times the objective.
    selection : str
        A method of `select_basis`.
    sample_weight : array-like, (n,), optional
    n_outputs : int, optional
        Number of classes, where y does not show it.
    start : State, optional
        Go on from here. A run that is cut off and started again from its last state ends with the
        same model, bit for bit. A state of another problem (alpha, tau, data, penalty) is
        refitted first.
    memory : float
        Bytes that stored activations (n x k) may take (twice that while one is added); beyond it
        they are recomputed in every pass.
    random_state : int, Generator or None

    Yields
    ------
    State
        The first one is the model without basis vectors (or the refitted start); then one an
        iteration. The last one has `stop` set; "no progress" comes with the model of the state
        before. Starting from a state where nothing is left to do gives that state again.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, conditional_gradient
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> design = Design(X, "anova")
    >>> for state in conditional_gradient(design, y, alpha=2.0, random_state=0):
    ...     pass
    >>> state.stop
    'optimal'
    >>> O = design.outputs(state.H, state.V)
    >>> bool((O.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    check_design(design)
    check_choice(refit, "refit", REFITS)
    check_choice(selection, "selection", METHODS)
    n_components = as_count(n_components, "n_components")
    alpha, tau = check_strength(alpha, tau)
    tol = as_positive(tol, "tol")
    loss, penalty = resolve_loss(loss, y), get_penalty(penalty)
    Y, m = encode(loss, y, n_outputs, design.n_samples)
    w = as_weights(sample_weight, "sample_weight", design.n_samples, some=True)
    fitter = OutputRefit(loss, penalty, Y, m, w, alpha, tau, alpha_linear, solver)
    memory = as_positive(memory, "memory", or_zero=True)
    if start is not None:
        check_start(start, design, m)
    seed = start.seed if start is not None else as_seed(random_state)
    run = _Run(design, fitter, refit, as_count(max_iter, "max_iter"), tol, selection, memory, seed)
    return run.states(n_components, start)


def check_start(start: State, design: Design, m: int) -> None:
    """Raise unless the state can be a model of these data."""
    if not isinstance(start, State):
        raise TypeError(f"start must be a State of an earlier run, got {type(start)}")
    have, want = (start.H.shape[1], start.V.shape[1]), (design.n_features, m)
    if have != want:
        raise ValueError(
            f"start has {have[0]} features and {have[1]} outputs, the data {want[0]} and {want[1]}"
        )
    if (start.linear is None) != (design.linear is None):
        raise ValueError('start and design must both have fit_lower="explicit", or neither of them')


def check_finite(value: float, D: Floats) -> None:
    """Raise where the data are too large for the arithmetic."""
    if not np.isfinite(value) or not np.isfinite(D).all():
        raise ValueError("the loss overflows; scale X, y or sample_weight down")


class _Certificate(NamedTuple):
    """Of a model among those with the same basis vectors: duality gap, dual norm of its rows."""

    gap: float
    dual_norm: float


class _Run:
    """What stays the same from iteration to iteration, and the verbs of one iteration."""

    def __init__(
        self,
        design: Design,
        fitter: OutputRefit,
        refit: str | None,
        max_iter: int,
        tol: float,
        selection: str,
        memory: float,
        seed: int,
    ) -> None:
        self.design, self.fitter, self.mode = design, fitter, refit
        self.max_iter, self.tol, self.selection = max_iter, tol, selection
        self.memory, self.seed = memory, seed
        self.linear = design.linear
        self.timings = dict.fromkeys(TIMED, 0.0)
        self.A = np.zeros((design.n_samples, 0))

    def states(self, n_components: int, start: State | None) -> Iterator[State]:
        state = self.first(start)
        known = start is not None and state is start
        vectors = state.vectors
        while True:
            chosen, certificate = self.select(state, vectors)
            if self.needs_refit(state, chosen, certificate):
                state = self.again(state)
                chosen, certificate = self.select(state, vectors)
            state = self.certified(state, chosen, certificate, vectors, n_components)
            if not known or state.stop:
                yield state
            if state.stop:
                return
            known, vectors = False, chosen.vectors
            following = self.advance(state, chosen)
            if not state.objective - following.objective > 1e-12 * abs(state.objective):
                yield replace(state, stop="no progress", timings=dict(self.timings))
                return
            recent = (*state.recent, state.objective)[-WINDOW:]
            state = replace(following, recent=recent)

    def first(self, start: State | None) -> State:
        """The model without basis vectors, or the start, refitted if its problem was another."""
        m, d = self.fitter.m, self.design.n_features
        if start is None:
            empty = np.zeros((0, d)), np.zeros((0, m))
            if self.linear is None:
                return self.described(*empty, np.zeros(m), None, 0)
            return self.refitted(*empty, np.zeros(m), np.zeros((d, m)), 0, self.tol)
        self.timings.update(start.timings)
        model = start.H, start.V, start.intercept, start.linear, start.n_iter
        if (start.alpha, start.tau) == (self.fitter.alpha, self.fitter.tau):
            here = self.described(*model)
            if abs(here.objective - start.objective) <= 1e-8 * abs(start.objective):
                return start
        return replace(self.refitted(*model, self.tol), vectors=start.vectors)

    def select(self, state: State, vectors: Floats | None) -> tuple[Selection, "_Certificate"]:
        """The next basis vector, and how good the model is among those with its basis vectors."""
        with one_blas_thread():
            features = self.features(state.H)
            begun = perf_counter()
            D = np.empty((self.design.n_samples, self.fitter.m))
            problem = self.fitter.problem(features, self.linear)
            P = self.stack(state.V, state.intercept, state.linear)
            value, G = problem.value_grad(P, D)
            check_finite(value, D)
            k, penalty = len(state.H), self.fitter.penalty
            gap = problem.certificate(P, value, G, D).gap
            certificate = _Certificate(gap, float(penalty.dual_norm(G[:k])) if k else 0.0)
            self.timings["gradient"] += perf_counter() - begun
            begun = perf_counter()
            gamma = self.design.gamma(D)
            chosen = select_basis(
                gamma,
                penalty,
                self.selection,
                start=vectors,
                data=self.design if self.selection == "best_data" else None,
                random_state=np.random.default_rng([self.seed, state.n_iter]),
            )
            if (
                self.selection == "refine"
                and self.complete(state, certificate, chosen.value)
                and not self.complete(state, certificate, chosen.bound)
            ):
                # The end, unless the search missed something: look everywhere.
                again = select_basis(
                    gamma,
                    penalty,
                    tol=min(self.tol, 5e-3),
                    start=chosen.vectors,
                    thorough=True,
                    random_state=np.random.default_rng([self.seed, state.n_iter, 1]),
                )
                better = again if again.value > chosen.value else chosen
                bound = max(better.value, min(again.bound, chosen.bound))
                chosen = better._replace(bound=bound, vectors=chosen.vectors)
            self.timings["selection"] += perf_counter() - begun
        return chosen, certificate

    def gap(self, certificate: "_Certificate", dual_norm: float) -> float:
        """The duality gap of the constrained form, were Omega*(G) of all basis vectors that."""
        return certificate.gap + self.fitter.tau * max(0.0, dual_norm - certificate.dual_norm)

    def complete(self, state: State, certificate: "_Certificate", dual_norm: float) -> bool:
        """Whether, with that as Omega*(G), no other basis vector is wanted."""
        if self.fitter.tau is not None:
            missing = self.gap(certificate, dual_norm) - certificate.gap
            return missing <= self.tol * abs(state.objective)
        return dual_norm <= (1 + self.tol) * self.fitter.alpha

    def accurate(self, state: State, certificate: "_Certificate") -> bool:
        """Whether the model is the best with its basis vectors, within the tolerance."""
        return certificate.gap <= self.tol * abs(state.objective)

    def needs_refit(self, state: State, chosen: Selection, certificate: "_Certificate") -> bool:
        """Whether nothing but an inaccurate refit keeps the state from being optimal."""
        can = self.mode is not None and (len(state.H) > 0 or self.linear is not None)
        return (
            can
            and self.complete(state, certificate, chosen.value)
            and not self.accurate(state, certificate)
        )

    def again(self, state: State) -> State:
        """The state refitted as well as the tolerance asks for."""
        model = state.H, state.V, state.intercept, state.linear, state.n_iter
        most, self.max_iter = self.max_iter, min(self.max_iter, LAST_REFIT)
        try:
            fresh = self.refitted(*model, self.tol)
        finally:
            self.max_iter = most
        return replace(fresh, recent=state.recent)

    def certified(
        self,
        state: State,
        chosen: Selection,
        certificate: "_Certificate",
        vectors: Floats | None,
        n_components: int,
    ) -> State:
        """The state with its certificate and the reason to stop, if there is one."""
        gap = gap_found = np.nan
        if self.fitter.tau is not None:
            gap_found, gap = (self.gap(certificate, end) for end in (chosen.value, chosen.bound))
        stop, objective = None, state.objective
        if chosen.value == 0 or self.complete(state, certificate, chosen.value):
            if self.accurate(state, certificate):
                stop = "optimal"
            elif self.mode is not None:
                stop = "max_iter"
        if stop is None and len(state.H) >= n_components:
            stop = "n_components"
        if stop is None and len(state.recent) == WINDOW:
            gained = state.recent[0] - objective
            stop = "no progress" if gained <= 1e-3 * self.tol * abs(objective) else None
        return replace(
            state,
            violation=chosen.value,
            violation_bound=chosen.bound,
            gap=gap,
            gap_found=gap_found,
            refit_gap=certificate.gap,
            stop=stop,
            vectors=vectors,
            timings=dict(self.timings),
        )

    def advance(self, state: State, chosen: Selection) -> State:
        """Append the chosen vector, refit, drop what became zero."""
        H = np.vstack([state.H, chosen.h])
        if self.mode is None:
            with one_blas_thread():
                features, lower = self.features(H), self.lower(state)
                begun = perf_counter()
                V = single_step(self.fitter, features, state.V, chosen.q, lower)
                self.timings["refit"] += perf_counter() - begun
            return self.merged(
                self.described(H, V, state.intercept, state.linear, state.n_iter + 1)
            )
        V = np.vstack([state.V, np.zeros((1, self.fitter.m))])
        tol = self.refit_tol(state)
        return self.merged(
            self.refitted(H, V, state.intercept, state.linear, state.n_iter + 1, tol)
        )

    def merged(self, state: State) -> State:
        """The state with nearly parallel basis vectors made one, where that is no loss."""
        fewer = merge_parallel(state.H, state.V)
        if fewer is None:
            return state
        kept, H, V = fewer
        stored = self.A
        self.A = stored[:, kept] if stored.shape[1] == len(kept) else stored[:, :0]
        new = self.described(H, V, state.intercept, state.linear, state.n_iter)
        if new.objective <= state.objective:
            return new
        self.A = stored
        return state

    def refit_tol(self, state: State) -> float:
        """How well to refit after this state: far from the optimum, no better than that."""
        if self.fitter.tau is not None:
            excess = state.gap_found / max(abs(state.objective), 1e-300)
        else:
            excess = state.violation / self.fitter.alpha - 1 if self.fitter.alpha else 1.0
        return float(np.clip(0.1 * excess, 0.1 * self.tol, max(self.tol, LOOSE)))

    def lower(self, state: State) -> Floats:
        """What lower-order terms add to the outputs."""
        if self.linear is None:
            return np.zeros((self.design.n_samples, self.fitter.m))
        return self.linear.outputs(state.linear) + state.intercept

    def refitted(
        self, H: Floats, V: Floats, intercept: Floats, W: Floats | None, n_iter: int, tol: float
    ) -> State:
        if not len(H) and self.linear is None:
            return self.described(H, V, intercept, W, n_iter)
        with one_blas_thread():
            features = self.features(H)
            begun = perf_counter()
            fit = self.fitter(
                features, V, intercept, W, linear=self.linear, tol=tol, max_iter=self.max_iter
            )
            if self.mode == "full":
                H, fit = refit_full(
                    self.design, self.fitter, H, fit, tol=tol, max_iter=self.max_iter
                )
                self.A = self.A[:, :0]
            self.timings["refit"] += perf_counter() - begun
        kept = (fit.V != 0).any(axis=1)
        if self.A.shape[1] == len(kept) and not kept.all():
            self.A = np.ascontiguousarray(self.A[:, kept])
        penalty = float(self.fitter.penalty.value(fit.V)) if len(fit.V) else 0.0
        return State(
            H[kept], fit.V[kept], fit.intercept, fit.linear, fit.objective, fit.loss, penalty,
            n_iter=n_iter, alpha=self.fitter.alpha, tau=self.fitter.tau, seed=self.seed,
        )  # fmt: skip

    def described(
        self, H: Floats, V: Floats, intercept: Floats, W: Floats | None, n_iter: int
    ) -> State:
        """The state of a model that was not refitted."""
        with one_blas_thread():
            begun = perf_counter()
            problem = self.fitter.problem(self.features(H), self.linear)
            P = self.stack(V, intercept, W)
            value = problem.value_grad(P)[0]
            penalty = float(self.fitter.penalty.value(V)) if len(V) else 0.0
            objective = value + problem.penalty_value(P)
            self.timings["gradient"] += perf_counter() - begun
        return State(
            H, V, intercept, W, objective, value - problem.ridge_value(P), penalty,
            n_iter=n_iter, alpha=self.fitter.alpha, tau=self.fitter.tau, seed=self.seed,
        )  # fmt: skip

    def stack(self, V: Floats, intercept: Floats, W: Floats | None) -> Floats:
        """The parameter matrix of the objective."""
        return V if self.linear is None else np.vstack([V, intercept, W])

    def features(self, H: Floats) -> RowBlocks:
        """Activations on H: stored while they fit the budget, else computed in every pass.

        A stored column is always computed on its own, so that a run that starts again from a
        state gets the same bits as one that added it.
        """
        n, k = self.design.n_samples, len(H)
        if 8.0 * n * k > self.memory:
            self.A = self.A[:, :0]
            return self.design.features(H)
        begun = perf_counter()
        have = self.A.shape[1]
        if have < k:
            A = np.empty((n, k))
            A[:, :have] = self.A
            with one_blas_thread():
                for r in range(have, k):
                    A[:, r] = self.design.activations(H[r : r + 1])[:, 0]
            self.A = A
            self.timings["features"] += perf_counter() - begun
        return StoredFeatures(self.A, self.design.n_threads)
