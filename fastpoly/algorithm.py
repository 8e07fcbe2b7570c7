"""Algorithm 1: fully corrective conditional gradient over an infinite set of basis vectors.

repeat:  D = gradients of the loss with respect to the outputs
         H' = the basis vectors with the largest dual norms of (h' Gamma_c h)_c   (selection)
         append H' to H, refit V (or V and H), drop the rows of V that became zero
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.checks import as_count, as_flag, as_positive, as_seed
from fastpoly.objective import Objective
from fastpoly.problem import Problem, check_choice
from fastpoly.refit.convex import refit_gap
from fastpoly.refit.joint import JointRefit
from fastpoly.refit.output import LOOSEST_REFIT_TOL, SOLVERS, OutputRefit, StepRefit
from fastpoly.rows import as_rows
from fastpoly.rows.rows import Gradient
from fastpoly.selection import Selection, as_oracle, select_basis
from fastpoly.selection.methods import best_data
from fastpoly.selection.oracle import Oracle
from fastpoly.state import TIMED, Model, RunMemory, State, check_start

# A run makes no progress if this many states gain less than this share of tol, relative to the
# objective.
STALL_ROUNDS, PROGRESS_SHARE_OF_TOL = 10, 1e-3


def conditional_gradient(
    design: Any,
    y: ArrayLike | None = None,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alpha: float | None = None,
    tau: float | None = None,
    n_components: int = 50,
    block: int | str = "auto",
    refit: str | None = "auto",
    alpha_linear: float = 1.0,
    solver: str = "auto",
    max_iter: int = 1000,
    tol: float = 1e-3,
    selection: str | Oracle = "refine",
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    start: State | None = None,
    memory: float = 1e9,
    finish: bool = True,
    random_state: object = None,
) -> Iterator[State]:
    """Run Algorithm 1, a block of basis vectors per round.

    Parameters
    ----------
    design : Design, ShardDesign or Shards
        The data, with activation and lower-order terms; rows in files as a `ShardDesign`, or as
        `Shards` for a polynomial network without lower-order terms.
    y : array-like
        Targets in the form of the loss: class codes 0..m-1 (n,), signs or numbers (n, m). Shards
        hold their own targets; y is then None, or has one row for each of their classes.
    loss : str or object
        "logistic", "smoothed_hinge" or "squared_hinge" (multi-class for class codes, binary for
        signs), "squared", any name of `fastpoly.kernels.losses.LOSSES`, or a loss object. A loss
        object without `curvature` works; its descent takes more iterations.
    penalty : {"l1/l2", "l1", "l1/linf"} or a penalty object
    alpha : float, optional
        Penalized form, loss + alpha Omega(V); 1.0 when neither alpha nor tau is given. The loss is
        a sum over the rows, and alpha is on that scale.
    tau : float, optional
        Constrained form, Omega(V) <= tau.
    n_components : int
        Stop at this number of basis vectors.
    block : "auto" or int
        Largest number of basis vectors added per round. "auto" with refit="full": 20 in the first
        round (d if that is less, 2 m if that is more, and at most half of n_components), then m or
        half of the current number. "auto" otherwise: 1.
    refit : {"auto", "full", "output", None}
        After each added block: fit V and H together ("full", penalized form only), fit V alone
        ("output", convex), or only choose the step toward the new vector (None; explicit
        lower-order terms then stay as in the model without basis vectors). "auto" is "full" in the
        penalized form and "output" otherwise. It is also "output" for l1 with n_components < 2 m,
        because there a vector of the joint descent serves one output only.
        ``block=1, refit="output"`` is the algorithm of the paper.
    alpha_linear : float
        Ridge penalty of the linear weights, with fit_lower="explicit".
    solver : {"auto", "fista", "newton"}
        Solver of the output refit.
    max_iter : int
        Largest number of iterations of one refit; those of a run take ten times as many in all.
    tol : float
        Relative tolerance of the stopping rule. A model is optimal when the violation is at most
        (1 + tol) alpha (constrained form: when it adds at most tol times the objective to the gap)
        and the gap of the refit is at most tol times the objective. (A perfect fit, with an
        objective below a millionth of the loss without a model, counts as that millionth.)
    selection : str or callable
        A method of `select_basis`, or your own oracle, a function of a
        `fastpoly.selection.Request`. Whatever it finds, a model is called optimal only if the
        package's own thorough search agrees.
    sample_weight : array-like, (n,), optional
        Weights of the rows. With shards, which hold the weights of their rows, one per class.
    n_outputs : int, optional
        Number of classes, where y does not show it.
    start : State, optional
        State to continue from. A run that is interrupted and started again from its last state
        ends with the same model, bit for bit. A state of another problem (alpha, tau, data,
        penalty) is refitted first.
    memory : float
        Budget of the output refit for the n x k activation matrix, in bytes. Above it, activations
        are recomputed in each pass. Adding vectors temporarily needs twice the budget, and Newton's
        method may use up to min(memory, 256 MB) more. The full refit stores no activations.
    finish : bool
        Whether to complete the last model: refit it more accurately if its output layer is far
        from its best, and confirm by a thorough search that it is optimal. Both take time and
        hardly change predictions, so a search over many alphas does without them. The violation of
        an unfinished model with n_components vectors is NaN.
    random_state : int, Generator or None

    Yields
    ------
    State
        The first one is the model without basis vectors (or the refitted start); then there is one
        per round. The last one has `stop` set; with "no progress" it has the model of the state
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
    rows = as_rows(design, y, loss=loss, sample_weight=sample_weight, n_outputs=n_outputs)
    problem = Problem.of(
        rows.loss, penalty, rows.m, alpha=alpha, tau=tau, alpha_linear=alpha_linear
    )
    options = Options(
        n_components, block, refit, solver, max_iter, tol, selection, memory, finish,
        as_seed(random_state),
    )  # fmt: skip
    return train(Objective(problem, rows), options, start)


