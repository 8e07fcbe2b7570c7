"""States in files, so that a long run continues where it was interrupted, bit for bit.

A file is a .npz archive of plain arrays (see `fastpoly.storage.npz`); nothing is unpickled. It
replaces the one before in one step, so a run that is killed at any moment leaves a complete file.
It holds the fingerprint of its problem, and is refused for any other problem.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.state import STOPS, TIMED, State
from fastpoly.storage.npz import read_arrays, write_arrays

CHECKPOINT_VERSION = 1
CURE = "delete the file to start from scratch, or give another path"

# The fields of a State by kind; n_iter, stop, seed, timings and recent are handled one by one.
_NUMBERS = tuple(f.name for f in fields(State) if f.type is float and f.default is MISSING)
_CERTIFICATE = tuple(f.name for f in fields(State) if f.type is float and f.default is not MISSING)
_STRENGTH = tuple(f.name for f in fields(State) if f.type == float | None)
_MODEL = ("H", "V", "intercept", "linear", "vectors")
_OPTIONAL = ("linear", "vectors", *_STRENGTH)


def save_state(path: str | os.PathLike[str], state: State, problem: str = "") -> None:
    """Write a state to a file, all or nothing.

    Parameters
    ----------
    path : str or path-like
    state : State
        A state of `conditional_gradient`.
    problem : str
        Identifies the problem of the state, for example by its `fingerprint`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastpoly import Design, conditional_gradient
    >>> from fastpoly.storage.state_file import fingerprint, load_state, save_state
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
    write_checkpoint(path, problem, state_arrays(state))


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
    arrays = read_checkpoint(path, problem)
    with refusing(path):
        state = take_state(arrays)
        nothing_left(arrays)
        return state


def fingerprint(*parts: Any) -> str:
    """A digest of data and parameters; other bytes, dtypes or shapes give another digest.

    Parameters
    ----------
    *parts : ndarray, scipy sparse matrix in CSR or CSC form, str or None
        Arrays of objects count as the list of their representations.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.storage.state_file import fingerprint
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
    if part is None or isinstance(part, str):
        yield type(part).__name__, (part or "").encode()
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


def write_checkpoint(
    path: str | os.PathLike[str], problem: str, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays as a checkpoint of a problem."""
    head = {"checkpoint_version": np.array(CHECKPOINT_VERSION), "problem": np.array(problem)}
    write_arrays(path, {**head, **arrays})


def read_checkpoint(path: str | os.PathLike[str], problem: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of a checkpoint; ValueError unless it is one of that problem."""
    arrays = read_arrays(path)
    with refusing(path):
        version = scalar(arrays, "checkpoint_version", "i")
        if version != CHECKPOINT_VERSION:
            raise ValueError(
                f"it has format version {version}, this fastpoly reads {CHECKPOINT_VERSION}"
            )
        theirs = scalar(arrays, "problem", "U")
    if theirs != problem:
        raise ValueError(
            f"{os.fspath(path)} is the checkpoint of another fit, with other data or parameters; "
            f"{CURE}"
        )
    return arrays


class refusing:
    """A context that adds the name of the file to errors."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ValueError):
            path = os.fspath(self.path)
            raise ValueError(f"{path} is not a usable checkpoint: {error}; {CURE}") from error


def state_arrays(state: State, prefix: str = "state.") -> dict[str, NDArray[Any]]:
    """The arrays that stand for a state in a file."""
    values = {
        name: getattr(state, name) for name in (*_MODEL, *_CERTIFICATE, *_NUMBERS, *_STRENGTH)
    }
    values["n_iter"] = np.array(state.n_iter, dtype=np.int64)
    values["stop"] = state.stop or ""
    values["seed"] = str(state.seed)  # an integer of any size
    values["recent"] = np.array(state.recent, dtype=np.float64)
    values["timings"] = np.array([state.timings.get(name, 0.0) for name in TIMED])
    return {prefix + k: np.asarray(value) for k, value in values.items() if value is not None}


def take_state(arrays: dict[str, NDArray[Any]], prefix: str = "state.") -> State:
    """The state of these arrays, which are taken out; ValueError unless they are consistent."""
    values: dict[str, Any] = {}
    H = values["H"] = array(arrays, prefix + "H", "f", (None, None))
    k, d = H.shape
    V = values["V"] = array(arrays, prefix + "V", "f", (k, None))
    m = V.shape[1]
    shapes = {"intercept": (m,), "linear": (d, m), "vectors": (m, d)}
    for name, shape in shapes.items():
        if name not in _OPTIONAL or prefix + name in arrays:
            values[name] = array(arrays, prefix + name, "f", shape)
        else:
            values[name] = None
    for name in (*_NUMBERS, *_CERTIFICATE, *_STRENGTH):
        if name not in _OPTIONAL or prefix + name in arrays:
            values[name] = float(array(arrays, prefix + name, "f", (), name in _CERTIFICATE))
    values["n_iter"] = scalar(arrays, prefix + "n_iter", "i")
    seed = scalar(arrays, prefix + "seed", "U")
    values["stop"] = scalar(arrays, prefix + "stop", "U") or None
    values["recent"] = tuple(array(arrays, prefix + "recent", "f", (None,)).tolist())
    timings = array(arrays, prefix + "timings", "f", (len(TIMED),)).tolist()
    values["timings"] = dict(zip(TIMED, timings, strict=True))
    if values["stop"] not in STOPS or values["n_iter"] < 0:
        raise ValueError(f"it has n_iter={values['n_iter']} and stop={values['stop']!r}")
    if not (seed.isascii() and seed.isdigit() and len(seed) < 100):
        raise ValueError(f"its seed is {seed[:100]!r}")
    return State(**values, seed=int(seed))


def array(
    arrays: dict[str, NDArray[Any]],
    name: str,
    kind: str,
    shape: tuple[int | None, ...],
    any_number: bool = False,
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
    if kind == "f" and not any_number and not np.isfinite(a).all():
        raise ValueError(f"{name} holds NaN or infinity")
    # Our own copy, aligned and of the width that is written.
    return np.array(a, {"f": np.float64, "i": np.int64}.get(kind), order="C")


def scalar(arrays: dict[str, NDArray[Any]], name: str, kind: str) -> Any:
    """Take a scalar out; ValueError unless it is of that kind."""
    return array(arrays, name, kind, ()).item()


def nothing_left(arrays: dict[str, NDArray[Any]]) -> None:
    """ValueError if unknown arrays are left."""
    if arrays:
        raise ValueError(f"it holds unknown arrays: {sorted(arrays)[:5]}")
