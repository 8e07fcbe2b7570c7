"""Callbacks that watch a fit: each sees every state, and any of them can end the run.

`after(state)` records a state and returns whether to stop. Callbacks whose memory a resumed run
needs also have `progress()`, a snapshot that costs nothing; `arrays(progress)`, the arrays that a
file keeps of it; and `restore(arrays)`, which reads them back.
"""

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from tqdm.auto import tqdm

from fastpoly.refit.rounds import LOOSEST_REFIT_TOL
from fastpoly.rows.scaling import Scaling
from fastpoly.state import Model, State
from fastpoly.storage.stages import Stages, stage_arrays, take_stages
from fastpoly.storage.state_file import (
    array,
    nothing_left,
    read_checkpoint,
    refusing,
    scalar,
    state_arrays,
    take_state,
    write_checkpoint,
)

logger = logging.getLogger("fastpoly")

Arrays = dict[str, NDArray[Any]]

# Seconds after which a fit warns that it is slow, if the reason is known: sooner would be noise.
SLOW_SECONDS = 5.0
# A fit whose violation is above this multiple of alpha is far from its optimum, and warns. At an
# optimum the ratio is at most 1.
FAR_FROM_OPTIMUM = 2.0
# Where the scales of columns, or alpha_max and alpha, are farther apart than this factor, a fit is
# slow: such problems are badly conditioned.
FAR_APART = 1e3


class HistoryProgress(NamedTuple):
    n_stages: int
    state: State


class History:
    """The models so far, in the users' units, and the last state, from which a run continues.

    Parameters
    ----------
    stages : Stages
        The stages of an earlier fit that continues, or empty ones.
    n_components : int
        A run that stopped because it was full continues if there is more room now.

    Attributes
    ----------
    fold : callable
        Turns the model of a state into one of the original features and targets. It is set when
        the training rows are known.
    """

    fold: Callable[[Model], Model]

    def __init__(self, stages: Stages, n_components: int) -> None:
        self.stages, self.n_components = stages, n_components
        self.state: State | None = None

    def after(self, state: State) -> bool:
        self.stages.append(state, self.fold(state.model))
        self.state = state
        return self.ended()

    def ended(self) -> bool:
        """Whether the run is over."""
        if self.state is None or self.state.stop is None:
            return False
        return self.state.stop != "n_components" or self.state.n_components >= self.n_components

    def progress(self) -> HistoryProgress:
        return HistoryProgress(len(self.stages), self.state)

    def arrays(self, progress: HistoryProgress) -> Arrays:
        stages = self.stages.up_to(progress.n_stages - 1)
        return {**state_arrays(progress.state), **stage_arrays(stages)}

    def restore(self, arrays: Arrays) -> None:
        state = take_state(arrays)
        d, m = state.H.shape[1], state.V.shape[1]
        self.stages = take_stages(arrays, d, m, with_linear=state.linear is not None)
        if state.n_components > self.n_components:
            raise ValueError(
                f"it has {state.n_components} basis vectors, and n_components="
                f"{self.n_components} is less; it can only grow"
            )
        self.state = state


class EarlyStoppingProgress(NamedTuple):
    n_scores: int
    best: State