@dataclass(frozen=True)
class Options:
    """How to train; see `conditional_gradient`. ValueError or TypeError for a wrong value."""

    n_components: int = 50
    block: int | str = "auto"
    refit: str | None = "auto"
    solver: str = "auto"
    max_iter: int = 1000
    tol: float = 1e-3
    selection: str | Oracle = "refine"
    memory: float = 1e9
    finish: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.refit, "refit", ("auto", "full", "output", None))
        as_oracle(self.selection, "selection")
        check_choice(self.solver, "solver", SOLVERS)
        as_count(self.n_components, "n_components")
        as_count(self.max_iter, "max_iter")
        if self.block != "auto":
            as_count(self.block, "block")
        as_positive(self.tol, "tol")
        as_positive(self.memory, "memory", or_zero=True)
        as_flag(self.finish, "finish")


def train(objective: Objective, options: Options, start: State | None = None) -> Iterator[State]:
    """The states of Algorithm 1 on an objective; arguments are checked at once."""
    rows = objective.rows
    if as_oracle(options.selection, "selection") is best_data and rows.block is None:
        raise ValueError('selection="best_data" needs rows in memory; use selection="refine"')
    _ = objective.small  # raises where targets are too large or too small
    if start is not None:
        check_start(start, rows.n_features, objective.problem.m, objective.explicit)
        options = replace(options, seed=start.memory.seed)
    return Run(objective, options, start).states(start)


def make_refit(objective: Objective, options: Options, start: State | None = None) -> Any:
    """The refit that `options.refit` names, for an objective."""
    problem, refit = objective.problem, options.refit
    form = problem.penalty.smooth_form if problem.tau is None else None
    if refit == "auto":
        # With l1, a vector of the joint descent serves one output.
        units = 0 if start is None else np.count_nonzero(start.V)
        few = form is not None and form.fixed and options.n_components < max(2 * problem.m, units)
        refit = "output" if form is None or few else "full"
    elif refit == "full" and form is None:
        lacks = "the constrained form (tau)" if problem.tau is not None else repr(problem.penalty)
        raise ValueError(
            'refit="full" descends in the smooth form of a penalty, which '
            f'{lacks} does not have; use refit="output" or alpha'
        )
    kind, limits = StepRefit if refit is None else OutputRefit, (options.tol, options.max_iter)
    output = partial(kind, objective, *limits, options.solver, options.memory)
    if refit == "full":
        return JointRefit(objective, *limits, options.n_components, output)
    return output()


