"""One iteration of Algorithm 1: select a basis vector, refit, drop, certify, perhaps stop."""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.features import RowBlocks, StoredFeatures
from fastpoly.refit.full import refit_full
from fastpoly.refit.output import OutputRefit
from fastpoly.refit.pruning import merge_parallel
from fastpoly.refit.single_step import single_step
from fastpoly.rows.design import Design
from fastpoly.selection import Selection, select_basis
from fastpoly.state import TIMED, State

Floats = NDArray[np.float64]

LAST_REFIT = 100  # iterations of the refit that makes a finished model accurate
# States over which the objective must fall by this share of the tolerance, or at least by the last:
# vectors that come and go can gain a trifle for ever.
WINDOW = 10
WORTH = 1e-3
TRIFLE = 1e-8
LOOSE = 5e-2  # relative gap of a refit far from the optimum; the true error is far smaller


def check_finite(value: float, D: Floats) -> None:
    """Raise where the data are too large for the arithmetic."""
    if not np.isfinite(value) or not np.isfinite(D).all():
        raise ValueError("the loss overflows; scale X, y or sample_weight down")


class _Certificate(NamedTuple):
    """Of a model among those with the same basis vectors: duality gap, dual norm of its rows."""

    gap: float
    dual_norm: float


class Run:
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

    def select(self, state: State, vectors: Floats | None) -> tuple[Selection, _Certificate]:
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
            if self.complete(state, certificate, chosen.value) and not self.complete(
                state, certificate, chosen.bound
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

    def gap(self, certificate: _Certificate, dual_norm: float) -> float:
        """The duality gap of the constrained form, were Omega*(G) of all basis vectors that."""
        return certificate.gap + self.fitter.tau * max(0.0, dual_norm - certificate.dual_norm)

    def complete(self, state: State, certificate: _Certificate, dual_norm: float) -> bool:
        """Whether, with that as Omega*(G), no other basis vector is wanted."""
        if self.fitter.tau is not None:
            missing = self.gap(certificate, dual_norm) - certificate.gap
            return missing <= self.tol * self.size(state)
        return dual_norm <= (1 + self.tol) * self.fitter.alpha

    def size(self, state: State) -> float:
        """What tolerances are relative to."""
        return max(abs(state.objective), self.fitter.small)

    def accurate(self, state: State, certificate: _Certificate) -> bool:
        """Whether the model is the best with its basis vectors, within the tolerance."""
        return certificate.gap <= self.tol * self.size(state)

    def needs_refit(self, state: State, chosen: Selection, certificate: _Certificate) -> bool:
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
        certificate: _Certificate,
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
            least = max(WORTH * self.tol, TRIFLE) * self.size(state)
            stop = "no progress" if state.recent[0] - objective <= least else None
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
            H, V = self.without_zeros(H, V)
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
            excess = state.gap_found / max(self.size(state), 1e-300)
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
        H, V = self.without_zeros(H, fit.V)
        penalty = float(self.fitter.penalty.value(V)) if len(V) else 0.0
        return State(
            H, V, fit.intercept, fit.linear, fit.objective, fit.loss, penalty,
            n_iter=n_iter, alpha=self.fitter.alpha, tau=self.fitter.tau, seed=self.seed,
        )  # fmt: skip

    def without_zeros(self, H: Floats, V: Floats) -> tuple[Floats, Floats]:
        """The basis vectors that the outputs use, and their rows; stored activations follow."""
        kept = V.any(axis=1)
        if self.A.shape[1] == len(kept) and not kept.all():
            self.A = np.ascontiguousarray(self.A[:, kept])
        return H[kept], V[kept]

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
