"""The default strengths: walks from strong to weak, judged on rows held out.

First alpha_linear, for the linear model alone. Then alpha, from the largest one down, where every
step adds a round of basis vectors to the model of the step before. Then alpha_linear once more,
downward, because what the basis vectors explain was noise for the linear model alone. Each walk
ends at the first loss of the rows held out that does not fall. `bench/defaults.py` measures it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastpoly.algorithm import Options, Run, refit_method, train
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.objective import PERFECT, Objective
from fastpoly.refit.joint import JointRefit
from fastpoly.selection import Selection
from fastpoly.state import Model, RunMemory, State

# Up to this many rows every fifth is held out in turn, above it one third once. With thirds, the
# log-loss of 19 small tables is 2 % higher.
FEW_ROWS = 700
FEW_FOLDS, MANY_FOLDS = 5, 3
# Without the choice, with 1, log-losses are 3 % higher in the mean; without the last one, 6 %.
RIDGES = (100.0, 10.0, 1.0, 0.1)
# Each alpha of the walk is that much smaller than the one before. With 2 the loss is .4 % lower,
# and the time a third longer.
ALPHA_STEP = 3.0
MOST_ALPHAS = 12
LINEAR_TOL = 1e-3


def train_default(
    objective: Objective, options: Options, alpha_linear: float | None, start: State | None = None,
    found: "Strengths | None" = None,
) -> Iterator[State]:  # fmt: skip
    """The states of a run with the strengths that rows held out choose, or that were found before.

    alpha_linear is chosen, too, if it is None. A run that goes on has its strengths already: they
    are those of its start.
    """
    if start is not None and start.alpha is not None:
        return train(objective.at(start.alpha, start.alpha_linear), options, start)
    alpha, ridge, model, _ = found or default_strengths(objective, options, alpha_linear)
    if start is None or len(start.H) < len(model.H):
        start = as_start(model, options.seed)
    return train(objective.at(alpha, ridge), options, start)


def as_start(model: Model, seed: int) -> State:
    """A state of an unknown problem, which a run refits before it goes on."""
    return State(*model, objective=0.0, loss=0.0, penalty=0.0, memory=RunMemory(seed))


def walk_down(loss: Callable[[float], float], strengths: Sequence[float]) -> tuple[float, int]:
    """The strength with the least loss, and its position; strengths fall geometrically.

    The walk ends at the first loss that is not below the one before. The strength is then the
    vertex of the parabola through the logarithms of the last three losses, over log strengths.

    Examples
    --------
    >>> from fastpoly.strengths import walk_down
    >>> walk_down(lambda s: 1 + (s - 2) ** 2, [100.0, 10.0, 1.0, 0.1])[1]
    2
    """
    losses: list[float] = []
    for strength in strengths:
        losses.append(np.log(loss(strength)))
        if len(losses) > 1 and not losses[-1] < losses[-2]:
            break
    best = int(np.argmin(losses))  # the first of equal ones: the simpler model
    if not 0 < best < len(losses) - 1:
        return float(strengths[best]), best
    before, least, after = losses[best - 1 : best + 2]
    move = np.clip(0.5 * (before - after) / (before - 2 * least + after), -0.5, 0.5)
    step = strengths[best + (move > 0)] / strengths[best - (move <= 0)]
    return float(strengths[best] * step**move), best


class Strengths(NamedTuple):
    """What walks found: the strengths, a model to start from, and the loss of the rows held out."""

    alpha: float
    alpha_linear: float
    model: Model
    loss: float


class Fold:
    """Rows to train on, rows held out, and the model that walks down."""

    def __init__(self, train: Objective, held: Objective, options: Options) -> None:
        self.train, self.held, self.options = train, held, options
        self.model = train.empty_model()
        self.memory = RunMemory(options.seed)
        self.top = 0.0  # about the alpha at which the first vector enters
        self.chosen: Selection | None = None

    def loss(self) -> float:
        """The loss of the rows held out; a perfect fit still has a logarithm."""
        return self.held.loss(self.model) + PERFECT * self.held.rows.weight

    def refit(self, alpha: float, ridge: float, tol: float) -> float:
        """Descend from the last model, without new vectors; return the loss held out."""
        objective, k = self.train.at(alpha, ridge), len(self.model.H)
        options = replace(self.options, tol=tol, n_components=max(k, 1), refit="auto")
        self.model = refit_method(objective, options).first(self.model)
        return self.loss()

    def find_top(self, ridge: float) -> None:
        """Find the largest alpha, and the vectors that enter first."""
        _, self.chosen = self._select(self.train.at(0.0, ridge))
        self.top = self.chosen.value

    def _select(self, objective: Objective) -> tuple[State, Selection]:
        options = replace(self.options, n_components=self.options.n_components + 1)
        run = Run(objective, refit_method(objective, options), options)
        state, chosen = run.examine(self.model, 0, self.memory)
        self.memory = self.memory._replace(vectors=chosen.vectors)
        return state, chosen

    def round(self, alpha: float, ridge: float) -> float:
        """One round at a smaller alpha, without a certificate; return the loss held out."""
        objective, options = self.train.at(alpha, ridge), self.options
        if len(self.model.H) >= options.n_components:
            return self.refit(alpha, ridge, options.tol)
        method = refit_method(objective, replace(options, n_components=options.n_components + 1))
        if isinstance(method, JointRefit):
            chosen = self.chosen or self._select(objective)[1]
            model = method.enter(self.model, chosen.H, chosen.Q, chosen.outputs)
            before = objective.value(self.model)
            self.model = method.tidy(method.descend(model, 1.0), before)
        else:
            *_, state = train(objective, options, as_start(self.model, options.seed))
            self.model = state.model
        self.chosen = None
        return self.loss()


def default_strengths(
    objective: Objective, options: Options, alpha_linear: float | None
) -> Strengths:
    """alpha and alpha_linear by rows held out."""
    options = replace(options, finish=False)
    folds = make_folds(objective, options)
    with one_blas_thread():
        ridge = linear_ridge(folds, alpha_linear)
        for fold in folds:
            fold.find_top(ridge)
        shares = ALPHA_STEP ** -np.arange(MOST_ALPHAS)

        def at_share(fold: Fold, share: float) -> float:
            return fold.loss() if share == 1 else fold.round(share * fold.top, ridge)

        share, at = walk_folds(folds, at_share, shares)
        if at and alpha_linear is None and objective.explicit:

            def at_ridge(fold: Fold, r: float) -> float:
                return (
                    fold.loss() if r == ridge else fold.refit(shares[at] * fold.top, r, options.tol)
                )

            weaker = [ridge, *(r for r in RIDGES if r < 0.3 * ridge)]
            ridge, _ = walk_folds(folds, at_ridge, weaker)
    top = float(np.mean([fold.top for fold in folds]))
    # Noise grows with the root of the number of rows.
    top *= np.sqrt(objective.rows.weight / max(folds[0].train.rows.weight, 1e-300))
    loss = sum(fold.loss() for fold in folds)
    return Strengths(share * top or 1.0, ridge, folds[0].model, loss)


def best_form(
    forms: Iterable[Objective], options: Options, alpha_linear: float | None
) -> tuple[int, Strengths]:
    """The position and the strengths of the best of several forms of the same rows.

    They are a walk from the simplest on, which ends at the first loss held out that does not fall.
    """
    found: list[Strengths] = []
    for objective in forms:
        found.append(default_strengths(objective, options, alpha_linear))
        if len(found) > 1 and not found[-1].loss < found[-2].loss:
            return len(found) - 2, found[-2]
    return len(found) - 1, found[-1]


def default_ridge(objective: Objective, options: Options) -> float:
    """alpha_linear for the linear model alone, by rows held out."""
    with one_blas_thread():
        return linear_ridge(make_folds(objective, options), None)


def make_folds(objective: Objective, options: Options) -> list[Fold]:
    """Every fifth of a small table held out in turn, or one third of a larger one."""
    rows = objective.rows
    few = rows.in_memory and rows.n_samples <= FEW_ROWS
    n_folds = min(FEW_FOLDS if few else MANY_FOLDS, rows.n_samples)
    if n_folds < 2:  # nothing can be held out
        return [Fold(objective, objective, options)]
    parts = rows.folds(n_folds, options.seed)[: None if few else 1]
    return [Fold(objective.on(train), objective.on(held), options) for train, held in parts]


def linear_ridge(folds: list[Fold], alpha_linear: float | None) -> float:
    """The ridge of the linear model alone; the folds then have its models."""
    if not folds[0].train.explicit:
        return folds[0].train.problem.alpha_linear if alpha_linear is None else alpha_linear
    ridges = RIDGES if alpha_linear is None else (alpha_linear,)

    def at_ridge(fold: Fold, ridge: float) -> float:
        return fold.refit(1.0, ridge, LINEAR_TOL)

    ridge, at = walk_folds(folds, at_ridge, ridges)
    if ridge != ridges[at]:
        for fold in folds:
            fold.refit(1.0, ridge, LINEAR_TOL)
    return ridge


def walk_folds(
    folds: list[Fold], fit: Callable[[Fold, float], float], strengths: Sequence[float]
) -> tuple[float, int]:
    """`walk_down` by the sum of the losses of all folds, which then have their best models."""
    models: list[list[Model]] = []

    def loss(strength: float) -> float:
        total = sum(fit(fold, strength) for fold in folds)
        models.append([fold.model for fold in folds])
        return total

    strength, at = walk_down(loss, strengths)
    for fold, model in zip(folds, models[at], strict=True):
        fold.model = model
    return strength, at
