from typing import Any

import numpy as np
from numpy.typing import NDArray

class Matrix:
    n: int
    d: int
    augment: bool
    single: bool
    sparse: bool

class DenseMatrix(Matrix):
    array: NDArray[Any]
    copied: bool
    @property
    def source(self) -> Any: ...
    def rows(self, index: Any) -> NDArray[np.float64]: ...
    def __init__(self, X: Any, augment: bool = False) -> None: ...

class CsrMatrix(Matrix):
    arrays: tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64]]
    pairs: bool
    ones: bool
    def __init__(self, X: Any, augment: bool = False) -> None: ...

class ScaledRows:
    array: NDArray[Any]
    center: NDArray[np.float64]
    factor: NDArray[np.float64]
    def __init__(self, array: NDArray[Any], center: Any, factor: Any) -> None: ...

class StoredRows:
    shape: tuple[int, int]
    indices: NDArray[np.int32]
    data: NDArray[Any] | None
    indptr: NDArray[np.int64] | None
    def __init__(
        self,
        shape: tuple[int, int],
        indices: NDArray[np.int32],
        data: NDArray[Any] | None = None,
        indptr: NDArray[np.int64] | None = None,
    ) -> None: ...

def shared_ones(n: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
def as_csr(X: Any) -> Any: ...
def as_matrix(X: Any, augment: bool = False) -> Matrix: ...
