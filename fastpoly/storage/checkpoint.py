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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True)
class Stages:
    """The models after each round, and `HISTORY` and the seconds of each.

    The H of a model is a tuple of vectors (d,), the same objects in all rounds that have them: an
    output refit keeps the other vectors and their order, so k rounds need k vectors.
    """

    models: tuple[Model, ...] = ()
    numbers: tuple[tuple[float, ...], ...] = ()
    n_features: int = 0

    def after(self, state: State, model: Model) -> Self:
        """With the model of one more state, in the units that users see, and its numbers."""
        # Kept vectors are found among those of the round before, in one sweep; the others are new.
        known: Iterator[Floats] = iter(self.models[-1].H if self.models else ())
        vectors: list[Floats] = []
        for h in model.H:
            old = next((old for old in known if np.array_equal(old, h)), None)
            vectors.append(h.copy() if old is None else old)
        values = [getattr(state, name) for name in HISTORY]
        values = [math.nan if value is None else float(value) for value in values]  # alpha, if tau
        return type(self)(
            (*self.models, model._replace(H=tuple(vectors))),
            (*self.numbers, (*values, sum(state.timings.values()))),
            model.H.shape[1],
        )

    def history(self) -> dict[str, NDArray]:
        """The recorded numbers: one array per name, with one entry per round."""
        columns = dict(zip((*HISTORY, "seconds"), np.array(self.numbers).T.copy(), strict=True))
        columns["n_components"] = columns["n_components"].astype(np.int64)
        return columns

    def up_to(self, last: int) -> Self:
        """The first `last` + 1 rounds."""
        return type(self)(self.models[: last + 1], self.numbers[: last + 1], self.n_features)

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, i: int) -> Model:
        """The model of round i."""
        model = self.models[i]
        return model._replace(H=np.reshape(model.H, (len(model.H), self.n_features)))

    def arrays(self) -> Arrays:
        """The arrays of a file, where H has the places of vectors in the pool."""
        pool = {id(h): h for model in self.models for h in model.H}
        places = {key: place for place, key in enumerate(pool)}
        H, V, intercept, linear = zip(*self.models, strict=True)
        arrays = {
            "H": np.array([places[id(h)] for own in H for h in own], np.int64),
            "V": np.concatenate(V), "intercept": np.array(intercept),
            "pool": np.reshape(list(pool.values()), (-1, self.n_features)).astype(np.float64),
            "sizes": np.array([len(own) for own in H], np.int64), "numbers": np.array(self.numbers),
        }  # fmt: skip
        return arrays if linear[0] is None else {**arrays, "linear": np.array(linear)}

    @classmethod
    def of(cls, arrays: Arrays, n: int, last: Model) -> Self:
        """The stages of n rounds from the arrays of a file; ValueError if they are wrong."""
        vectors = _take(arrays, "pool", (None, None))
        pool, d, m = list(vectors), vectors.shape[1], last.V.shape[1]
        sizes = _take(arrays, "sizes", (n,)).astype(np.int64)
        total = int(sizes.sum())
        places = _take(arrays, "H", (total,)).astype(np.int64)
        if sizes.min() < 0 or not (places >= 0).all() or not (places < len(pool)).all():
            raise ValueError("its rounds have basis vectors that are not there")
        ends, V = np.cumsum(sizes)[:-1], _take(arrays, "V", (total, m))
        H = [tuple(pool[i] for i in own) for own in np.split(places, ends)]
        linear = [None] * n if last.linear is None else _take(arrays, "linear", (n, d, m))
        parts = H, np.split(V, ends), _take(arrays, "intercept", (n, m)), linear
        numbers = _take(arrays, "numbers", (n, len(HISTORY) + 1), finite=False)
        return cls(tuple(map(Model, *parts)), tuple(map(tuple, numbers.tolist())), d)


