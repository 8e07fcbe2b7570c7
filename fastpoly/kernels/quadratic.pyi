import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import Penalty

Floats = NDArray[np.float64]

class RowDescent:
    curvature: Floats
    def __init__(self, penalty: Penalty, B: Floats) -> None: ...
    def sweep(self, P: Floats, G: Floats, thresholds: Floats) -> float: ...
