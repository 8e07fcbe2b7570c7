"""What the outputs O (n, m) of a model mean: numbers, rates, classes, labels or ordered levels.

A task says which. The outputs of rates are their logarithms. Those of classes are scores, whose
softmax is a probability if they are log odds. A single output stands for two classes: the log odds
of the second one. The outputs of labels are log odds, one by one. Those of ordered levels are the
log odds that y is at most the level, for all levels but the last (McRank).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from fastpoly.state import Floats

TASKS = ("regression", "rates", "classification", "multilabel", "ordinal")
NUMERIC_TASKS = ("regression", "rates", "classification")  # tasks whose single output is a number
NUMBER_KINDS = "iufb"  # kinds of dtype whose levels are numbers


def decision_values(O: Floats, task: str) -> Floats:
    """The outputs as scikit-learn's decision functions: (n,) for two classes or one number."""
    if task == "classification" and O.shape[1] == 2:
        return O[:, 1] - O[:, 0]
    return O[:, 0] if O.shape[1] == 1 and task in NUMERIC_TASKS else O


def predictions(
    O: Floats, task: str, classes: NDArray[Any] | None, values: Floats | None
) -> NDArray[Any]:
    """The class, the labels, the expected level or the numbers; `values` are those of levels."""
    if task == "classification":
        positions = _class_scores(O).argmax(axis=1)
        return positions if classes is None else classes[positions]
    if task == "multilabel":
        return (O > 0).astype(int)
    if task == "ordinal":
        if values is None:
            values = level_values(classes, O.shape[1] + 1)
        return level_probabilities(O) @ values
    O = decision_values(O, task)
    if task != "rates":
        return O
    if O.max(initial=0.0) > np.log(np.finfo(np.float64).max):
        raise ValueError("the rates overflow: X is too far from the training rows")
    return np.exp(O)


def probabilities(O: Floats, task: str, log: bool = False) -> Floats:
    """p(y = class), p(label) or p(y = level), one column each; or logarithms, without underflow."""
    if task == "multilabel":
        return log_expit(O) if log else expit(O)
    if task == "ordinal":
        p = level_probabilities(O)
        with np.errstate(divide="ignore"):  # -inf where a level has probability 0
            return np.log(p) if log else p
    scores = _class_scores(O)
    return log_softmax(scores, axis=1) if log else softmax(scores, axis=1)


def _class_scores(O: Floats) -> Floats:
    """One column per class; a single output is the log odds of the second of two classes."""
    return np.column_stack([np.zeros(len(O)), O]) if O.shape[1] == 1 else O


def level_probabilities(O: Floats) -> Floats:
    """p(y = level), (n, m + 1), from the m outputs whose sigmoids are p(y <= level).

    Where these cross they are sorted, which brings them closer to any monotone sequence. So the
    differences are not negative, and they add up to 1.
    """
    cumulative = np.sort(expit(O), axis=1)
    return np.diff(cumulative, axis=1, prepend=0.0, append=1.0)


def level_values(levels: NDArray[Any] | None, count: int) -> Floats:
    """The levels as numbers: themselves, or their ranks 1 .. count where they are not numbers.

    False and True are the numbers 0 and 1.
    """
    if levels is not None and levels.dtype.kind in NUMBER_KINDS:
        return levels.astype(np.float64)
    return np.arange(1.0, count + 1)
