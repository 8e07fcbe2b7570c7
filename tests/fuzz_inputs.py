"""Strategies for inputs: most are valid, the others have one error or more."""

import warnings
from collections import Counter

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

COUNTS = Counter()  # inputs, results, refusals, faults

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-12, 1e-160, 1e150, 1e308, -1e300, 5e-324)
BAD = (np.nan, np.inf, -np.inf)
numbers = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-10, 10, width=32), st.sampled_from(SPECIAL)
)
DTYPES = (
    "f8",
    "f8",
    "f8",
    "f4",
    "f2",
    "i8",
    "i1",
    "u2",
    "?",
    ">f8",
    "g",
    "c16",
    "O",
    "U3",
    "M8[s]",
)


def rarely(draw, chance=12):
    """True once in `chance` times; shrinks to False."""
    return draw(st.integers(0, chance - 1)) == chance - 1


def matrix(draw, n=None, d=None, bad=True):
    """A dense 2-D array, sometimes with an unusual dtype or order, or with NaN."""
    n = draw(st.integers(0 if bad and rarely(draw) else 1, 8)) if n is None else n
    d = draw(st.integers(0 if bad and rarely(draw) else 1, 5)) if d is None else d
    if rarely(draw, 3):
        X = np.array(draw(st.lists(numbers, min_size=n * d, max_size=n * d))).reshape(n, d)
    else:
        X = np.random.default_rng(draw(st.integers(0, 2**32))).standard_normal((n, d))
        X = np.round(X, draw(st.integers(0, 3))) * draw(st.sampled_from((1.0, 1.0, 1e-9, 1e9)))
    if bad and rarely(draw) and X.size:
        X[draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))] = draw(st.sampled_from(BAD))
    if rarely(draw, 4):
        dtype = draw(st.sampled_from(DTYPES if bad else DTYPES[:5]))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            X = X.astype("i8").astype(dtype) if dtype[0] == "M" else X.astype(dtype)
    layout = draw(st.integers(0, 7))
    if layout == 5:
        X = np.asfortranarray(X)
    elif layout == 6:
        X = np.repeat(X, 2, axis=0)[::2]
    elif layout == 7:
        X.setflags(write=False)
    return X


FORMATS = ("csr", "csr", "csr", "csc", "coo", "bsr", "dia", "lil", "dok")
INTEGERS = (-1, 0, 1, 2, 5, 1000, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))


def sparse(draw, X):
    """X as scipy sparse, sometimes with arrays that were replaced after it was made."""
    X = np.asarray(X)
    if X.dtype.kind not in "biuf" or X.dtype.itemsize < 4 or X.dtype.str[1:] in ("f16",):
        X = np.zeros(X.shape)
    make = draw(st.sampled_from(FORMATS))
    kind = draw(st.sampled_from((sp.csr_array, sp.csr_matrix)))
    S = kind(X.astype(X.dtype.newbyteorder("=")))
    if make != "csr":
        return S.asformat(make)
    if rarely(draw, 3):
        S.indices, S.indptr = S.indices.astype("i8"), S.indptr.astype("i8")
    if draw(st.booleans()):
        return S
    COUNTS["faults"] += 1
    name = draw(st.sampled_from(("indices", "indptr", "data")))
    a = np.array(getattr(S, name))
    how = draw(st.integers(0, 5))
    if how == 0 and a.size:
        a[draw(st.integers(0, a.size - 1))] = _fitting(draw(st.sampled_from(INTEGERS)), a.dtype)
    elif how == 1:
        a = a[: draw(st.integers(0, a.size))]
    elif how == 2:
        a = a[::-1]
    elif how == 3:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = a.astype(draw(st.sampled_from(("f8", "i2", "u1", "c16", "O", "U1", "i8"))))
    elif how == 4:
        a = a.reshape(1, -1)
    else:
        a = np.full(a.shape, _fitting(draw(st.sampled_from(INTEGERS)), a.dtype), a.dtype)
    setattr(S, name, a)
    return S


