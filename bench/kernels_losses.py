"""Cases of the kernel benchmark for the losses: value and gradient in one call, one thread.

Each case is a dict: `name`, `shape` (text), `run` (the kernel), `run_two` (the same on two
threads), `against` (label -> rival callable), `target` (label -> how many times faster to be).
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import expit, logsumexp
from sklearn._loss.loss import HalfMultinomialLoss

from fastpoly.kernels.losses import BinaryLogistic, MulticlassLogistic


def cases() -> Iterator[dict]:
    """Yield the cases; the arrays of one are made when it is asked for."""
    yield _multiclass(7_500, 26)
    yield _multiclass(100_000, 5)
    yield _binary(100_000, 5)


def _multiclass(n: int, m: int) -> dict:
    rng = np.random.default_rng(0)
    outputs, y = 3 * rng.normal(size=(n, m)), rng.integers(0, m, n)
    loss, rival = MulticlassLogistic(), HalfMultinomialLoss(n_classes=m)
    targets, codes, rows = loss.encode(y, m), y.astype(np.float64), np.arange(n)
    out, rival_loss, rival_out = np.empty((n, m)), np.empty(n), np.empty((n, m))

    def scipy_form():
        log_sum = logsumexp(outputs, axis=1, keepdims=True)
        gradient = np.exp(outputs - log_sum)
        gradient[rows, y] -= 1
        return np.sum(log_sum[:, 0] - outputs[rows, y]), gradient

    def scikit_learn():
        rival.loss_gradient(
            codes, outputs, loss_out=rival_loss, gradient_out=rival_out, n_threads=1
        )
        return rival_loss.sum(), rival_out

    return {
        "name": "multi-class logistic",
        "shape": f"n={n} m={m}",
        "run": lambda: loss.value_grad(targets, outputs, out=out),
        "run_two": lambda: loss.value_grad(targets, outputs, out=out, n_threads=2),
        "against": {"scipy logsumexp": scipy_form, "scikit-learn _loss": scikit_learn},
        "target": {"scipy logsumexp": 10.0, "scikit-learn _loss": 2.0},
    }


def _binary(n: int, m: int) -> dict:
    rng = np.random.default_rng(0)
    outputs, loss = 3 * rng.normal(size=(n, m)), BinaryLogistic()
    targets, out = loss.encode(rng.choice([-1, 1], (n, m)), m), np.empty((n, m))

    def numpy_form():
        margin = targets * outputs
        return np.logaddexp(0, -margin).sum(), -targets * expit(-margin)

    return {
        "name": "binary logistic",
        "shape": f"n={n} m={m}",
        "run": lambda: loss.value_grad(targets, outputs, out=out),
        "run_two": lambda: loss.value_grad(targets, outputs, out=out, n_threads=2),
        "against": {"numpy logaddexp + expit": numpy_form},
        "target": {"numpy logaddexp + expit": 6.0},
    }
