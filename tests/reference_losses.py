"""Slow twins of the losses, written row by row from their formulas.

`TWINS[name](y, o)` gives value (float), gradient (m,) and Hessian (m, m) of one row; y is a class
code for the multi-class losses and a vector (m,) for the others. Arithmetic is in extended
precision where the platform has it.
"""

import numpy as np
from scipy.special import xlogy


def _softmax(y, o):
    o = np.asarray(o, dtype=np.longdouble)
    e = np.exp(o - o.max())
    p = e / e.sum()
    value = np.log(e.sum()) + o.max() - o[y]
    return value, p - np.eye(len(o))[y], np.diag(p) - np.outer(p, p)


def multiclass_logistic(y, o):
    return _softmax(y, o)


def smoothed_multiclass_hinge(y, o):
    return _softmax(y, np.asarray(o, dtype=np.longdouble) - np.eye(len(o))[y])


def multiclass_squared_hinge(y, o):
    violation = np.array([max(1 + o[c] - o[y], 0) if c != y else 0 for c in range(len(o))])
    directions = np.eye(len(o)) - np.eye(len(o))[y]  # row c is e_c - e_y
    active = directions[violation > 0]
    return (violation**2).sum(), 2 * violation @ directions, 2 * active.T @ active


def binary_logistic(y, o):
    z = np.asarray(y, dtype=np.longdouble) * o
    p = np.exp(-np.logaddexp(0, z))  # 1 / (1 + exp(z))
    return np.logaddexp(0, -z).sum(), -y * p, np.diag(p * (1 - p))


def smoothed_binary_hinge(y, o):
    return binary_logistic(y, np.asarray(o, dtype=np.longdouble) - y)


def binary_squared_hinge(y, o):
    violation = np.maximum(1 - y * o, 0)
    return (violation**2).sum(), -2 * y * violation, np.diag(2.0 * (violation > 0))


def squared(y, o):
    return 0.5 * ((o - y) ** 2).sum(), o - y, np.eye(len(o))


def huber(y, o):
    distance = np.abs(np.asarray(o, dtype=np.longdouble) - y)
    value = np.where(distance <= 1, distance**2 / 2, distance - 0.5).sum()
    return value, np.clip(o - y, -1, 1), np.diag(np.where(distance < 1, 1.0, 0.0))


def poisson(y, o):
    o = np.asarray(o, dtype=np.longdouble)
    return (np.exp(o) - y * o + xlogy(y, y) - y).sum(), np.exp(o) - y, np.diag(np.exp(o))


TWINS = {
    "multiclass_logistic": multiclass_logistic,
    "smoothed_multiclass_hinge": smoothed_multiclass_hinge,
    "multiclass_squared_hinge": multiclass_squared_hinge,
    "binary_logistic": binary_logistic,
    "smoothed_binary_hinge": smoothed_binary_hinge,
    "binary_squared_hinge": binary_squared_hinge,
    "squared": squared,
    "huber": huber,
    "poisson": poisson,
}


def whole_matrix(name, Y, O, w=None):
    """Value, gradient (n, m) and curvature (n, m) of the weighted sum over the rows."""
    w = np.ones(len(O)) if w is None else w
    value, G, C = 0.0, np.zeros(O.shape), np.zeros(O.shape)
    for i in range(len(O)):
        y = int(Y[i, 0]) if name in LABELED else Y[i]
        row_value, gradient, hessian = TWINS[name](y, O[i])
        value += w[i] * row_value
        G[i], C[i] = w[i] * gradient, w[i] * np.diag(hessian)
    return float(value), G, C


LABELED = {"multiclass_logistic", "smoothed_multiclass_hinge", "multiclass_squared_hinge"}
