from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.matrix import Matrix

ACTIVATIONS: tuple[str, ...]

class RowBlocks:
    n: int
    k: int
    n_threads: int
    block: int
    def activations(self, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]: ...
    def blocks(self) -> Iterator[tuple[NDArray[np.float64], slice]]: ...
    def outputs(self, V: ArrayLike) -> NDArray[np.float64]: ...
    def pullback(self, D: ArrayLike) -> NDArray[np.float64]: ...

class StoredFeatures(RowBlocks):
    def __init__(self, A: ArrayLike, n_threads: int | None = 1) -> None: ...
    @property
    def array(self) -> NDArray[np.float64]: ...

class Features(RowBlocks):
    X: Matrix
    anova: bool
    H: NDArray[np.float64]
    def __init__(
        self, X: Matrix, H: ArrayLike, anova: bool = False, n_threads: int | None = 1
    ) -> None: ...
    def basis_grad(self, M: ArrayLike) -> NDArray[np.float64]: ...
    def basis_grad_outputs(self, V: ArrayLike, D: ArrayLike) -> NDArray[np.float64]: ...

class CsrFeatures(Features): ...
class DenseFeatures(Features): ...

def make_features(
    X: Matrix, H: ArrayLike, activation: str = "squared", n_threads: int | None = 1
) -> Features: ...
