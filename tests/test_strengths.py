"""The default strengths: they do not depend on the order of rows, and keep what was asked for."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine, make_gaussian_quantiles

from fastpoly import (
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)
from fastpoly.strengths import simplest, walk_down

rng = np.random.default_rng(0)
FIELDS = np.column_stack([rng.integers(12, size=900), rng.integers(9, size=900)])
ONE_HOT = sp.csr_array(np.hstack([np.eye(12)[FIELDS[:, 0]], np.eye(9)[FIELDS[:, 1]]]))
RATINGS = np.sin(FIELDS[:, 0] * FIELDS[:, 1]) + 0.3 * rng.standard_normal(900)
CASES = {
    "folds": (PolynomialNetworkClassifier, *load_wine(return_X_y=True)),
    "a third": (
        PolynomialNetworkRegressor,
        (X := rng.standard_normal((1500, 20))),
        X[:, 0] * X[:, 1] + rng.standard_normal(1500),
    ),
    "sparse": (FactorizationMachineRegressor, ONE_HOT, RATINGS),
}


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_rows_does_not_matter(case):
    cls, X, y = CASES[case]
    order = np.random.default_rng(1).permutation(len(y))
    model, other = cls(random_state=0).fit(X, y), cls(random_state=0).fit(X[order], y[order])
    assert other.alpha_ == pytest.approx(model.alpha_, rel=1e-3)
    assert other.alpha_linear_ == pytest.approx(model.alpha_linear_, rel=1e-3)


def test_another_random_state_draws_other_rows():
    cls, X, y = CASES["a third"]
    alphas = {cls(random_state=seed).fit(X, y).alpha_ for seed in range(3)}
    assert len(alphas) == 3


def test_a_walk_does_not_pass_n_components():
    X, y = make_gaussian_quantiles(n_samples=1500, n_features=8, n_classes=2, random_state=0)
    model = PolynomialNetworkClassifier(n_components=6, random_state=0).fit(X, y)
    assert model.n_components_ == 6


def test_a_gain_must_be_clear():
    unsure, sure = [[2.0, 2.0], [1.0, 2.9]], [[2.0, 2.0], [1.0, 1.1]]
    assert [simplest(losses, 0.5) for losses in (unsure, sure)] == [0, 1]
    assert [simplest(losses, 0.0) for losses in (unsure, sure)] == [1, 1]
    assert simplest([[2.0], [1.9]], 0.5) == 1  # nothing says how sure it is


def test_a_walk_ends_where_the_loss_does_not_fall():
    losses = {8.0: 3.0, 4.0: 4.0, 2.0: 1.0, 1.0: 2.0, 0.5: 0.1}
    tried = []

    def loss(strength):
        tried.append(strength)
        return np.array([losses[strength]])

    assert walk_down(loss, list(losses)) == (8.0, 0)
    assert tried == [8.0, 4.0]
    tried.clear()
    strength, at = walk_down(loss, list(losses), fewest=3)
    assert tried == [8.0, 4.0, 2.0, 1.0]
    assert at == 2
    assert 1.0 < strength < 2.0
