"""Targets in the form of the losses: checked, float64, one row per sample."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import as_array, as_float_array

HOW_TO_ENCODE = {
    "label": "number the classes, e.g. with np.unique(y, return_inverse=True)",
    "sign": "map absent and present to -1 and +1, e.g. with np.where(y, 1, -1)",
    "real": "convert it to float",
}


def as_n_outputs(n_outputs: int) -> int:
    """Return a number of outputs, an int from 1 to 2^31 - 1."""
    if isinstance(n_outputs, bool) or not hasattr(n_outputs, "__index__"):
        raise TypeError(f"n_outputs must be a positive int, got {n_outputs!r}")
    if not 1 <= n_outputs < 2**31:
        raise ValueError(f"n_outputs must be between 1 and 2^31 - 1, got {n_outputs}")
    return n_outputs


def encode_targets(target: str, y: ArrayLike, n_outputs: int | None = None) -> NDArray[np.float64]:
    """Check the targets y and return them as a float64 matrix; see `Loss.encode`.

    Parameters
    ----------
    target : {"label", "sign", "real"}
    y : array-like
    n_outputs : int, optional

    Returns
    -------
    Y : ndarray

    Examples
    --------
    >>> from fastpoly.kernels.targets import encode_targets
    >>> encode_targets("sign", [1, -1]).tolist()
    [[1.0], [-1.0]]
    """
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