class Run:
    """The rounds of Algorithm 1: the last model, and what is known of it."""

    def __init__(self, objective: Objective, options: Options, start: State | None = None) -> None:
        self.objective, self.options = objective, options
        self.refit = make_refit(objective, options, start)
        self.model, self.n_iter, self.memory = objective.empty_model(), 0, RunMemory(options.seed)
        self.timings = dict.fromkeys(TIMED, 0.0)
        # A model, its gradient, and the vectors chosen there: the same at all strengths.
        self.known: tuple[Model | None, Any, Selection | None] = (None, None, None)

    def states(self, start: State | None) -> Iterator[State]:
        """Algorithm 1."""
        resumed, before = self.begin(start), None
        while True:
            state = self.examine()  # gradients, selection, certificate
            ended = resumed and start.stop  # it was finished in the run before
            if self.options.finish and not ended and self.only_the_refit_is_loose(state):
                self.fit(self.refit.polish, state)
                state = self.examine()
            if before is not None and not state.objective < before.objective:
                yield replace(before, stop="no progress", timings=dict(self.timings))
                return
            if not resumed or state.stop:
                yield state
            if state.stop:
                return
            self.advance(state)  # append, refit, drop
            before, resumed = state, False

    def begin(self, start: State | None) -> bool:
        """Take the first model; return whether it is the given start, unchanged."""
        if start is not None:
            self.model, self.n_iter = start.model, start.n_iter
            self.timings.update(start.timings)
            self.memory = self.memory._replace(vectors=start.memory.vectors)
            problem = self.objective.problem
            strengths = problem.alpha, problem.tau, problem.alpha_linear
            if strengths == (start.alpha, start.tau, start.alpha_linear):
                here = self.timed("refit", self.objective.value, self.model)
                if math.isclose(here, start.objective):
                    self.memory, self.refit.spent = start.memory, start.memory.spent
                    return True
        self.fit(self.refit.first, self.model)
        return False

    def fit(self, refit: Callable[..., Model], *arguments: Any) -> None:
        """Replace the model by what a refit returns."""
        self.model = self.timed("refit", refit, *arguments)
        self.memory = self.memory._replace(spent=self.refit.spent)

    def advance(self, state: State) -> None:
        """One round from a state of the model: append the chosen vectors, refit, drop."""
        chosen = self.select(state)
        state = replace(state, violation=chosen.value)
        recent = (*state.memory.recent, state.objective)[-STALL_ROUNDS:]
        self.memory = self.memory._replace(recent=recent, vectors=chosen.vectors)
        self.n_iter += 1
        self.fit(self.refit.advance, state, chosen)

    def measure(self) -> State:
        """The state of the model, without its certificate."""
        problem, objective, model = self.objective.problem, self.objective, self.model
        if self.known[0] is not model:
            self.known = model, self.timed("gradient", objective.gradient, model), None
        gradient: Gradient = self.known[1]
        return State(
            *model, gradient.value + objective.penalties(model), gradient.value,
            problem.omega(model.V), n_iter=self.n_iter,
            alpha=problem.alpha, tau=problem.tau, alpha_linear=problem.alpha_linear,
            own_dual_norm=float(problem.penalty.dual_norm(gradient.V)) if len(model.V) else 0.0,
            memory=self.memory,
        )  # fmt: skip

    def examine(self) -> State:
        """The state of the model, with its certificate.

        A full model that nobody will finish needs none.
        """
        state, tau = self.measure(), self.objective.problem.tau
        gap = self.timed("gradient", refit_gap, self.objective, *self.known[:2])
        state = replace(state, refit_gap=gap)
        if not self.options.finish and state.n_components >= self.options.n_components:
            return replace(state, stop="n_components", timings=dict(self.timings))
        chosen = self.select(state)
        # The model's own vectors count, too; rounding may put them above what was found.
        found, bound = chosen.value, max(chosen.bound, state.own_dual_norm)
        gaps = {}
        if tau is not None:
            for name, dual_norm in (("gap_found", found), ("gap", bound)):
                gaps[name] = gap + tau * max(0.0, dual_norm - state.own_dual_norm)
        return replace(
            state, violation=found, violation_bound=bound, **gaps,
            stop=self.why_stop(state, chosen), timings=dict(self.timings),
        )  # fmt: skip

    def select(self, state: State) -> Selection:
        """The vectors to add to the model; its state may be that at other strengths."""
        model, gradient, chosen = self.known
        if chosen is None:
            chosen = self.timed("selection", self._select, state, gradient)
            self.known = model, gradient, chosen
        return chosen

    def _select(self, state: State, gradient: Gradient) -> Selection:
        """The basis vectors to add; those of an optimum are confirmed by a thorough search."""
        problem, options, block = self.objective.problem, self.options, self.objective.rows.block
        limit = self.limit(state)
        search = partial(
            select_basis, gradient.gamma(), problem.penalty, n_vectors=self.block(state),
            sign_budget=self.refit.flops(state),
        )  # fmt: skip
        chosen = search(
            options.selection, threshold=0.0 if problem.tau is not None else limit,
            start=state.memory.vectors, data=None if block is None else block.design,
            random_state=np.random.default_rng([options.seed, state.n_iter]),
        )  # fmt: skip
        optimal, sure = chosen.value <= limit and self.accurate(state), chosen.bound <= limit
        if sure or not (optimal and options.finish):
            return chosen._replace(confirmed=sure)
        again = search(
            threshold=limit, tol=options.tol if problem.tau is None else min(options.tol, 5e-3),
            start=chosen.vectors, thorough=True, known=state.H,
            random_state=np.random.default_rng([options.seed, state.n_iter, 1]),
        )  # fmt: skip
        better = again if again.value > chosen.value else chosen
        bound = max(better.value, min(again.bound, chosen.bound))
        return better._replace(bound=bound, vectors=chosen.vectors, confirmed=again.confirmed)

    def block(self, state: State) -> int:
        """Basis vectors to add after this state."""
        k, most, size = state.n_components, self.options.n_components, self.options.block
        if size == "auto":
            # At least two rounds, because with l1 the vectors of one output could take all places.
            size = min(self.refit.block(k), (most + 1) // 2)
        return max(1, min(int(size), most - k))

    def limit(self, state: State) -> float:
        """The value of Omega*(G) up to which no other basis vector is needed."""
        problem, tol = self.objective.problem, self.options.tol
        if problem.tau is not None:
            return state.own_dual_norm + tol * self.objective.size(state.objective) / problem.tau
        return (1 + tol) * problem.alpha

    def accurate(self, state: State) -> bool:
        """Whether the model is the best one with its basis vectors, within the tolerance."""
        return state.refit_gap <= self.options.tol * self.objective.size(state.objective)

    def only_the_refit_is_loose(self, state: State) -> bool:
        """Whether a more accurate refit may be all that the state needs to be optimal."""
        can = self.refit.corrective and (state.n_components > 0 or self.objective.explicit)
        loose = state.refit_gain > LOOSEST_REFIT_TOL * self.objective.size(state.objective)
        full = state.stop == "n_components" and loose
        return can and (full or state.stop in ("max_iter", "no progress"))

    def why_stop(self, state: State, chosen: Selection) -> str | None:
        """The reason to stop at this state, or None."""
        options, recent = self.options, state.memory.recent
        if chosen.value <= self.limit(state):
            if self.accurate(state):
                return "optimal" if chosen.confirmed else "unconfirmed"
            if self.refit.corrective:
                return "max_iter"
        if state.n_components >= options.n_components:
            return "n_components"
        if len(recent) == STALL_ROUNDS:
            # Only half of the digits of a sum over many rows can be trusted.
            least = max(PROGRESS_SHARE_OF_TOL * options.tol, np.sqrt(np.finfo(np.float64).eps))
            if recent[0] - state.objective <= least * self.objective.size(state.objective):
                return "no progress"
        return "max_iter" if self.exhausted(state) else None

    def exhausted(self, state: State) -> bool:
        """Whether all refits together took too many iterations.

        Ten times max_iter at the tolerance of the estimators, 0.1 (bench/stress.py), and up to ten
        times as many at a finer one.
        """
        finer = math.sqrt(np.clip(0.1 / self.options.tol, 1.0, 100.0))
        return state.memory.spent / (10 * finer) >= self.options.max_iter

    def timed(self, part: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run step(*arguments) with BLAS on one thread, and add its seconds to that part."""
        begun = perf_counter()
        with one_blas_thread():
            result = step(*arguments)
        self.timings[part] += perf_counter() - begun
        return result
