"""A run as it goes: what was reached, which model is the best, and the file it survives in."""

import os
import re
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.estimators.stages import Stages, stage_arrays, take_stages
from fastpoly.state import State
from fastpoly.storage.state_file import (
    array,
    fingerprint,
    nothing_left,
    read_checkpoint,
    refusing,
    scalar,
    state_arrays,
    take_state,
    write_checkpoint,
)

# Parameters that do not change the model, and the one that a checkpoint may see grow.
INDIFFERENT = {"checkpoint", "checkpoint_every", "n_components", "n_threads", "verbose"}


class Training(NamedTuple):
    """All that a run which goes on must know; each step gives another one.

    Attributes
    ----------
    state : State or None
        The last one of this run, None before the first.
    stages : Stages
        The models so far. A later step may append to them: the first `n_stages` are of this one.
    n_stages : int
    best : State or None
        The model to keep: the last one, or that of the best validation score. Before the first
        step, that of an earlier fit of the same problem.
    best_score : float
    last : int
        The stage of `best`.
    since : int
        Steps since then.
    """

    state: State | None
    stages: Stages
    n_stages: int
    best: State | None
    best_score: float = -np.inf
    last: int = -1
    since: int = 0

    def step(self, state: State, shown: State, score: float | None) -> "Training":
        """After another state; `shown` is its model, `score` what validation says of it."""
        self.stages.append(shown, score)
        n = len(self.stages)
        if self.best is None or score is None or score > self.best_score:
            best_score = -np.inf if score is None else score
            return Training(state, self.stages, n, shown, best_score, n - 1, 0)
        return self._replace(state=state, n_stages=n, since=self.since + 1)

    def ended(self, n_components: int, n_iter_no_change: int) -> bool:
        """Whether nothing is left to do."""
        if self.state is None:
            return False
        full = self.state.n_components >= n_components
        over = self.state.stop is not None and (self.state.stop != "n_components" or full)
        return over or self.since >= n_iter_no_change


class Checkpoint:
    """The file that a run is saved to every so many seconds, when it ends, and when it is cut off.

    Parameters
    ----------
    path : str or path-like
    every : float
        Seconds; 0 for every step.
    problem : str
        Fingerprint of data and parameters.
    """

    def __init__(self, path: str | os.PathLike[str], every: float, problem: str) -> None:
        self.path, self.every, self.problem = Path(path), every, problem
        self.training: Training | None = None
        self.written = monotonic()
        self.split_seed: int | None = None
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise ValueError(f"checkpoint must be a file in an existing folder, got {path}")

    def load(self, n_components: int) -> Training | None:
        """The run in the file, if there is one; it must be of this problem and not larger."""
        try:
            arrays = read_checkpoint(self.path, self.problem)
        except FileNotFoundError:
            return None
        with refusing(self.path):
            training, self.split_seed = _take_training(arrays)
            nothing_left(arrays)
        if training.state.n_components > n_components:
            raise ValueError(
                f"n_components={n_components} is less than the {training.state.n_components} basis "
                f"vectors of the checkpoint {self.path}; it can only grow"
            )
        return training

    def __enter__(self) -> Self:
        return self

    def save(self, training: Training) -> None:
        """Take note of a step, and write it if it is time to."""
        self.training = training
        if monotonic() - self.written >= self.every:
            self._write()

    def __exit__(self, *exception: object) -> None:
        if self.training is not None:
            self._write()

    def _write(self) -> None:
        write_checkpoint(self.path, self.problem, _training_arrays(self.training, self.split_seed))
        self.training, self.written = None, monotonic()


class NoCheckpoint:
    """In place of a Checkpoint where none is wanted."""

    split_seed = None

    def load(self, n_components: int) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def save(self, training: Training) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


def problem_of(estimator: Any, X: Any, targets: NDArray, w: NDArray | None) -> str:
    """The fingerprint of a fit: the data as validated, and the parameters that matter."""
    values = {k: v for k, v in estimator.get_params(deep=False).items() if k not in INDIFFERENT}
    # Objects without a text of their own show their address, which differs from run to run.
    texts = [re.sub(r" at 0x[0-9a-fA-F]+", "", f"{k}={v!r}") for k, v in sorted(values.items())]
    classes = getattr(estimator, "classes_", None)
    return fingerprint(type(estimator).__name__, *texts, classes, targets, w, X)


def _training_arrays(training: Training, split_seed: int | None) -> dict[str, NDArray[Any]]:
    arrays = {
        **state_arrays(training.state),
        **stage_arrays(training.stages.up_to(training.n_stages - 1)),
        "best_score": np.array(training.best_score, dtype=np.float64),
        "last": np.array(training.last),
        "since": np.array(training.since),
        **state_arrays(training.best, "best."),
    }
    if split_seed is not None:
        arrays["split_seed"] = np.array(str(split_seed))
    return arrays


def _take_training(arrays: dict[str, NDArray[Any]]) -> tuple[Training, int | None]:
    state, best = take_state(arrays), take_state(arrays, "best.")
    d, m = state.H.shape[1], state.V.shape[1]
    if (best.H.shape[1], best.V.shape[1]) != (d, m):
        raise ValueError("its models differ in shape")
    stages = take_stages(arrays, d, m, with_linear=state.linear is not None)
    best_score = float(array(arrays, "best_score", "f", (), any_number=True))
    last, since = scalar(arrays, "last", "i"), scalar(arrays, "since", "i")
    if not 0 <= last < len(stages) or since < 0 or (state.linear is None) != (best.linear is None):
        raise ValueError(f"its best model is stage {last} of {len(stages)}, {since} steps ago")
    split_seed = None
    if "split_seed" in arrays:
        text = scalar(arrays, "split_seed", "U")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ValueError(f"its split_seed is {text[:20]!r}")
        split_seed = int(text)
    return Training(state, stages, len(stages), best, best_score, last, since), split_seed
