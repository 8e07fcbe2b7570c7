"""What a fit remembers, and the file that keeps it: a run that is cut goes on, bit for bit.

A checkpoint is the record of a fit: its last state, its best one, and the models of all rounds. The
file is a .npz archive of plain arrays, with the scalars as JSON (see `fastpoly.storage.npz`);
nothing is unpickled. It replaces the one before in one step, so a run that is killed at any moment
leaves a complete file. It holds the fingerprint of its fit, and is refused for any other one.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.state import STOPS, TIMED, Model, RunMemory, State
from fastpoly.storage.npz import read_arrays, write_arrays

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

CHECKPOINT_VERSION = 2  # files of version 1, of 0.1 before its release, held no alpha_linear
CURE = "delete the file to start from scratch, or give another path"

# Numbers of a State that the history keeps.
HISTORY = (
    "objective", "loss", "penalty", "violation", "violation_bound", "gap", "gap_found",
    "n_components", "alpha",
)  # fmt: skip
NUMBERS = tuple(f.name for f in fields(State) if f.type in (float, float | None))
CERTIFICATE = tuple(f.name for f in fields(State) if f.type is float and f.default != f.default)
ARRAYS = ("H", "V", "intercept", "linear")


class Stages:
    """The models after each round; basis vectors that stay are stored once.

    An output refit does not change the other basis vectors or their order, so k rounds need k
    vectors, not k (k + 1) / 2. The joint descent moves them all, but it has few rounds.
    """

    def __init__(self, n_features: int = 0) -> None:
        self.n_features = n_features
        self.pool: list[Floats] = []
        self.models: list[Model] = []  # H has positions in the pool instead of vectors
        self.numbers: list[tuple[float, ...]] = []

    def after(self, state: State, model: Model) -> "Stages":
        """With the model of one more state, in the units that users see, and its numbers."""
        more = self.up_to(len(self) - 1)
        more.n_features = model.H.shape[1]
        # Kept rows are found among those of the round before, in one sweep; the others are new.
        known = iter(self.models[-1].H if self.models else ())
        rows = []
        for h in model.H:
            row = next((r for r in known if np.array_equal(self.pool[r], h)), None)
            if row is None:
                row = len(more.pool)
                more.pool.append(h.copy())
            rows.append(row)
        more.models.append(model._replace(H=np.array(rows, dtype=np.int64)))
        values = [getattr(state, name) for name in HISTORY]
        values = [math.nan if value is None else float(value) for value in values]  # alpha, if tau
        more.numbers.append((*values, sum(state.timings.values())))
        return more

    def history(self) -> dict[str, NDArray]:
        """The recorded numbers: one array per name, with one entry per round."""
        names = (*HISTORY, "seconds")
        columns = dict(zip(names, map(np.array, zip(*self.numbers, strict=True)), strict=True))
        columns["n_components"] = columns["n_components"].astype(np.int64)
        return columns

    def up_to(self, last: int) -> "Stages":
        """The first `last` + 1 rounds."""
        shorter = Stages(self.n_features)
        shorter.pool, shorter.models = list(self.pool), self.models[: last + 1]
        shorter.numbers = self.numbers[: last + 1]
        return shorter

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, i: int) -> Model:
        """The model of round i."""
        model = self.models[i]
        H = [self.pool[r] for r in model.H]
        return model._replace(H=np.reshape(H, (len(H), self.n_features)))


@dataclass
class FitRecord:
    """What a fit remembers of its rounds.

    Attributes
    ----------
    seed : int
        It decides which rows are held out.
    state : State or None
        The last state, from which the run goes on.
    best : State or None
        With early stopping, the state of the best score.
    scores : list of float
        With early stopping, the score of every round.
    stages : Stages
    """

    seed: int = 0
    state: State | None = None
    best: State | None = None
    scores: list[float] = field(default_factory=list)
    stages: Stages = field(default_factory=Stages)

    def after(self, state: State, model: Model, score: float | None) -> "FitRecord":
        """The record with one more round: its state, its model in the users' units, its score.

        It is a new record, so that Ctrl-C leaves a round complete, or leaves nothing of it.
        """
        scores = self.scores if score is None else [*self.scores, score]
        better = score is not None and score > max(self.scores, default=-math.inf)
        best = state if better else self.best
        return FitRecord(self.seed, state, best, scores, self.stages.after(state, model))

    def ended(self, n_components: int, patience: int) -> bool:
        """Whether the run is over: by its own rule, or because scores no longer rise."""
        state = self.state
        if state is None:
            return False
        # A run that stopped because it was full goes on if there is more room now.
        full = state.stop == "n_components" and state.n_components < n_components
        stale = bool(self.scores) and len(self.scores) - 1 - int(np.argmax(self.scores)) >= patience
        return (state.stop is not None and not full) or stale

    @property
    def last(self) -> int:
        """The round whose model is kept."""
        return int(np.argmax(self.scores)) if self.scores else len(self.stages) - 1


# --- files ---


def save_state(path: str | os.PathLike[str], state: State, problem: str = "") -> None:
    """Write a state of `conditional_gradient` to a file, all or nothing.

    Parameters
    ----------
    path : str or path-like
    state : State
    problem : str
        Identifies the problem of the state, for example by its `fingerprint`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastpoly import Design, conditional_gradient
    >>> from fastpoly.storage.checkpoint import fingerprint, load_state, save_state
    >>> X = np.random.default_rng(0).standard_normal((100, 4))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> problem, path = fingerprint(X, y, "alpha=1"), os.path.join(tempfile.mkdtemp(), "run.npz")
    >>> for state in conditional_gradient(Design(X), y, alpha=1.0, random_state=0):
    ...     save_state(path, state, problem)
    ...     if state.n_iter == 1:
    ...         break  # here the power fails
    >>> start = load_state(path, problem)
    >>> *_, state = conditional_gradient(Design(X), y, alpha=1.0, start=start)
    >>> state.stop
    'optimal'
    """
    save_record(path, FitRecord(state=state), problem)


def load_state(path: str | os.PathLike[str], problem: str = "") -> State:
    """Read a state that `save_state` wrote.

    Parameters
    ----------
    path : str or path-like
    problem : str
        Must be the string that was given to `save_state`.

    Returns
    -------
    State

    Raises
    ------
    ValueError
        If the file is damaged, of another version or problem, or not a consistent state.
    OSError
        If the file cannot be opened (such as FileNotFoundError).
    """
    state = load_record(path, problem).state
    if state is None:
        raise ValueError(f"{os.fspath(path)} holds no state; {CURE}")
    return state


def save_record(path: str | os.PathLike[str], record: FitRecord, fit: str) -> None:
    """Write the record of a fit, all or nothing; `fit` is its fingerprint."""
    scalars: dict[str, Any] = {
        "version": CHECKPOINT_VERSION, "fit": fit, "seed": record.seed,
        "scores": record.scores, "rounds": len(record.stages),
    }  # fmt: skip
    arrays: Arrays = {}
    for name in ("state", "best"):
        state = getattr(record, name)
        if state is not None:
            scalars[name] = _state_scalars(state)
            vectors = state.memory.vectors
            parts = zip((*ARRAYS, "vectors"), (*state.model, vectors), strict=True)
            arrays |= {f"{name}.{part}": a for part, a in parts if a is not None}
    stages, models = record.stages, record.stages.models
    if models:
        d = record.state.H.shape[1]
        arrays["stages.pool"] = np.reshape(stages.pool, (-1, d)).astype(np.float64)
        arrays["stages.sizes"] = np.array([len(model.H) for model in models], dtype=np.int64)
        arrays["stages.numbers"] = np.array(stages.numbers, dtype=np.float64)
        for part, name in enumerate(ARRAYS):
            values = [model[part] for model in models]
            if values[0] is not None:
                join = np.concatenate if name in ("H", "V") else np.array
                arrays[f"stages.{name}"] = join(values)
    text = json.dumps(scalars, allow_nan=True)
    write_arrays(path, {"record": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})


def load_record(path: str | os.PathLike[str], fit: str) -> FitRecord:
    """Read the record of that fit.

    ValueError if the file is damaged, of another version or fit, or not consistent; OSError if it
    cannot be opened.
    """
    arrays = read_arrays(path)
    with _refusing(path):
        if "record" not in arrays:
            raise ValueError("it has no record, as files before version 2")
        scalars = json.loads(bytes(_take(arrays, "record", "u", (None,))).decode())
        _check_scalars(scalars, {"version": int})
        if scalars["version"] != CHECKPOINT_VERSION:
            raise ValueError(
                f"it has format version {scalars['version']}, this fastpoly reads "
                f"{CHECKPOINT_VERSION}"
            )
        _check_scalars(scalars, {"fit": str, "seed": int, "scores": list, "rounds": int})
    if scalars["fit"] != fit:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another fit, with other data or parameters; "
            f"{CURE}"
        )
    with _refusing(path):
        record = FitRecord(seed=scalars["seed"], scores=scalars["scores"])
        if not all(isinstance(score, float) and math.isfinite(score) for score in record.scores):
            raise ValueError("its scores are not finite numbers")
        for name in ("state", "best"):
            if name in scalars:
                setattr(record, name, _taken_state(arrays, name, scalars[name]))
        if record.state is not None and scalars["rounds"]:
            record.stages = _taken_stages(arrays, record.state.model, scalars["rounds"])
        scored = bool(record.scores)
        if scored != (record.best is not None) or (
            scored and len(record.scores) != len(record.stages)
        ):
            raise ValueError("its scores do not fit its rounds")
        if arrays:
            raise ValueError(f"it holds unknown arrays: {sorted(arrays)[:5]}")
    return record


def _state_scalars(state: State) -> dict[str, Any]:
    numbers = {name: getattr(state, name) for name in NUMBERS}
    timings = [state.timings.get(name, 0.0) for name in TIMED]
    return {
        **{name: None if value is None else float(value) for name, value in numbers.items()},
        "n_iter": state.n_iter, "stop": state.stop, "timings": timings,
        "seed": state.memory.seed, "recent": list(state.memory.recent),
    }  # fmt: skip


def _taken_state(arrays: Arrays, name: str, scalars: Any) -> State:
    """The state of these scalars and arrays; ValueError unless they are consistent."""
    kinds = {"n_iter": int, "timings": list, "seed": int, "recent": list}
    _check_scalars(scalars, kinds)
    numbers = {key: scalars.get(key) for key in NUMBERS}
    for key, value in numbers.items():
        number = isinstance(value, float) and (key in CERTIFICATE or math.isfinite(value))
        if not number and not (value is None and key in ("alpha", "tau")):
            raise ValueError(f"its {key} is {value!r}")
    lists = [*scalars["timings"], *scalars["recent"]]
    if not all(isinstance(x, float) and math.isfinite(x) for x in lists):
        raise ValueError("its timings or objectives are not finite numbers")
    stop, n_iter, seed = scalars.get("stop"), scalars["n_iter"], scalars["seed"]
    if stop not in STOPS or n_iter < 0 or seed < 0 or len(scalars["timings"]) != len(TIMED):
        raise ValueError(f"it has n_iter={n_iter}, stop={stop!r} and seed={str(seed)[:20]}")
    H = _take(arrays, f"{name}.H", "f", (None, None))
    V = _take(arrays, f"{name}.V", "f", (len(H), None))
    (d, m), extra = (H.shape[1], V.shape[1]), {}
    shapes = {"intercept": (m,), "linear": (d, m), "vectors": (m, d)}
    for part, shape in shapes.items():
        there = part == "intercept" or f"{name}.{part}" in arrays
        extra[part] = _take(arrays, f"{name}.{part}", "f", shape) if there else None
    memory = RunMemory(seed, tuple(scalars["recent"]), extra.pop("vectors"))
    timings = dict(zip(TIMED, scalars["timings"], strict=True))
    return State(H, V, **extra, **numbers, n_iter=n_iter, stop=stop, timings=timings, memory=memory)


def _taken_stages(arrays: Arrays, last: Model, n: int) -> Stages:
    """The models of n rounds; ValueError unless they are consistent."""
    d, m = last.H.shape[1], last.V.shape[1]
    sizes = _take(arrays, "stages.sizes", "i", (n,))
    if n < 1 or sizes.min() < 0 or sizes.max() > 2**31:
        raise ValueError("its rounds have no sizes")
    total = int(sizes.sum())
    stages = Stages(d)
    stages.pool = list(_take(arrays, "stages.pool", "f", (None, d)))
    H = _take(arrays, "stages.H", "i", (total,))
    if total and not 0 <= H.min() <= H.max() < len(stages.pool):
        raise ValueError("its rounds have basis vectors that are not there")
    V = _take(arrays, "stages.V", "f", (total, m))
    intercept = _take(arrays, "stages.intercept", "f", (n, m))
    linear: Any = [None] * n
    if last.linear is not None:
        linear = _take(arrays, "stages.linear", "f", (n, d, m))
    numbers = _take(arrays, "stages.numbers", "f", (n, len(HISTORY) + 1), finite=False)
    ends = np.cumsum(sizes)[:-1]
    parts = zip(np.split(H, ends), np.split(V, ends), intercept, linear, strict=True)
    stages.models = [Model(*part) for part in parts]
    stages.numbers = [tuple(row) for row in numbers.tolist()]
    return stages


def _check_scalars(scalars: Any, kinds: dict[str, type]) -> None:
    for name, kind in kinds.items():
        value = scalars.get(name) if isinstance(scalars, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"its {name} is {str(value)[:50]!r}")


def _take(
    arrays: Arrays, name: str, kind: str, shape: tuple[int | None, ...], finite: bool = True
) -> NDArray[Any]:
    """Take an array out; ValueError unless it is of that kind and shape (None: any length)."""
    a = arrays.pop(name, None)
    if a is None:
        raise ValueError(f"it has no {name}")
    if a.dtype.kind != kind:
        raise ValueError(f"{name} must not have dtype {a.dtype}")
    if a.ndim != len(shape) or any(
        want is not None and have != want for have, want in zip(a.shape, shape, strict=True)
    ):
        raise ValueError(f"{name} has shape {a.shape}, which does not fit the rest")
    if kind == "f" and finite and not np.isfinite(a).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return np.array(a, order="C")  # our own copy, aligned


@contextmanager
def _refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that adds the name of the file to errors."""
    try:
        yield
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        file = os.fspath(path)
        raise ValueError(f"{file} is not a usable checkpoint: {error}; {CURE}") from error


# --- identity of a fit ---


def fingerprint(*parts: Any) -> str:
    """A digest of arrays, CSR matrices and texts; other bytes, dtypes or shapes give another one.

    Arrays of objects count as the list of their representations.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.storage.checkpoint import fingerprint
    >>> fingerprint(np.arange(3), "a") == fingerprint(np.arange(3.0), "a")
    False
    """
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        for name, value in _pieces(part):
            digest.update(f"{name}:{len(value)};".encode())
            digest.update(value)
    return digest.hexdigest()


def _pieces(part: Any) -> Iterable[tuple[str, Any]]:
    """The names and bytes of the pieces of a part."""
    if part is None or isinstance(part, str | bytes):
        text = part or ""
        yield type(part).__name__, text if isinstance(text, bytes) else text.encode()
    elif hasattr(part, "indptr"):
        yield "sparse", f"{part.format} {part.shape}".encode()
        for array in (part.indptr, part.indices, part.data):
            yield from _pieces(array)
    else:
        array = np.asarray(part)
        if array.dtype.kind == "O":
            yield "objects", repr(array.tolist()).encode()
        else:
            array = np.ascontiguousarray(array)
            yield f"{array.dtype.str} {array.shape}", array.reshape(-1).view(np.uint8).data
