from typing import Any

from fastpoly.kernels.matrix import Matrix

class JointRows:
    X: Matrix
    order: Any
    anova: bool
    linear: bool
    m: int

class DenseJointRows(JointRows): ...
class CsrJointRows(JointRows): ...
class PairJointRows(CsrJointRows): ...
