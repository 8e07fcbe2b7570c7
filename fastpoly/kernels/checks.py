"""The one place where array arguments are validated; kernels trust arrays that passed here."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Doubles of one temporary array (8 MB); anything larger is done in blocks.
BLOCK_DOUBLES = 2**20
# Sizes of the entries of X and of targets lie between 1 / LARGEST and LARGEST, so that sums of
# their fourth powers neither overflow nor vanish.
LARGEST = 1e60

HOW_TO_ENCODE = {
    "label": "number the classes, e.g. with np.unique(y, return_inverse=True)",
    "sign": "map absent and present to -1 and +1, e.g. with np.where(y, 1, -1)",
    "real": "convert it to float",
}


def as_array(a: ArrayLike, name: str) -> NDArray:
    """Return `a` as an array of any dtype; ValueError if it is not a full rectangle."""
    if isinstance(a, np.ma.MaskedArray) and np.ma.is_masked(a):
        raise ValueError(f"{name} has masked entries; fill or remove them")
    try:
        return np.asarray(a)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array; numpy says: {error}") from None


def as_float_array(
    a: ArrayLike, name: str, shape: Sequence[int | None], *, finite: bool = True
) -> Floats:
    """Return `a` as an aligned C-contiguous float64 array of the given shape (None: any length)."""
    if hasattr(a, "tocsr"):
        raise TypeError(f"{name} must be a dense array, got a sparse one; call .toarray()")
    a = as_array(a, name)
    if a.dtype.kind not in "buif":
        raise TypeError(f"{name} must hold real numbers, got dtype {a.dtype}; convert it to float")
    if a.ndim != len(shape):
        raise ValueError(f"{name} must have {len(shape)} dimension(s), got shape {a.shape}")
    if any(want is not None and have != want for have, want in zip(a.shape, shape, strict=True)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {a.shape}")
    if a.dtype != np.float64 or not (a.flags.c_contiguous and a.flags.aligned):
        with np.errstate(over="ignore"):
            a = np.require(a, np.float64, ("C_CONTIGUOUS", "ALIGNED"))
    if finite and not np.isfinite(a).all():
        raise ValueError(f"{name} contains NaN or infinity; remove or impute these entries")
    return a


def aligned(value: Any) -> Any:
    """An array of a message, or a tuple of such, at an address that fits its dtype.

    NumPy multiplies other arrays without BLAS, which gives other bits.
    """
    if isinstance(value, np.ndarray):
        return np.require(value, requirements="A")
    if isinstance(value, tuple):
        parts = map(aligned, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def as_output(out: NDArray | None, name: str, shape: tuple[int, ...]) -> Floats:
    """Return `out`, checked to be a writeable C-contiguous float64 array, or a new one."""
    if out is None:
        return np.empty(shape)
    if not isinstance(out, np.ndarray) or out.dtype != np.float64 or out.shape != shape:
        raise ValueError(f"{name} must be a float64 array of shape {shape}")
    if not out.flags.carray:
        raise ValueError(f"{name} must be C-contiguous, aligned and writeable")
    return out


def as_weights(w: ArrayLike | None, name: str, n: int, *, some: bool = False) -> Floats | None:
    """Return non-negative finite weights (n,), with `some` not all zero, or None for all ones."""
    if w is None:
        return None
    w = as_float_array(w, name, (n,))
    if n and w.min() < 0:
        raise ValueError(f"{name} must be non-negative, got a minimum of {w.min()}")
    if some and not w.any():
        raise ValueError(f"{name} must not be all zero")
    return w


def shown(x: object) -> str:
    """x as a message shows it: the representation, NumPy scalars without their type."""
    with np.printoptions(legacy="1.21"):
        return repr(x)


def as_count(x: int, name: str, *, or_zero: bool = False) -> int:
    """Return an int >= 1 (>= 0 with `or_zero`)."""
    if isinstance(x, (bool, np.bool_)) or not hasattr(x, "__index__"):
        raise TypeError(f"{name} must be an integer, got {shown(x)}")
    x = x.__index__()
    if x < (0 if or_zero else 1):
        raise ValueError(f"{name} must be at least {0 if or_zero else 1}, got {x}")
    if x >= 2**63:
        raise ValueError(f"{name} must be below 2**63")
    return x


def as_positive(x: float, name: str, *, or_zero: bool = False) -> float:
    """Return a finite real scalar > 0 (>= 0 with `or_zero`)."""
    if isinstance(x, (bool, np.bool_)) or not isinstance(x, (Real, np.number)):
        raise TypeError(f"{name} must be a real number, got {shown(x)}")
    try:
        x = float(x)
    except OverflowError:  # an int or a fraction beyond the largest float
        x = math.inf
    if not math.isfinite(x) or x < 0 or (x == 0 and not or_zero):
        raise ValueError(f"{name} must be finite and {'>=' if or_zero else '>'} 0, got {x}")
    return x


def as_flag(x: bool, name: str) -> bool:
    """Return x as a Python bool; TypeError if it is not a bool."""
    if not isinstance(x, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(x)}")
    return bool(x)


def as_generator(random_state: object) -> np.random.Generator:
    """Return a Generator from None, an int, a Generator or a legacy RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None:
        return np.random.default_rng()
    if not isinstance(random_state, (int, np.integer)) or isinstance(random_state, bool):
        raise TypeError(f"random_state must be None, an int or a Generator, got {random_state!r}")
    if random_state < 0:
        raise ValueError(f"random_state must be >= 0, got {random_state}")
    return np.random.default_rng(random_state)


def as_seed(random_state: object) -> int:
    """Return an int seed: the random state itself if it is an int, else drawn from it."""
    generator = as_generator(random_state)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(generator.integers(2**63))


def as_n_outputs(n_outputs: int) -> int:
    """Return a number of outputs, an int from 1 to 2^31 - 1."""
    if as_count(n_outputs, "n_outputs") >= 2**31:
        raise ValueError(f"n_outputs must be below 2**31, got {n_outputs}")
    return n_outputs


def encode_targets(target: str, y: ArrayLike, n_outputs: int | None = None) -> Floats:
    """Check the targets y and return them as a float64 matrix; see `Loss.encode`."""
    if target not in HOW_TO_ENCODE:
        raise ValueError(f"target must be one of {list(HOW_TO_ENCODE)}, got {target!r}")
    m = None if n_outputs is None else as_n_outputs(n_outputs)
    if not hasattr(y, "tocsr"):
        y = as_array(y, "y")
        if y.dtype.kind not in "buif":
            raise TypeError(f"y must hold numbers, got dtype {y.dtype}; {HOW_TO_ENCODE[target]}")
        if y.ndim == 1:
            y = y.reshape(-1, 1)
    Y = as_float_array(y, "y", (None, 1 if target == "label" else m))
    if Y.shape[1] == 0:
        raise ValueError(f"y must have at least one column, got shape {Y.shape}")
    if target == "label":
        n_classes = m or 2**31 - 1
        wrong = (Y < 0) | (n_classes <= Y) | (np.floor(Y) != Y)
        wanted = f"a class code 0 .. {n_classes - 1}"
    elif target == "sign":
        wrong, wanted = np.abs(Y) != 1, "-1 or +1"
    else:
        return Y
    if wrong.any():
        raise ValueError(f"y holds {Y[wrong][0]:g}, which is not {wanted}; {HOW_TO_ENCODE[target]}")
    return Y
