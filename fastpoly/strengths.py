"""The default strengths: walks from strong to weak, judged on rows held out.

First alpha_linear, for the linear model alone. Then alpha, from the largest one down, where every
step adds a round of basis vectors to the model of the step before. Then alpha_linear once more,
downward, because what the basis vectors explain was noise for the linear model alone. Each walk
ends at the first loss of the rows held out that does not fall, and a weaker alpha is chosen only if
it is clearly better. `bench/default_walks.py` measures what each constant is worth.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.algorithm import Options, train
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.objective import PERFECT_SHARE, Objective
from fastpoly.path import Walk
from fastpoly.rows import Rows
from fastpoly.state import Floats, Model, RunMemory, State

# Of tables up to either size every fifth row is held out in turn, of larger ones one third once.
FEW_ROWS, FEW_ENTRIES = 700, 20_000
FOLDS, PARTS = 5, 10  # of small tables; parts of all rows held out say how sure a gain is
CLEAR_ERRORS = 0.5  # standard errors by which the weaker of two strengths must be better
RIDGES = (100.0, 10.0, 1.0, 0.1)
ALPHA_SHARES = 0.5 ** np.arange(18)  # of the largest alpha


def train_default(
    objective: Objective, options: Options, alpha_linear: float | None, start: State | None = None,
    search: "Search | None" = None,
) -> Iterator[State]:  # fmt: skip
    """The states of a run with the strengths that rows held out choose, alpha_linear if it is None.

    `search` may have begun before. A run that goes on has the strengths of its start.
    """
    if start is not None and start.alpha is not None:
        return train(objective.at(start.alpha, start.alpha_linear), options, start)
    search = search or Search(objective, options, alpha_linear)
    alpha, ridge, model = search.strengths()
    if start is None or len(start.H) < len(model.H):
        start = as_start(model, options.seed)
    return train(objective.at(alpha, ridge), options, start)


def as_start(model: Model, seed: int) -> State:
    """A state of an unknown problem, which a run refits before it goes on."""
    return State(*model, objective=0.0, loss=0.0, penalty=0.0, memory=RunMemory(seed))


def walk_down(
    loss: Callable[[float], Floats], strengths: Sequence[float], fewest: int = 2, clear: float = 0.0
) -> tuple[float, int]:
    """The strength to take, and its position; strengths fall geometrically.

    `loss` gives the losses of the parts of the rows held out. The walk ends at the first total that
    is not below the one before, after at least `fewest` strengths, and `simplest` chooses. If that
    is the least total, and not at an end, the strength is the vertex of the parabola through the
    logarithms of three totals, over log strengths.
    """
    losses: list[Floats] = []
    for strength in strengths:
        losses.append(loss(strength))
        if len(losses) >= fewest and not losses[-1].sum() < losses[-2].sum():
            break
    totals = np.log(np.sum(losses, axis=1))
    at = simplest(losses, clear)
    if at != totals.argmin() or not 0 < at < len(totals) - 1:
        return float(strengths[at]), at
    before, least, after = totals[at - 1 : at + 2]
    move = np.clip(0.5 * (before - after) / (before - 2 * least + after), -0.5, 0.5)
    step = strengths[at + (move > 0)] / strengths[at - (move <= 0)]
    return float(strengths[at] * step**move), at


def simplest(losses: Sequence[Floats], clear: float) -> int:
    """The first of some models whose loss is at most `clear` standard errors above the least one.

    Each has the losses of the same parts of the rows held out.
    """
    excess = np.asarray(losses)
    best, parts = int(excess.sum(axis=1).argmin()), excess.shape[1]
    excess = excess[: best + 1] - excess[best]
    errors = excess.std(axis=1, ddof=1) * np.sqrt(parts) if parts > 1 else np.zeros(best + 1)
    return int(np.argmax(excess.sum(axis=1) <= clear * errors))


class Fold(Walk):
    """A walk on rows to train on, judged on parts of rows held out."""

    def __init__(self, train: Objective, held: list[Objective], options: Options) -> None:
        super().__init__(train, options)
        self.held = held
        self.top = 0.0  # about the alpha at which the first vector enters

    def loss(self) -> Floats:
        """The losses of the parts held out; a perfect fit still has a logarithm."""
        return np.array([h.loss(self.model) + PERFECT_SHARE * h.rows.weight for h in self.held])

    def go_on(self, alpha: float, ridge: float) -> None:
        """Take a round of many vectors at a smaller alpha, or all of one."""
        for _ in self.rounds(alpha, ridge):
            if self.blocks:
                break


def make_folds(objective: Objective, options: Options, drawn_by: Rows | None = None) -> list[Fold]:
    """Every fifth of a small table held out in turn, or one third of a larger one; in parts.

    Other forms of the same rows have the same folds, if the first one draws them.
    """
    rows, by = objective.rows, drawn_by or objective.rows
    if not rows.in_memory:
        train, held = rows.hold_out(1 / 3, options.seed)
        return [Fold(objective.on(train), [objective.on(held)], options)]
    entries = by.n_samples * (by.n_features if by.entries is None else by.entries)
    few = by.n_samples <= FEW_ROWS or entries <= FEW_ENTRIES
    n_folds = min(FOLDS if few else 3, by.n_samples)
    if n_folds < 2:  # nothing can be held out
        return [Fold(objective, [objective], options)]
    times = n_folds if few else 1
    n_parts = PARTS // times if by.n_samples >= n_folds * PARTS else 1
    part, fold = np.divmod(by.draw(n_folds * n_parts, options.seed), n_folds)

    def on(which: NDArray[np.bool_]) -> Objective:
        return objective.on(rows.take(which))

    return [
        Fold(on(fold != i), [on((fold == i) & (part == j)) for j in range(n_parts)], options)
        for i in range(times)
    ]


class Strengths(NamedTuple):
    """The strengths, and a model to start from."""

    alpha: float
    alpha_linear: float
    model: Model


class Search:
    """The choice of the strengths of an objective; alpha_linear is chosen, too, if it is None.

    `ridge` is at first the one of the linear model alone.
    """

    def __init__(
        self, objective: Objective, options: Options, alpha_linear: float | None,
        drawn_by: Rows | None = None,
    ) -> None:  # fmt: skip
        self.objective, self.given = objective, alpha_linear
        self.tol, self.folds = options.tol, make_folds(objective, options, drawn_by)
        self.found: Strengths | None = None
        self.ridge = objective.problem.alpha_linear if alpha_linear is None else alpha_linear
        if objective.explicit:  # the folds then have linear models
            ridges = RIDGES if alpha_linear is None else (alpha_linear,)
            with one_blas_thread():
                self.ridge, _ = self._walk(lambda fold, r: fold.descend(1.0, r, 1e-3), ridges)

    def loss(self) -> Floats:
        """The losses of the parts of the rows held out, by the last models of the folds."""
        return np.concatenate([fold.loss() for fold in self.folds])

    def strengths(self) -> Strengths:
        """The strengths that the rows held out choose; the folds then have their models."""
        if self.found is not None:
            return self.found
        folds, ridge = self.folds, self.ridge

        def to_share(fold: Fold, share: float) -> None:
            if share < 1:  # the folds begin with their linear models
                fold.go_on(share * fold.top, ridge)

        def to_ridge(fold: Fold, weaker: float) -> None:
            if weaker < ridge:
                fold.descend(ALPHA_SHARES[at] * fold.top, weaker, self.tol)

        with one_blas_thread():
            for fold in folds:
                if self.objective.explicit and ridge not in RIDGES:
                    fold.descend(1.0, ridge, 1e-3)
                fold.top = fold.find_top(ridge)
            # The first vectors alone may be of no use, so a walk has at least three alphas.
            share, at = self._walk(to_share, ALPHA_SHARES, fewest=3, clear=CLEAR_ERRORS)
            if at and self.given is None and self.objective.explicit:
                weaker = [ridge, *(r for r in RIDGES if r < 0.3 * ridge)]
                self.ridge, _ = self._walk(to_ridge, weaker)
        top = float(np.mean([fold.top for fold in folds]))
        # Noise grows with the root of the number of rows.
        all_rows = self.objective.rows.weight
        top *= np.sqrt(all_rows / (folds[0].objective.rows.weight or all_rows))
        self.found = Strengths(share * top or 1.0, self.ridge, folds[0].model)
        return self.found

    def _walk(
        self, step: Callable[[Fold, float], None], strengths: Sequence[float],
        fewest: int = 2, clear: float = 0.0,
    ) -> tuple[float, int]:  # fmt: skip
        """`walk_down` by steps of all folds, which then have their best models."""
        models: list[list[Model]] = []

        def loss(strength: float) -> Floats:
            for fold in self.folds:
                step(fold, strength)
            models.append([fold.model for fold in self.folds])
            return self.loss()

        strength, at = walk_down(loss, strengths, fewest, clear)
        for fold, model in zip(self.folds, models[at], strict=True):
            fold.model = model
        return strength, at


def best_form(
    forms: Iterable[Objective], options: Options, alpha_linear: float | None
) -> tuple[int, Search]:
    """The position of the best of several forms of the same rows, simplest first; its search.

    The linear models of all forms are compared on the same rows held out. Only the best form and
    the simplest one then walk over alphas, because products may do what the form did. (Without
    linear terms all walk.)
    """
    searches: list[Search] = []
    for objective in forms:
        drawn_by = searches[0].objective.rows if searches else None
        searches.append(Search(objective, options, alpha_linear, drawn_by))

    def best(places: Sequence[int]) -> int:
        return places[simplest([searches[i].loss() for i in places], CLEAR_ERRORS)]

    places = range(len(searches))
    if searches[0].objective.explicit:
        places = sorted({0, best(places)})
    if len(places) > 1:
        for i in places:
            searches[i].strengths()
    at = best(places)
    return at, searches[at]


def default_ridge(objective: Objective, options: Options) -> float:
    """alpha_linear for the linear model alone, by rows held out."""
    return Search(objective, options, None).ridge
