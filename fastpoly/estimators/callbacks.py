"""Callbacks that watch a fit: each sees every state, and any of them can end the run.

`after(state)` records a state and returns whether to stop. Callbacks whose memory a resumed run
needs also have `progress()`, a snapshot that costs nothing; `arrays(progress)`, the arrays that a
file keeps of it; and `restore(arrays)`, which reads them back.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from fastpoly.advice import warn
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

# Seconds after which a fit warns that it is slow for its size: sooner would be noise.
SLOW_SECONDS = 5.0


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
            if exception == (None, None, None):
                self.bar.total = self.bar.n  # it needed no more basis vectors
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
    """Warns once, during the fit, that it is slow for its size, and why.

    Parameters
    ----------
    reason : callable
        Takes the last state and the first state, or None for each; returns the reason with its
        cure, or None.
    """

    def __init__(self, reason: Callable[[State | None, State | None], str | None]) -> None:
        self.reason, self.warned = reason, False
        self.last: State | None = None
        self.first: State | None = None
        self.restart()

    def restart(self) -> None:
        """Count the seconds from now."""
        self.begun, self.asked = monotonic(), False

    def after(self, state: State) -> bool:
        self.first, self.last, self.asked = self.first or state, state, False
        if not state.stop:
            self.check()
        return False

    def check(self) -> None:
        """Warn if it is time to; a run calls this many times during a round."""
        if self.warned or self.asked or monotonic() - self.begun < SLOW_SECONDS:
            return
        self.asked = True  # until there is another state
        reason = self.reason(self.last, self.first)
        if reason:
            self.warned = True
            what = f"the fit has taken more than {SLOW_SECONDS:g} seconds so far"
            warn(f"{what}: {reason}", topic=what)
