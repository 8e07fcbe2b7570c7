from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

class PenaltyLike(Protocol):
    """What a solver calls; any object with these methods is a penalty."""

    def value(self, V: ArrayLike, weights: ArrayLike | None = None) -> float: ...
    def dual_norm(self, G: ArrayLike, weights: ArrayLike | None = None) -> float: ...
    def prox(
        self, V: ArrayLike, t: float, weights: ArrayLike | None = None, out: Floats | None = None
    ) -> Floats: ...
    def project(
        self,
        V: ArrayLike,
        tau: float,
        weights: ArrayLike | None = None,
        metric: ArrayLike | None = None,
        out: Floats | None = None,
    ) -> Floats: ...
    def criterion(self, q: ArrayLike) -> tuple[float, Floats]: ...

class Penalty(PenaltyLike):
    name: ClassVar[str]
    def row_norms(self, V: ArrayLike) -> Floats: ...
    def polar(self, q: ArrayLike) -> Floats: ...
    def smooth_model(self, V: ArrayLike, level: float) -> tuple[Floats, Floats, Floats] | None: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

class L1(Penalty):
    def center(self, V: ArrayLike) -> Floats: ...

class L1L2(Penalty):
    def center(self, V: ArrayLike) -> Floats: ...

class L1Linf(Penalty):
    def center(self, V: ArrayLike) -> Floats: ...

PENALTIES: dict[str, type[Penalty]]

_P = TypeVar("_P", bound=PenaltyLike)

@overload
def get_penalty(penalty: str) -> Penalty: ...
@overload
def get_penalty(penalty: _P) -> _P: ...

class FistaStep(NamedTuple):
    linear: float
    quadratic: float
    restart: float

def fista_update(
    penalty: PenaltyLike,
    Y: ArrayLike,
    G: ArrayLike,
    steps: ArrayLike,
    V_old: ArrayLike,
    V_new: Floats,
    *,
    thresholds: ArrayLike | None = None,
    tau: float | None = None,
    weights: ArrayLike | None = None,
) -> FistaStep: ...
