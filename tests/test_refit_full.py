"""Refitting V and H together, and the plain step without refitting."""

import numpy as np
import pytest
import reference_refit as reference
from fastpoly.refit.full import _FullRefit, _Point, refit_full
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from test_objective import activations

from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.penalties import PENALTIES, get_penalty
from fastpoly.refit.output import OutputRefit
from fastpoly.refit.single_step import single_step
from fastpoly.rows.design import Design

EVERY_LOSS = pytest.mark.parametrize("loss", sorted(LOSSES))
EVERY_PENALTY = pytest.mark.parametrize("penalty", sorted(PENALTIES))
ACTIVATIONS = pytest.mark.parametrize("activation", ["squared", "anova"])
FORMS = pytest.mark.parametrize("form", ["alpha", "tau"])


def unit_rows(H):
    return H / np.linalg.norm(H, axis=1, keepdims=True)


def case(loss, penalty, activation, form, strength=1.0, fit_lower=None, sparse=False, seed=0):
    """A design, its fitter, and the basis vectors the targets were made with."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 5)) * (rng.random((80, 5)) < 0.8)
    H, V = unit_rows(rng.normal(size=(3, 5))), 2 * rng.normal(size=(3, 3))
    Y = reference.targets(loss, rng, activations(X, H, activation) @ V)
    design = Design(csr_array(X) if sparse else X, activation, fit_lower=fit_lower, n_threads=1)
    alpha, tau = (strength, None) if form == "alpha" else (None, strength)
    w = rng.random(80) + 0.5
    fitter = OutputRefit(get_loss(loss), get_penalty(penalty), Y, 3, w, alpha, tau, 0.7)
    return design, fitter, H, rng


def output_fit(design, fitter, H, tol=1e-6):
    V = np.zeros((len(H), fitter.m))
    features = design.features(H)
    return fitter(features, V, linear=design.linear, tol=tol, max_iter=500)


def objective(design, fitter, H, fit):
    """The whole objective in NumPy."""
    X = design.matrix.array
    O = activations(X, H, design.activation) @ fit.V + fit.intercept
    ridge = 0.0
    if fit.linear is not None:
        O = O + X @ fit.linear
        ridge = 0.5 * fitter.alpha_linear * (fit.linear**2).sum()
    loss = fitter.w @ reference.ROWS[fitter.loss.name](fitter.Y, O)[0]
    penalty = 0.0 if fitter.alpha is None else fitter.alpha * fitter.penalty.value(fit.V)
    return loss + ridge + penalty


@EVERY_LOSS
@EVERY_PENALTY
@ACTIVATIONS
@FORMS
def test_never_above_its_start(loss, penalty, activation, form):
    for fit_lower in (None, "explicit") if penalty == "l1/l2" else (None,):
        design, fitter, H, rng = case(loss, penalty, activation, form, 2.0, fit_lower)
        H = unit_rows(rng.normal(size=(4, 5)))
        before = output_fit(design, fitter, H, tol=1e-3)
        H_new, after = refit_full(design, fitter, H, before, tol=1e-3, max_iter=15)
        assert after.objective <= before.objective
        assert np.linalg.norm(H_new, axis=1).max() <= 1 + 1e-12
        assert_allclose(after.objective, objective(design, fitter, H_new, after), rtol=1e-10)
        if fitter.tau is not None:
            assert fitter.penalty.value(after.V) <= fitter.tau * (1 + 1e-12)


@pytest.mark.parametrize("loss", ["squared", "multiclass_logistic", "binary_logistic"])
@ACTIVATIONS
@pytest.mark.parametrize("sparse", [False, True])
def test_recovers_from_perturbed_basis_vectors(loss, activation, sparse):
    design, fitter, truth, rng = case(loss, "l1/l2", activation, "alpha", 0.1, sparse=sparse)
    best = output_fit(design, fitter, truth)
    H = unit_rows(truth + 0.3 * rng.normal(size=truth.shape))
    before = output_fit(design, fitter, H)
    _, after = refit_full(design, fitter, H, before, tol=1e-6, max_iter=100)
    assert before.objective > 1.02 * best.objective
    assert after.objective <= best.objective + 0.1 * (before.objective - best.objective)


@EVERY_LOSS
@ACTIVATIONS
@pytest.mark.parametrize("fit_lower", [None, "augment", "explicit"])
def test_gradient_of_the_joint_problem(loss, activation, fit_lower):
    design, fitter, _, rng = case(loss, "l1", activation, "alpha", fit_lower=fit_lower)
    H = unit_rows(rng.normal(size=(3, design.n_features)))
    joint = _FullRefit(design, fitter, output_fit(design, fitter, H, 1e-2))
    point = _Point(rng.normal(size=(3, 3)), H)
    value, G_V, G_H = joint.gradients(point)
    assert_allclose(joint.objective(point), value, rtol=1e-12)
    h = 1e-5
    for part, G in (("V", G_V), ("H", G_H)):
        for entry in np.ndindex(G.shape):
            step = np.zeros_like(G)
            step[entry] = h
            ends = [
                joint.objective(point._replace(**{part: getattr(point, part) + sign * step}))
                for sign in (1, -1)
            ]
            assert_allclose(G[entry], (ends[0] - ends[1]) / (2 * h), rtol=1e-4, atol=1e-4)


@FORMS
def test_nothing_to_refit(form):
    design, fitter, H, _ = case("squared", "l1", "squared", form)
    before = output_fit(design, fitter, H[:0])
    H_new, after = refit_full(design, fitter, H[:0], before, tol=1e-3, max_iter=10)
    assert H_new.shape == (0, 5)
    assert after is before


@EVERY_PENALTY
def test_zero_output_layer_stays(penalty):
    """V = 0 is stationary under a strong penalty; H must stay finite there."""
    design, fitter, H, _ = case("squared", penalty, "squared", "alpha", 1e6)
    before = output_fit(design, fitter, H)
    H_new, after = refit_full(design, fitter, H, before, tol=1e-3, max_iter=10)
    assert_array_equal(after.V, 0)
    assert np.isfinite(H_new).all()


# ---- the step without refitting -----------------------------------------------------------------


def step_case(loss, penalty, form, k, strength):
    design, fitter, _, rng = case(loss, penalty, "squared", form, strength)
    H = unit_rows(rng.normal(size=(k + 1, 5)))
    V = 0.02 * rng.normal(size=(k, 3))
    if form == "tau" and k:
        V = fitter.penalty.project(V, fitter.tau)
    A = design.activations(H)
    offset = 0.1 * rng.normal(size=(80, 3))
    D = fitter.w[:, None] * reference.ROWS[loss](fitter.Y, A[:, :k] @ V + offset)[1]
    return design, fitter, H, V, A, offset, A[:, k] @ D


@EVERY_LOSS
@EVERY_PENALTY
@FORMS
@pytest.mark.parametrize("k", [0, 2])
def test_single_step(loss, penalty, form, k):
    strength = 0.5 if form == "alpha" else 1.5
    design, fitter, H, V, A, offset, q = step_case(loss, penalty, form, k, strength)
    new = single_step(fitter, design.features(H), V, q, offset)
    assert new.shape == (k + 1, 3)

    def total(U):
        value = fitter.w @ reference.ROWS[loss](fitter.Y, A[:, : len(U)] @ U + offset)[0]
        return value if form == "tau" else value + strength * fitter.penalty.value(U)

    assert total(new) < total(V)
    p = get_penalty(penalty).polar(-q)
    vertex, old = np.vstack([np.zeros((k, 3)), p]), np.vstack([V, np.zeros(3)])
    if form == "tau":
        assert fitter.penalty.value(new) <= strength * (1 + 1e-12)
        grid = [total((1 - g) * old + g * strength * vertex) for g in np.linspace(0, 1, 101)]
    else:
        b = (new[-1] @ p) / (p @ p)
        assert_allclose(new[-1], b * p, atol=1e-12)
        grid = [
            total(x * old + y * vertex)
            for x in np.linspace(0, 2, 9)
            for y in np.linspace(0, 3 * b, 31)
        ]
    assert total(new) <= min(grid) + 1e-5 * abs(min(grid))


def test_single_step_needs_a_polar():
    design, fitter, H, V, _, offset, q = step_case("squared", "l1", "alpha", 1, 1.0)
    fitter.penalty = type("Own", (), {"value": fitter.penalty.value})()
    with pytest.raises(TypeError, match=r'polar.*refit="output"'):
        single_step(fitter, design.features(H), V, q, offset)
