import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.penalties import Penalty

Floats = NDArray[np.float64]

def sweep(
    penalty: Penalty,
    B: ArrayLike,
    curvature: ArrayLike,
    thresholds: ArrayLike,
    x: Floats,
    g: Floats,
) -> None: ...