@dataclass
class FitRecord:
    """What a fit remembers: the seed of the rows held out, its last state, and all rounds.

    With early stopping, also the state of the best score, and the scores of all rounds.
    """

    seed: int = 0
    state: State | None = None
    best: State | None = None
    scores: list[float] = field(default_factory=list)
    stages: Stages = field(default_factory=Stages)

    def after(self, state: State, model: Model, score: float | None) -> Self:
        """The record with one more round: its state, its model in the users' units, its score.

        It is a new record, so that Ctrl-C leaves a round complete, or leaves nothing of it.
        """
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
        stale = bool(self.scores) and len(self.scores) - 1 - int(np.argmax(self.scores)) >= patience
        return (state.stop is not None and not full) or stale

    @property
    def last(self) -> int:
        """The round whose model is kept."""
        return int(np.argmax(self.scores)) if self.scores else len(self.stages) - 1

    def parts(self) -> tuple[dict[str, Any], Arrays]:
        """Scalars for JSON, and arrays."""
        scalars: dict[str, Any] = {
            "seed": self.seed, "scores": self.scores, "rounds": len(self.stages)
        }  # fmt: skip
        arrays: Arrays = {}
        for name, state in (("state", self.state), ("best", self.best)):
            if state is not None:
                numbers = {key: getattr(state, key) for key in NUMBERS}
                scalars[name] = {
                    **{key: None if x is None else float(x) for key, x in numbers.items()},
                    "n_iter": state.n_iter, "stop": state.stop, "seed": state.memory.seed,
                    "recent": list(state.memory.recent), "spent": state.memory.spent,
                    "timings": [state.timings.get(key, 0.0) for key in TIMED],
                }  # fmt: skip
                own = {**state.model._asdict(), "vectors": state.memory.vectors}
                arrays |= {f"{name}.{part}": a for part, a in own.items() if a is not None}
        if self.stages:
            arrays |= {f"stages.{name}": a for name, a in self.stages.arrays().items()}
        return scalars, arrays

    @classmethod
    def of(cls, scalars: dict[str, Any], arrays: Arrays) -> Self:
        """The record of these parts; an error if they are not consistent."""
        seed, scores, rounds = _scalars(scalars, seed=int, scores=list, rounds=int)
        _check_finite(scores)
        groups: dict[str, Arrays] = {"state": {}, "best": {}, "stages": {}}
        for name, array in arrays.items():
            group, _, part = name.partition(".")
            if group not in groups:
                raise ValueError(f"it holds an unknown array {name!r}")
            groups[group][part] = array
        record, last = cls(seed=seed, scores=scores), None
        for name in ("state", "best"):
            if name in scalars:
                state = _state(scalars[name], groups[name])
                last = last or state.model
                check_start(state, last.H.shape[1], last.V.shape[1], last.linear is not None)
                setattr(record, name, state)
        if rounds and last is not None:
            record.stages = Stages.of(groups["stages"], rounds, last)
        if bool(scores) != (record.best is not None) or (scores and len(scores) != rounds):
            raise ValueError("its scores do not fit its rounds")
        if any(groups.values()):
            raise ValueError(
                f"it holds arrays that do not belong together: {groups.values()}"[:200]
            )
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
    """What `parse` makes of the scalars and arrays of that fit.

    ValueError if the file is damaged, of another version or fit, or not consistent; OSError if it
    cannot be opened.
    """
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


def _state(scalars: Any, arrays: Arrays) -> State:
    """The state of these scalars and arrays; `check_start` checks the rest."""
    kinds = {"n_iter": int, "timings": list, "seed": int, "recent": list, "spent": int}
    n_iter, timings, seed, recent, spent = _scalars(scalars, **kinds)
    numbers, stop = {name: scalars.get(name) for name in NUMBERS}, scalars.get("stop")
    if not all(isinstance(numbers[name], float) for name in CERTIFICATE):
        raise ValueError("it has no certificate")
    rest = [numbers[name] for name in NUMBERS if name not in CERTIFICATE]
    _check_finite([x for x in rest if x is not None], timings, recent)
    if stop not in STOPS or min(n_iter, seed, spent) < 0 or len(timings) != len(TIMED):
        raise ValueError(f"it has n_iter={n_iter}, stop={stop!r} and seed={str(seed)[:20]}")
    two, optional = (None, None), {"linear": None, "vectors": None}
    shapes = {"H": two, "V": two, "intercept": (None,)}
    shapes |= {name: two for name in optional if name in arrays}
    parts = optional | {name: _take(arrays, name, shape) for name, shape in shapes.items()}
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
