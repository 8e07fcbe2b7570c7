"""What the data must not decide: how multiplicity is written, and what is never seen."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.matrix import as_csr
from fastpoly.state import State

Floats = NDArray[np.float64]

SMALL = BLOCK_DOUBLES // 8  # entries of X, 1 MB: copies cost nothing, threads gain nothing


def safe_rows(X: Any) -> Any:
    """X or y as it is; where sparse, in CSR form, checked before anyone follows its indices."""
    return as_csr(X) if issparse(X) else X


def merge_rows(X: Any, targets: NDArray, w: Floats | None) -> tuple[Any, NDArray, Floats | None]:
    """Merge equal rows, drop those of weight 0, and sort what is left.

    A weight of 2 and a row that occurs twice are the same loss, but sums in another order differ
    by rounding, and Algorithm 1 amplifies that: near the optimum many basis vectors are almost
    equally good. In this form both are the same numbers, so both give the same model to the bit.
    Only for small data, where the copy costs nothing; and only if some weights differ or some
    rows are equal, otherwise everything is returned as it is.

    Parameters
    ----------
    X : ndarray or CSR, (n, d)
    targets : ndarray, (n,) or (n, m)
    w : ndarray, (n,), or None

    Returns
    -------
    X, targets, w
    """
    n, d = X.shape
    if not 1 < n * d <= SMALL or (w is not None and not (w > 0).any()):
        return X, targets, w
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    keys = np.column_stack([dense, targets]).astype(np.float64) + 0.0  # no negative zeros
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(first) == n and (w is None or (w == w[0]).all()):
        return X, targets, w
    totals = np.bincount(group.ravel(), weights=w, minlength=len(first)).astype(np.float64)
    kept = totals > 0
    first, totals = first[kept], totals[kept]
    return X[first], targets[first], None if (totals == 1).all() else totals


def column_names(y: Any) -> list[str] | None:
    """The columns of a frame of targets, where they can name outputs: distinct strings."""
    names = list(getattr(y, "columns", ()))
    usable = all(isinstance(name, str) and "\0" not in name for name in names)
    return names if names and usable and len(set(names)) == len(names) else None


def unseen_features(X: Any) -> NDArray[np.bool_]:
    """Which features, (d,), are 0 in all rows."""
    if hasattr(X, "indices"):
        return np.bincount(X.indices, weights=X.data != 0, minlength=X.shape[1]) == 0
    return ~X.any(axis=0)


def forget_unseen(state: State, unseen: NDArray[np.bool_]) -> State:
    """The state with basis vectors that are 0 where `unseen` says so: features without data.

    These entries have no effect in training, but the eigen-solver starts from random vectors and
    leaves a little of them there; a category that first appears in `predict` must add nothing.
    """
    if not unseen.any():
        return state
    H = state.H.copy()
    H[:, H.shape[1] - len(unseen) :][:, unseen] = 0  # the constant feature comes first
    return replace(state, H=H)