class EarlyStopping:
    """Scores every stage on the rows held out, and ends the run when scores no longer rise.

    Parameters
    ----------
    history : History
        The history, which sees every state first.
    patience : int
        Rounds without a better score after which the run ends.
    split_seed : int
        The seed that decides which rows are held out.

    Attributes
    ----------
    score : callable
        The score of a model in the users' units. It is set when the rows held out are known.
    """

    score: Callable[[Model], float]

    def __init__(self, history: History, patience: int, split_seed: int) -> None:
        self.history, self.patience, self.split_seed = history, patience, split_seed
        self.scores: list[float] = []
        self.best: State | None = None

    def after(self, state: State) -> bool:
        score = self.score(self.history.stages[len(self.history.stages) - 1])
        better = not self.scores or score > max(self.scores)
        self.scores, self.best = [*self.scores, score], state if better else self.best
        return self.ended()

    @property
    def best_stage(self) -> int:
        """The first stage with the best score."""
        return int(np.argmax(self.scores))

    def ended(self) -> bool:
        """Whether enough rounds have passed without a better score."""
        return bool(self.scores) and len(self.scores) - 1 - self.best_stage >= self.patience

    def progress(self) -> EarlyStoppingProgress:
        return EarlyStoppingProgress(len(self.scores), self.best)

    def arrays(self, progress: EarlyStoppingProgress) -> Arrays:
        return {
            "validation_scores": np.array(self.scores[: progress.n_scores], dtype=np.float64),
            "split_seed": np.array(str(self.split_seed)),
            **state_arrays(progress.best, "best."),
        }

    def restore(self, arrays: Arrays) -> None:
        state, n = self.history.state, len(self.history.stages)
        best = take_state(arrays, "best.")
        if (best.H.shape[1], best.V.shape[1]) != (state.H.shape[1], state.V.shape[1]) or (
            (best.linear is None) != (state.linear is None)
        ):
            raise ValueError("its models differ in shape")
        self.best = best
        self.scores = array(arrays, "validation_scores", "f", (n,)).tolist()
        seed = scalar(arrays, "split_seed", "U")
        if not (seed.isascii() and seed.isdigit() and len(seed) < 20):
            raise ValueError(f"its split_seed is {seed[:20]!r}")
        self.split_seed = int(seed)


class Checkpoint:
    """Saves the run to a file at intervals, when it ends, and when it is interrupted.

    Parameters
    ----------
    path : str or path-like
    every : float
        Seconds between writes; 0 for every round.
    problem : str
        Fingerprint of data and parameters.
    callbacks : list
        Callbacks whose memory the file keeps; all of them see a state before this one does.
    """

    def __init__(
        self, path: str | os.PathLike[str], every: float, problem: str, callbacks: list[Any]
    ) -> None:
        self.path, self.every, self.problem, self.callbacks = Path(path), every, problem, callbacks
        self.progress: list[Any] = []
        self.written = monotonic()
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise ValueError(f"checkpoint must be a file in an existing folder, got {path}")

    def load(self) -> bool:
        """Restore the callbacks from the file, if there is one; it must be of this problem."""
        try:
            arrays = read_checkpoint(self.path, self.problem)
        except FileNotFoundError:
            return False
        with refusing(self.path):
            for callback in self.callbacks:
                callback.restore(arrays)
            nothing_left(arrays)
        return True

    def after(self, state: State) -> bool:
        # One assignment, so that Ctrl-C leaves a round complete, or leaves nothing of it.
        self.progress = [callback.progress() for callback in self.callbacks]
        if monotonic() - self.written >= self.every:
            self._write()
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.progress:
            self._write()

    def _write(self) -> None:
        arrays: Arrays = {}
        for callback, progress in zip(self.callbacks, self.progress, strict=True):
            arrays |= callback.arrays(progress)
        write_checkpoint(self.path, self.problem, arrays)
        self.progress, self.written = [], monotonic()


class Progress:
    """Shows progress: nothing for verbose=0, a tqdm bar for 1, else one log line per round.

    Parameters
    ----------
    verbose : int
    n_components : int
    early : EarlyStopping or None
        The callback whose scores are shown.
    """

    def __init__(self, verbose: int, n_components: int, early: EarlyStopping | None) -> None:
        self.verbose, self.early = int(verbose), early
        self.bar = tqdm(total=n_components, unit="basis") if self.verbose == 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def after(self, state: State) -> bool:
        if self.verbose == 0:
            return False
        numbers = {"objective": f"{state.objective:.5g}", "violation": f"{state.violation:.3g}"}
        if self.early is not None:
            numbers["validation"] = f"{self.early.scores[-1]:.4f}"
        if self.bar is not None:
            self.bar.set_postfix(numbers, refresh=False)
            self.bar.update(state.n_components - self.bar.n)
            return False
        shown = ", ".join(f"{name} {value}" for name, value in numbers.items())
        logger.info("round %d: %d basis vectors, %s", state.n_iter, state.n_components, shown)
        if state.stop:
            logger.info("stopped: %s", state.stop)
        return False


