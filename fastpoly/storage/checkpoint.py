"""What a fit remembers, and the file that keeps it: a run that is cut goes on, bit for bit.

The file is a .npz archive of plain arrays, with the scalars as JSON (see `fastpoly.storage.npz`).
It replaces the one before in one step, so a run that is killed at any moment leaves a complete
file. It holds the fingerprint of its fit, and is refused for any other one.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import as_float_array
from fastpoly.state import STOPS, TIMED, Floats, Model, RunMemory, State, check_start
from fastpoly.storage.npz import read_arrays, write_arrays

Arrays = dict[str, NDArray[Any]]

CHECKPOINT_VERSION = 3  # files of 1 and 2, of 0.1 before its release, held less of a run
CURE = "delete the file to start from scratch, or give another path"

# Numbers of a State that the history keeps.
HISTORY = (
    "objective", "loss", "penalty", "violation", "violation_bound", "gap", "gap_found",
    "n_components", "alpha",
)  # fmt: skip
NUMBERS = tuple(f.name for f in fields(State) if f.type in (float, float | None))
# Those that may be NaN or infinite.
CERTIFICATE = tuple(f.name for f in fields(State) if f.type is float and f.default != f.default)
DIMENSIONS = {"H": 2, "V": 2, "intercept": 1, "linear": 2, "vectors": 2}  # of arrays of a state


@dataclass(frozen=True)
class Stages:
    """The models after each round, and `HISTORY` and the seconds of each.

    The H of a model has places in the pool of all vectors (d,): an output refit keeps the other
    vectors and their order, so k rounds need k vectors.
    """

    pool: tuple[Floats, ...] = ()
    models: tuple[Model, ...] = ()
    numbers: tuple[tuple[float, ...], ...] = ()
    n_features: int = 0

    def after(self, state: State, model: Model) -> Self:
        """With the model of one more state, in the units that users see, and its numbers."""
        # Kept vectors are found among those of the round before, in one sweep; the others are new.
        known = iter(self.models[-1].H.tolist() if self.models else [])
        pool, places = list(self.pool), []
        for h in model.H:
            place = next((i for i in known if np.array_equal(pool[i], h)), len(pool))
            places.append(place)
            if place == len(pool):
                pool.append(h.copy())
        values = (getattr(state, name) for name in HISTORY)
        numbers = [math.nan if value is None else float(value) for value in values]
        own = model._replace(H=np.array(places, np.int64))
        rounds = (*self.numbers, (*numbers, sum(state.timings.values())))
        return type(self)(tuple(pool), (*self.models, own), rounds, model.H.shape[1])

    def history(self) -> dict[str, NDArray]:
        """The recorded numbers: one array per name, with one entry per round."""
        columns = dict(zip((*HISTORY, "seconds"), np.array(self.numbers).T.copy(), strict=True))
        columns["n_components"] = columns["n_components"].astype(np.int64)
        return columns

    def up_to(self, last: int) -> Self:
        """The first `last` + 1 rounds."""
        return replace(self, models=self.models[: last + 1], numbers=self.numbers[: last + 1])

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, i: int) -> Model:
        """The model of round i."""
        model = self.models[i]
        H = [self.pool[place] for place in model.H]
        return model._replace(H=np.reshape(H, (len(H), self.n_features)))

    def arrays(self) -> Arrays:
        """The arrays of a file."""
        H, V, intercept, linear = zip(*self.models, strict=True)
        arrays = {
            "stages.H": np.concatenate(H),
            "stages.V": np.concatenate(V),
            "stages.intercept": np.array(intercept),
            "stages.pool": np.reshape(self.pool, (-1, self.n_features)).astype(np.float64),
            "stages.sizes": np.array(list(map(len, H)), np.int64),
            "stages.numbers": np.array(self.numbers),
        }
        return arrays if linear[0] is None else {**arrays, "stages.linear": np.array(linear)}

    @classmethod
    def of(cls, arrays: Arrays, n: int, last: Model) -> Self:
        """The stages of n rounds from the arrays of a file; ValueError if they are wrong."""
        pool = _take(arrays, "stages.pool", (None, None))
        d, m = pool.shape[1], last.V.shape[1]
        sizes = _take(arrays, "stages.sizes", (n,)).astype(np.int64)
        total = int(sizes.sum())
        H = _take(arrays, "stages.H", (total,)).astype(np.int64)
        if sizes.min() < 0 or not ((H >= 0) & (len(pool) > H)).all():
            raise ValueError("its rounds have basis vectors that are not there")
        ends, V = np.cumsum(sizes)[:-1], _take(arrays, "stages.V", (total, m))
        linear = [None] * n if last.linear is None else _take(arrays, "stages.linear", (n, d, m))
        intercept = _take(arrays, "stages.intercept", (n, m))
        models = map(Model, np.split(H, ends), np.split(V, ends), intercept, linear)
        numbers = _take(arrays, "stages.numbers", (n, len(HISTORY) + 1), finite=False)
        return cls(tuple(pool), tuple(models), tuple(map(tuple, numbers.tolist())), d)


@dataclass
class FitRecord:
    """What a fit remembers: the seed of rows held out, its last state, and all rounds.

    With early stopping, also the state of the best score, and all scores.
    """

    seed: int = 0
    state: State | None = None
    best: State | None = None
    scores: list[float] = field(default_factory=list)
    stages: Stages = field(default_factory=Stages)

    def after(self, state: State, model: Model, score: float | None) -> Self:
        """A new record, so that Ctrl-C leaves no half of a round: with its state, model, score."""
        scores = self.scores if score is None else [*self.scores, score]
        better = score is not None and score > max(self.scores, default=-math.inf)
        best = state if better else self.best
        return type(self)(self.seed, state, best, scores, self.stages.after(state, model))

    def ended(self, n_components: int, patience: int) -> bool:
        """Whether the run is over: by its own rule, or because scores no longer rise."""
        state = self.state
        if state is None:
            return False
        # A run that stopped because it was full goes on if there is more room now.
        full = state.stop == "n_components" and state.n_components < n_components
        stale = bool(self.scores) and len(self.scores) - 1 - self.last >= patience
        return (state.stop is not None and not full) or stale

    @property
    def last(self) -> int:
        """The round whose model is kept."""
        return int(np.argmax(self.scores)) if self.scores else len(self.stages) - 1

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """Scalars for JSON, and arrays."""
        arrays = self.stages.arrays() if self.stages else {}
        scalars: dict[str, Any] = {"seed": self.seed, "scores": self.scores}
        scalars["rounds"] = len(self.stages)
        for name, state in (("state", self.state), ("best", self.best)):
            if state is not None:
                memory = state.memory._asdict()
                own = state.model._asdict() | {"vectors": memory.pop("vectors")}
                arrays |= {
                    f"{name}.{key}": array for key, array in own.items() if array is not None
                }
                numbers = {key: getattr(state, key) for key in NUMBERS}
                scalars[name] = {k: None if x is None else float(x) for k, x in numbers.items()}
                timings = [state.timings.get(key, 0.0) for key in TIMED]
                rest = {"n_iter": state.n_iter, "stop": state.stop, "timings": timings}
                scalars[name] |= {**memory, **rest}
        return scalars, arrays

    @classmethod
    def of(cls, scalars: dict[str, Any], arrays: Arrays) -> Self:
        """The record of these parts; an error if they are not consistent."""
        seed, scores, rounds = _scalars(scalars, seed=int, scores=list, rounds=int)
        _check_finite(scores)
        record, last = cls(seed=seed, scores=scores), None
        for name in ("state", "best"):
            if name in scalars:
                state = _state(scalars[name], arrays, name)
                last = last or state.model
                check_start(state, last.H.shape[1], last.V.shape[1], last.linear is not None)
                setattr(record, name, state)
        if rounds and last is not None:
            record.stages = Stages.of(arrays, rounds, last)
        if bool(scores) != (record.best is not None) or (scores and len(scores) != rounds):
            raise ValueError("its scores do not fit its rounds")
        if arrays:
            raise ValueError(f"it holds arrays that do not belong to it: {sorted(arrays)[:10]}")
        return record


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
    write_record(path, problem, *FitRecord(state=state).parts())


def load_state(path: str | os.PathLike[str], problem: str = "") -> State:
    """Read a state that `save_state` wrote for the same `problem`.

    ValueError if the file is damaged, of another version or problem, or not a consistent state;
    OSError if it cannot be opened.
    """
    state = read_record(path, problem, FitRecord.of).state
    if state is None:
        raise ValueError(f"{os.fspath(path)} holds no state; {CURE}")
    return state


def write_record(
    path: str | os.PathLike[str], fit: str, scalars: dict[str, Any], arrays: Arrays
) -> None:
    """Write scalars as JSON, and arrays, all or nothing; `fit` is the fingerprint."""
    text = json.dumps({"version": CHECKPOINT_VERSION, "fit": fit, **scalars}, allow_nan=True)
    write_arrays(path, {"record": np.frombuffer(text.encode(), dtype=np.uint8), **arrays})


def read_record(
    path: str | os.PathLike[str], fit: str, parse: Callable[[dict[str, Any], Arrays], Any]
) -> Any:
    """What `parse` makes of the scalars and arrays of that fit; errors as of `load_state`."""
    arrays, file = read_arrays(path), os.fspath(path)
    try:
        if "record" not in arrays:
            raise ValueError("it is not one, or has format version 1, which is no longer read")
        scalars = json.loads(bytes(arrays.pop("record")))
        (version,) = _scalars(scalars, version=int)
        if version != CHECKPOINT_VERSION:
            raise ValueError(
                f"it has format version {version}, this fastpoly reads {CHECKPOINT_VERSION}"
            )
        (own,) = _scalars(scalars, fit=str)
        # Whatever is wrong with the checkpoint of another fit does not matter.
        record = parse(scalars, arrays) if own == fit else None
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{file} is not a usable checkpoint: {error}; {CURE}") from error
    if record is None:
        raise ValueError(
            f"{file} is the checkpoint of another fit, with other data or parameters; {CURE}"
        )
    return record


def _state(scalars: Any, arrays: Arrays, name: str) -> State:
    """The state of that name; `check_start` checks the rest."""
    kinds = {"n_iter": int, "timings": list, "seed": int, "recent": list, "spent": int}
    n_iter, timings, seed, recent, spent = _scalars(scalars, **kinds)
    numbers, stop = {key: scalars.get(key) for key in NUMBERS}, scalars.get("stop")
    if not all(isinstance(numbers[key], float) for key in CERTIFICATE):
        raise ValueError("it has no certificate")
    rest = [numbers[key] for key in NUMBERS if key not in CERTIFICATE]
    _check_finite([x for x in rest if x is not None], timings, recent)
    if stop not in STOPS or min(n_iter, seed, spent) < 0 or len(timings) != len(TIMED):
        raise ValueError(f"it has n_iter={n_iter}, stop={stop!r} and seed={str(seed)[:20]}")
    parts: dict[str, Any] = dict.fromkeys(("linear", "vectors"))
    for key, n in DIMENSIONS.items():
        if key not in parts or f"{name}.{key}" in arrays:
            parts[key] = _take(arrays, f"{name}.{key}", (None,) * n)
    memory = RunMemory(seed, tuple(recent), parts.pop("vectors"), spent)
    seconds = dict(zip(TIMED, timings, strict=True))
    return State(**parts, **numbers, n_iter=n_iter, stop=stop, timings=seconds, memory=memory)


def _scalars(scalars: Any, **kinds: type) -> list[Any]:
    """Scalars by name; ValueError unless they are there and of these kinds."""
    for name, kind in kinds.items():
        value = scalars.get(name) if isinstance(scalars, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"its {name} is {str(value)[:50]!r}")
    return [scalars[name] for name in kinds]


def _check_finite(*lists: list[Any]) -> None:
    if not all(isinstance(x, float) and math.isfinite(x) for values in lists for x in values):
        raise ValueError("its scores, timings or objectives are not finite numbers")


def _take(
    arrays: Arrays, name: str, shape: tuple[int | None, ...], finite: bool = True
) -> NDArray[Any]:
    """Take a copy of an array out; an error unless it has that shape."""
    return np.array(as_float_array(arrays.pop(name, None), name, shape, finite=finite))


# --- identity of a fit ---


def fingerprint(*parts: Any) -> str:
    """A digest of arrays, CSR matrices and texts; other bytes, dtypes or shapes give another one.

    Arrays of objects count as the list of their representations.
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
