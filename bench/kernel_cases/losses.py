"""Cases of the losses: value and gradient in one call."""

from collections.abc import Iterator

import numpy as np
from scipy.special import expit, logsumexp
from sklearn._loss.loss import HalfMultinomialLoss

from fastpoly.kernels.losses import BinaryLogistic, MulticlassLogistic

from . import Case


def cases(quick: bool = False) -> Iterator[Case]:
    """Yield the cases; the arrays of a case are made when it is requested."""
    small = 50 if quick else 1
    yield multiclass(7_500 // small, 26)
    yield multiclass(100_000 // small, 5)
    yield binary(100_000 // small, 5)


def multiclass(n: int, m: int) -> Case:
    rng = np.random.default_rng(0)
    outputs, y = 3 * rng.normal(size=(n, m)), rng.integers(0, m, n)
    loss, rival = MulticlassLogistic(), HalfMultinomialLoss(n_classes=m)
    targets, codes, rows = loss.encode(y, m), y.astype(np.float64), np.arange(n)
    out, rival_loss, rival_out = np.empty((n, m)), np.empty(n), np.empty((n, m))

    def scipy_form():
        log_sum = logsumexp(outputs, axis=1, keepdims=True)
        gradient = np.exp(outputs - log_sum)
        gradient[rows, y] -= 1
        np.sum(log_sum[:, 0] - outputs[rows, y])
        return gradient

    def scikit_learn():
        rival.loss_gradient(
            codes, outputs, loss_out=rival_loss, gradient_out=rival_out, n_threads=1
        )
        rival_loss.sum()
        return rival_out

    return Case(
        "multi-class logistic",
        f"n={n} m={m}",
        lambda t: loss.value_grad(targets, outputs, out=out, n_threads=t)[1],
        {"scipy logsumexp": scipy_form, "scikit-learn _loss": scikit_learn},
        {"scipy logsumexp": 10.0, "scikit-learn _loss": 2.0},
        bytes=8 * n * (2 * m + targets.shape[1]),
        flops=25 * n * m,  # a polynomial exp and what is around it
    )


def binary(n: int, m: int) -> Case:
    rng = np.random.default_rng(0)
    outputs, loss = 3 * rng.normal(size=(n, m)), BinaryLogistic()
    targets, out = loss.encode(rng.choice([-1, 1], (n, m)), m), np.empty((n, m))

    def numpy_form():
        margin = targets * outputs
        np.logaddexp(0, -margin).sum()
        return -targets * expit(-margin)

    return Case(
        "binary logistic",
        f"n={n} m={m}",
        lambda t: loss.value_grad(targets, outputs, out=out, n_threads=t)[1],
        {"numpy logaddexp + expit": numpy_form},
        {"numpy logaddexp + expit": 6.0},
        bytes=8 * n * (2 * m + targets.shape[1]),
        flops=25 * n * m,  # a polynomial exp and what is around it
    )