def _fitting(value, dtype):
    if dtype.kind not in "iu":
        return float(value)
    limits = np.iinfo(dtype)
    return min(max(value, limits.min), limits.max)


def some_X(draw, n=None, d=None):
    X = matrix(draw, n, d)
    if rarely(draw, 3):
        return sparse(draw, X)
    return X.tolist() if rarely(draw) else X


def some_y(draw, n, kind):
    """Targets for n rows, sometimes too few, of the wrong kind, or not finite."""
    if rarely(draw):
        n = draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "real":
        m = draw(st.integers(0, 3))
        y = np.round(rng.standard_normal((n, m) if m else n), 2)
    elif rarely(draw, 4):
        y = rng.integers(0, 2, (n, draw(st.integers(1, 3))))
    else:
        y = rng.integers(0, draw(st.integers(1, 4)), n)
    if rarely(draw, 6):
        y = y.astype(draw(st.sampled_from(DTYPES[:8])))
    if rarely(draw, 6):
        y = np.array(["a", "bc", ""])[np.abs(np.asarray(y, float)).astype(int) % 3]
    if rarely(draw) and y.size and y.dtype.kind == "f":
        y.flat[draw(st.integers(0, y.size - 1))] = draw(st.sampled_from((*BAD, *SPECIAL)))
    return y


def some_weights(draw, n):
    if not rarely(draw, 3):
        return None
    w = draw(st.lists(st.sampled_from((0.0, 1.0, 1.0, 2.0, 1e-12, 1e12)), min_size=n, max_size=n))
    if rarely(draw, 4):
        w = w[:-1] if rarely(draw, 2) else [*w[1:], draw(st.sampled_from((-1.0, *BAD, 1e308)))]
    return w


junk = st.sampled_from(
    (None, -1, 0, 1, 2, 2.5, np.nan, np.inf, "x", "", b"l1", True, (), [], {}, 1j)
)
PARAMETERS = {
    "alpha": st.sampled_from((1.0, 0.1, 10, 0.0, 1e-12, 1e12)),
    "tau": st.sampled_from((None, 1.0, 5, 1e-9, 1e9)),
    "penalty": st.sampled_from(("l1/l2", "l1", "l1/linf")),
    "loss": st.sampled_from(("logistic", "squared", "squared_hinge", "smoothed_hinge")),
    "n_components": st.integers(1, 3),
    "refit": st.sampled_from(("auto", "full", "output", None)),
    "block": st.sampled_from(("auto", 1, 2, 5)),
    "fit_lower": st.sampled_from(("augment", "explicit", None)),
    "alpha_linear": st.sampled_from((1.0, 0.0, 1e6)),
    "solver": st.sampled_from(("auto", "fista", "newton")),
    "max_iter": st.integers(1, 20),
    "tol": st.sampled_from((0.1, 1e-3, 1e-12)),
    "selection": st.sampled_from(
        ("refine", "l1", "random+refine", "random", "best_data", "exact")
    ),
    "early_stopping": st.booleans(),
    "validation_fraction": st.sampled_from((0.25, 0.5, 0.9)),
    "n_iter_no_change": st.integers(1, 3),
    "class_weight": st.sampled_from(("balanced", None, {0: 2, 1: 1})),
    "n_threads": st.sampled_from((None, 1, 2)),
    "random_state": st.sampled_from((0, 1, None, 2**31)),
    "verbose": st.just(0),
}  # fmt: skip


def some_parameters(draw, known):
    """Values for a few of the parameters in `known`, rarely nonsense."""
    chosen = draw(st.lists(st.sampled_from(sorted(known & PARAMETERS.keys())), max_size=4))
    values = {name: draw(PARAMETERS[name]) for name in chosen}
    if chosen and rarely(draw, 8):
        values[chosen[0]] = draw(junk)
    return values
