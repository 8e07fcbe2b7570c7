import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import Penalty

Floats = NDArray[np.float64]

def descend(
    penalty: Penalty,
    B: Floats,
    P: Floats,
    G: Floats,
    thresholds: Floats,
    curvature: Floats,
    n_sweeps: int = 1,
) -> float: ...
def row_curvature(B: Floats) -> Floats: ...
