import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.penalties import Penalty

Floats = NDArray[np.float64]

class RowDescent:
    curvature: Floats
    def __init__(self, penalty: Penalty, B: ArrayLike, thresholds: ArrayLike) -> None: ...
    def sweep(self, P: Floats, G: Floats) -> None: ...