class SlowFit:
    """Warns once, during the fit, that it is slow, if the reason is known.

    Parameters
    ----------
    reason : callable
        Takes a state and the first state; returns the reason with its cure, or None.
    """

    def __init__(self, reason: Callable[[State, State], str | None]) -> None:
        self.reason, self.begun, self.warned = reason, monotonic(), False
        self.first: State | None = None

    def after(self, state: State) -> bool:
        self.first = self.first or state
        if self.warned or state.stop or monotonic() - self.begun < SLOW_SECONDS:
            return False
        self.warned = True
        reason = self.reason(state, self.first)
        if reason:
            warnings.warn(
                f"the fit has taken more than {SLOW_SECONDS:g} seconds so far: {reason}",
                stacklevel=5,
            )
        return False


def why_slow(model: Any, data: Any, state: State, first: State) -> str | None:
    """Say what makes a fit slow, and what to do about it."""
    if not model.standardize:
        largest = Scaling.standard(data.statistics, centered=False).factor
        if largest is not None and largest.max() > FAR_APART * largest.min():
            return (
                f"the columns of X differ in size by a factor of "
                f"{largest.max() / largest.min():.0f}; set standardize=True"
            )
    if state.alpha is not None and FAR_APART * state.alpha < first.violation:
        return (
            f"alpha={state.alpha:.2g} is tiny, {state.alpha / first.violation:.1g} of the "
            "alpha at which the first basis vector enters; raise alpha"
        )
    return None


def warn_of_a_poor_fit(model: Any) -> None:
    """Warn if the model is worse than its parameters promise, and say what to change."""
    state, objective, alpha = model._state, abs(model.objective_), model._state.alpha
    if model.early_stopping and state.stop is None:
        return  # an intermediate model, chosen for its score
    gap = state.refit_gain if model.refit in ("auto", "full") else state.refit_gap
    cure = "" if model.standardize else "set standardize=True, "
    cure += "raise alpha, "
    if state.stop == "n_components":
        cure += f"raise n_components, which is {model.n_components}, "
    cure += "or "
    cure += f"raise max_iter, which is {model.max_iter}" if model.refit else 'use refit="output"'
    far = bool(alpha) and model.violation_ > FAR_FROM_OPTIMUM * alpha
    kind: type[Warning] = ConvergenceWarning
    # A converged refit is at least this accurate.
    if state.stop != "optimal" and gap > max(model.tol, LOOSEST_REFIT_TOL) * objective:
        inaccuracy = f"a gap of {gap:.2g} for an objective of {objective:.2g}"
        message = f"the output layer is inaccurate: {inaccuracy}; {cure}"
    elif state.stop == "no progress" and far:
        message = (
            "training stopped because new basis vectors gained nothing, far from the optimum: "
            f"the violation is {model.violation_:.2g}, alpha {alpha:.2g}; {cure}"
        )
    elif state.stop == "n_components" and far:
        message = (
            f"training stopped at n_components={model.n_components}, and more basis vectors "
            f"would improve the model: the violation is {model.violation_ / alpha:.2g} alpha; "
            "raise n_components, or raise alpha"
        )
    elif not state.n_components and model.violation_ > 0:
        lower = "linear" if model.fit_lower == "explicit" else "constant"
        cure = f"lower alpha, which is {alpha:.3g}," if model.tau is None else "raise tau"
        message = (
            f"the model has no basis vectors and is {lower}: none is worth its penalty (the "
            f"largest violation is {model.violation_:.3g}); {cure} to fit interactions"
        )
        kind = UserWarning
    else:
        return
    warnings.warn(message, kind, stacklevel=3)
