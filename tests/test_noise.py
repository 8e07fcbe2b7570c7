"""The alpha from the errors of a model, against sums over rows and against noise itself."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastpoly import Design, alpha_max, conditional_gradient
from fastpoly.noise import noise_alpha

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 6)) * (RNG.random((120, 6)) < 0.5)


@pytest.mark.parametrize("lower", [None, "augment"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_brute_force(store, activation, lower):
    """Without linear terms the empty model says 0, so the gradients are -y."""
    y = RNG.standard_normal((120, 3))
    w = RNG.random(120)
    rows = np.hstack([np.ones((120, 1)), X]) if lower else X
    M = sum(
        w_i * (y_i @ y_i) * (x @ x) * np.outer(x, x) for w_i, y_i, x in zip(w, y, rows, strict=True)
    )
    expected = np.sqrt(np.linalg.eigvalsh(M)[-1]) / 3 / (2 if activation == "anova" else 1)
    design = Design(store(X), activation, fit_lower=lower)
    found = noise_alpha(design, y, loss="squared", sample_weight=w)
    assert found == pytest.approx(expected, rel=1e-3)


def test_classes_share_the_noise():
    y = RNG.integers(4, size=120)
    design = Design(X, fit_lower="augment")
    G = 0.25 - np.eye(4)[y]  # of a model that says 0
    rows = np.hstack([np.ones((120, 1)), X])
    weights = (G**2).sum(axis=1) * (rows**2).sum(axis=1)
    expected = np.sqrt(np.linalg.eigvalsh((rows.T * weights) @ rows)[-1]) / 4
    assert noise_alpha(design, y) == pytest.approx(expected, rel=1e-3)


def test_a_weight_is_a_number_of_rows():
    y, w = RNG.integers(3, size=120), RNG.integers(1, 4, size=120)
    weighted = noise_alpha(Design(X, fit_lower="explicit"), y, sample_weight=w.astype(float))
    again = Design(np.repeat(X, w, axis=0), fit_lower="explicit")
    assert noise_alpha(again, np.repeat(y, w)) == pytest.approx(weighted, rel=1e-2)


def test_errors_of_a_given_model():
    """A model that explains y leaves little noise; the sizes follow y."""
    Z = RNG.standard_normal((300, 6))
    y = (Z[:, 0] * Z[:, 1])[:, None]
    design = Design(Z, fit_lower="explicit")
    first = noise_alpha(design, y, loss="squared")
    *_, state = conditional_gradient(design, y, loss="squared", alpha=0.1 * first, random_state=0)
    assert noise_alpha(design, y, state.model, loss="squared") < 0.2 * first
    assert noise_alpha(design, 10 * y, loss="squared") == pytest.approx(10 * first, rel=1e-2)


@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_level_is_that_of_noise(activation):
    """The violation of a y that is noise is near the level, which is 3 alpha."""
    Z = RNG.standard_normal((400, 10))
    design = Design(Z, activation, fit_lower="explicit")
    ratios = []
    for seed in range(5):
        y = np.random.default_rng(seed).standard_normal((400, 1))
        level = 3 * noise_alpha(design, y, loss="squared")
        ratios.append(alpha_max(design, y, loss="squared") / level)
    assert 0.5 < np.mean(ratios) < 2


def test_perfect_fit_has_a_least_alpha():
    y = X @ RNG.standard_normal((6, 1))
    alpha = noise_alpha(Design(X, fit_lower="explicit"), y, loss="squared", alpha_linear=0.0)
    assert alpha == pytest.approx(1e-5 * 120)
