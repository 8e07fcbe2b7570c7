"""The output-layer refit: optimal by unrelated solvers, with a gap that is a bound."""

from functools import cache

import numpy as np
import pytest
import reference_penalties
import reference_refit as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference_penalties import Plain
from reference_refit import PlainLoss
from scipy.sparse import csr_array

from fastpoly.kernels.features import make_features
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.penalties import PENALTIES, FistaStep, get_penalty
from fastpoly.refit import convex
from fastpoly.refit.convex import Solution, fista
from fastpoly.refit.output import refit_output

EVERY_LOSS = pytest.mark.parametrize("loss", sorted(LOSSES))
EVERY_PENALTY = pytest.mark.parametrize("penalty", sorted(PENALTIES))
SOLVERS = ("fista", "newton")
EVERY_SOLVER = pytest.mark.parametrize("solver", SOLVERS)
# Newton's method is for the penalized form.
EVERY_FORM = pytest.mark.parametrize(
    ("solver", "form"), [("fista", "alpha"), ("newton", "alpha"), ("fista", "tau")]
)


@cache
def data(loss, n=60, k=5, m=3, seed=0):
    """Activations (n, k), targets as encoded, weights; one activation is pure noise."""
    rng = np.random.default_rng([seed, n, k, m])
    A = rng.normal(size=(n, k)) + 0.5
    truth = rng.normal(size=(k, m)) * (np.arange(k) % 3 < 2)[:, None]
    return A, reference.targets(loss, rng, A @ truth), rng.random(n) + 0.2


@cache
def optimum(loss, penalty, alpha, weighted=False, **shape):
    """(V, objective) by the plain solver."""
    A, Y, w = data(loss, **shape)
    m = shape.get("m", 3)
    return reference.solve(loss, penalty, A, Y, m, alpha, w if weighted else None)


def total(loss, penalty, A, Y, V, alpha, w=None):
    """The objective, without fastpoly."""
    return reference.loss_grad(loss, A, Y, V, w)[0] + alpha * reference_penalties.value(penalty, V)


# ---- unrelated solvers --------------------------------------------------------------------------


@EVERY_PENALTY
def test_spams(penalty):
    alpha = 1.0
    A, Y, _ = data("multiclass_logistic", 80, 6, 4)
    V = reference.spams_logistic(A, Y[:, 0], 4, penalty, alpha)
    best = total("multiclass_logistic", penalty, A, Y, V, alpha)
    for solver in SOLVERS:
        fit = refit_output(A, Y, penalty=penalty, alpha=alpha, tol=1e-8, solver=solver)
        assert fit.converged
        assert_allclose(fit.objective, best, rtol=1e-6)
        assert_allclose(
            total("multiclass_logistic", penalty, A, Y, fit.V, alpha), fit.objective, rtol=1e-12
        )
        for tol in (0.3, 1e-1, 1e-2, 1e-4):
            loose = refit_output(A, Y, penalty=penalty, alpha=alpha, tol=tol, solver=solver)
            assert loose.objective - best <= loose.gap + 1e-9 * best
            assert loose.gap <= tol * loose.objective


@EVERY_LOSS
@EVERY_PENALTY
@EVERY_SOLVER
def test_penalized(loss, penalty, solver):
    A, Y, weights = data(loss)
    for alpha, w in ((0.3, weights), (8.0, None)):
        V, best = optimum(loss, penalty, alpha, w is not None)
        options = dict(
            loss=loss, penalty=penalty, alpha=alpha, solver=solver, n_outputs=3, sample_weight=w
        )
        fit = refit_output(A, Y, tol=1e-9, max_iter=5000, **options)
        assert fit.converged
        assert_allclose(fit.objective, best, rtol=1e-6)
        assert_allclose(fit.objective, total(loss, penalty, A, Y, fit.V, alpha, w), rtol=1e-12)
        assert_allclose(fit.loss, reference.loss_grad(loss, A, Y, fit.V, w)[0], rtol=1e-12)
        assert_array_equal(fit.intercept, np.zeros(3))
        assert fit.linear is None
        for row in np.flatnonzero(~V.any(axis=1)):
            assert_array_equal(fit.V[row], 0.0)
        for max_iter in (1, 3, 11):
            cut = refit_output(A, Y, tol=1e-9, max_iter=max_iter, **options)
            assert cut.objective - best <= cut.gap + 1e-9 * best
            assert cut.n_iter <= max_iter


@EVERY_LOSS
@EVERY_PENALTY
def test_constrained(loss, penalty):
    """A ball through the penalized optimum has that optimum's loss for its minimum."""
    A, Y, _ = data(loss)
    for alpha in (1.0, 8.0):
        V, best = optimum(loss, penalty, alpha)
        tau = reference_penalties.value(penalty, V)
        best -= alpha * tau
        options = dict(loss=loss, penalty=penalty, tau=tau, n_outputs=3)
        fit = refit_output(A, Y, tol=3e-8, max_iter=5000, **options)
        assert fit.converged
        assert reference_penalties.value(penalty, fit.V) <= tau * (1 + 1e-12)
        assert_allclose(fit.objective, best, rtol=1e-6)
        assert fit.objective == fit.loss
        assert_allclose(fit.loss, reference.loss_grad(loss, A, Y, fit.V)[0], rtol=1e-12)
        for max_iter in (1, 3, 9):
            cut = refit_output(A, Y, tol=1e-9, max_iter=max_iter, **options)
            assert reference_penalties.value(penalty, cut.V) <= tau * (1 + 1e-12)
            assert cut.objective - best <= cut.gap + 1e-8 * best


@EVERY_LOSS
@settings(max_examples=16, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6)),
    penalty=st.sampled_from(sorted(PENALTIES)),
    strength=st.sampled_from([0.2, 1.0, 5.0]),
    seed=st.integers(0, 99),
)
def test_solvers_agree(loss, shape, penalty, strength, seed):
    n, k, m = shape
    A, Y, w = data(loss, n, k, m, seed)
    options = dict(loss=loss, penalty=penalty, sample_weight=w, n_outputs=m)
    options |= {"alpha": strength, "tol": 1e-7, "max_iter": 20_000}
    one, two = (refit_output(A, Y, solver=solver, **options) for solver in SOLVERS)
    scale = reference.loss_grad(loss, A, Y, np.zeros((k, m)), w)[0]
    assert_allclose(one.objective, two.objective, rtol=1e-6, atol=1e-9 * scale)


@EVERY_LOSS
@EVERY_SOLVER
def test_without_penalty(loss, solver):
    A, Y, _ = data(loss, 200, 3, 3)
    best = optimum(loss, "l1", 0.0, n=200, k=3, m=3)[1]
    fit = refit_output(A, Y, loss=loss, alpha=0.0, solver=solver, n_outputs=3, tol=1e-9)
    assert_allclose(fit.objective, best, rtol=1e-6)
    G = reference.loss_grad(loss, A, Y, fit.V)[1]
    assert np.abs(G).max() <= 1e-3 * np.abs(reference.loss_grad(loss, A, Y, 0 * fit.V)[1]).max()


@EVERY_LOSS
@EVERY_PENALTY
@EVERY_SOLVER
def test_strong_penalty_gives_exactly_zero(loss, penalty, solver):
    A, Y, w = data(loss)
    G = reference.loss_grad(loss, A, Y, np.zeros((5, 3)), w)[1]
    largest = get_penalty(penalty).dual_norm(G)
    options = dict(loss=loss, penalty=penalty, solver=solver, n_outputs=3, sample_weight=w)
    for start in (None, np.random.default_rng(0).normal(size=(5, 3))):
        fit = refit_output(A, Y, alpha=1.01 * largest, start=start, tol=1e-6, **options)
        assert_array_equal(fit.V, np.zeros((5, 3)))
        assert fit.gap <= 1e-6 * fit.objective
    assert refit_output(A, Y, alpha=0.99 * largest, tol=1e-9, **options).V.any()


@EVERY_PENALTY
@EVERY_SOLVER
@pytest.mark.parametrize("loss", ["multiclass_logistic", "binary_squared_hinge"])
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_rows_of_useless_activations_are_exactly_zero(penalty, solver, loss, tol):
    """Also at loose tolerances, where an extrapolated point has tiny entries instead of zeros."""
    A, Y, _ = data(loss, 300, 12, 3)
    G = reference.loss_grad(loss, A, Y, np.zeros((12, 3)))[1]
    alpha = 0.3 * get_penalty(penalty).dual_norm(G)
    _, best = optimum(loss, penalty, alpha, n=300, k=12, m=3)
    fit = refit_output(A, Y, loss=loss, penalty=penalty, alpha=alpha, solver=solver, tol=tol)
    norms = np.abs(fit.V).max(axis=1)
    assert (norms == 0).any()
    assert not ((norms > 0) & (norms < 1e-5 * norms.max())).any()
    assert fit.objective - best <= fit.gap + 1e-9 * best


# ---- starts, forms of the data, user's own classes ----------------------------------------------


@EVERY_FORM
def test_warm_start(solver, form):
    A, Y, _ = data("multiclass_logistic")
    form = {form: 2.5}
    fit = refit_output(A, Y, solver=solver, tol=1e-7, **form)
    again = refit_output(A, Y, solver=solver, tol=1e-6, start=fit.V, **form)
    assert again.n_iter == 0
    assert_allclose(again.V, fit.V, rtol=1e-14)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 100.0):
        start = fit.V + scale * rng.normal(size=fit.V.shape)
        other = refit_output(A, Y, solver=solver, tol=1e-7, start=start, **form)
        assert_allclose(other.objective, fit.objective, rtol=1e-6)


@pytest.mark.parametrize("form", [{"alpha": 3.0}, {"tau": 0.5}])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_fista_returns_the_best_prox_point(penalty, form):
    """Stopped anywhere: rows exactly zero, within the ball, and no worse for more iterations.

    An extrapolated point is affine in two prox points: it leaves the ball, and has tiny
    entries in rows that have just become zero.
    """
    A, Y, _ = data("multiclass_logistic")
    rng = np.random.default_rng(0)
    A = np.hstack([A, 1e-2 * rng.normal(size=(len(A), 4))])
    norm, zeros = get_penalty(penalty), 0
    start = rng.normal(size=(A.shape[1], 3))
    objectives = []
    for max_iter in range(1, 60):
        fit = refit_output(
            A, Y, penalty=penalty, solver="fista", tol=1e-12, max_iter=max_iter, start=start, **form
        )
        size = np.abs(fit.V).max(axis=1)
        assert ((size == 0) | (size > 1e-8)).all()
        zeros += (size == 0).sum()
        assert norm.value(fit.V) <= form.get("tau", np.inf) * (1 + 1e-9)
        objectives.append(fit.objective)
    assert zeros > 100
    checked = np.array(objectives[9::10])  # where a later run has looked at the same points
    assert (np.diff(checked) <= 1e-12 * checked[0]).all()
    assert objectives[-1] <= min(objectives) * (1 + 1e-12)


class Overshooting:
    """|P|^2 / 2 with steps so long that every one is a step up."""

    metric = np.ones(1)

    def value_grad(self, P):
        return 0.5 * float((P * P).sum()), P

    def step(self, Y, G, L, P_old, P_new):
        P_new[...] = Y - 2.5 * G
        return FistaStep(1.0, 1.0, 0.0)

    def size(self, objective):
        return objective

    def certify(self, P):
        value, G = self.value_grad(P)
        return Solution(P, value, value, value, G)


@pytest.mark.parametrize("max_iter", [1, 10, 25])
def test_fista_never_returns_a_worse_point(max_iter):
    start = np.ones((1, 2))
    solution = fista(Overshooting(), start, tol=1e-3, max_iter=max_iter)
    assert solution.objective == solution.value == 1.0
    assert_array_equal(solution.P, start)
    assert not solution.converged


@EVERY_SOLVER
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "squared"])
@pytest.mark.parametrize("max_iter", [1, 3, 11])
def test_never_above_the_start(solver, loss, max_iter):
    A, Y, _ = data(loss)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0):
        start = optimum(loss, "l1/l2", 0.3)[0] + scale * rng.normal(size=(5, 3))
        fit = refit_output(
            A, Y, loss=loss, alpha=0.3, solver=solver, max_iter=max_iter, start=start, tol=1e-9
        )
        assert fit.objective <= total(loss, "l1/l2", A, Y, start, 0.3) * (1 + 1e-14)


@EVERY_SOLVER
@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_computed_activations_equal_stored_ones(solver, activation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) * (rng.random((80, 6)) < 0.6)
    H, y = rng.normal(size=(5, 6)), rng.integers(0, 3, 80)
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    stored = make_features(as_matrix(X), H, activation).activations()
    best = refit_output(stored, y, solver=solver, tol=1e-9).objective
    for matrix in (as_matrix(X), as_matrix(csr_array(X))):
        for n_threads in (1, 2):
            A = make_features(matrix, H, activation, n_threads).activations()
            fit = refit_output(A, y, solver=solver, tol=1e-9, n_threads=n_threads)
            assert_allclose(fit.objective, best, rtol=1e-8)


@EVERY_LOSS
@pytest.mark.parametrize("form", ["alpha", "tau"])
@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_own_loss_and_own_penalty(loss, solver, form):
    """Plain Python objects work, with only the required methods."""
    A, Y, w = data(loss)
    options = {form: 1.0, "sample_weight": w, "n_outputs": 3, "tol": 1e-5}
    best = refit_output(A, Y, loss=loss, penalty="l1/l2", **options).objective
    own_loss, own_penalty = PlainLoss(loss), Plain(get_penalty("l1/l2"))
    own_loss.smoothness = get_loss(loss).smoothness
    pairs = [(own_loss, "l1/l2")]
    if loss in ("multiclass_logistic", "squared"):
        pairs += [(loss, own_penalty), (own_loss, own_penalty)]
    for a, b in pairs:
        fit = refit_output(A, Y, loss=a, penalty=b, solver=solver, **options)
        assert_allclose(fit.objective, best, rtol=1e-5)
        assert fit.objective - best <= fit.gap + 1e-5 * best


def test_newton_says_what_it_cannot_fit():
    A, Y, _ = data("squared")
    for options, says in [
        ({"tau": 1.0}, "penalized form"),
        ({"penalty": Plain(get_penalty("l1"))}, "compiled penalty"),
        ({"loss": PlainLoss("squared")}, "curvature"),
    ]:
        options = {"loss": "squared", **options}
        with pytest.raises(ValueError, match=f'{says}.*solver="fista"'):
            refit_output(A, Y, solver="newton", **options)
        assert refit_output(A, Y, **options).converged


def test_loss_of_unknown_smoothness():
    A, Y, _ = data("squared")
    loss = PlainLoss("squared")
    loss.smoothness = lambda m: np.inf
    best = refit_output(A, Y, loss="squared", tol=1e-8).objective
    assert_allclose(refit_output(A, Y, loss=loss, tol=1e-7).objective, best, rtol=1e-6)


# ---- sample weights -----------------------------------------------------------------------------


@EVERY_LOSS
@EVERY_FORM
def test_integer_weights_are_repeated_rows(loss, solver, form):
    A, Y, _ = data(loss)
    w = np.random.default_rng(0).integers(0, 4, len(A))
    rows = np.repeat(np.arange(len(A)), w)
    options = {form: 1.0, "loss": loss, "solver": solver, "n_outputs": 3}
    options |= {"tol": 1e-10, "max_iter": 5000}
    weighted = refit_output(A, Y, sample_weight=w, **options)
    repeated = refit_output(A[rows], Y[rows], **options)
    assert_allclose(weighted.objective, repeated.objective, rtol=1e-9)
    assert_allclose(weighted.V, repeated.V, atol=2e-4)


@EVERY_LOSS
@EVERY_SOLVER
def test_scaling_weights_and_alpha_together_changes_nothing(loss, solver):
    A, Y, w = data(loss)
    options = dict(loss=loss, solver=solver, n_outputs=3, tol=1e-9, max_iter=5000)
    fit = refit_output(A, Y, alpha=1.0, sample_weight=w, **options)
    for scale in (1e-6, 1e-2, 1e5):
        other = refit_output(A, Y, alpha=scale, sample_weight=scale * w, **options)
        assert_allclose(other.objective, scale * fit.objective, rtol=1e-8)
        assert_allclose(other.V, fit.V, atol=1e-4)


# ---- scales -------------------------------------------------------------------------------------


@EVERY_PENALTY
@EVERY_SOLVER
def test_orthogonal_activations_of_any_scale(penalty, solver):
    """Squared loss and orthogonal columns of norm s_r: v_r = prox(s_r u_r; alpha) / s_r^2."""
    rng = np.random.default_rng(0)
    scales, alpha = np.logspace(-6, 6, 7), 1e-6
    Q = np.linalg.qr(rng.normal(size=(40, 7)))[0]
    u = rng.normal(size=(7, 3))
    u *= 5 / np.abs(u).sum(axis=1, keepdims=True)
    want = reference_penalties.prox(penalty, scales[:, None] * u, np.full(7, alpha))
    want /= scales[:, None] ** 2
    fit = refit_output(
        Q * scales, Q @ u, loss="squared", penalty=penalty, alpha=alpha, solver=solver, tol=1e-4
    )
    assert want.any(axis=1).all()
    assert fit.converged
    assert_allclose(fit.V, want, rtol=1e-3)
    assert fit.n_iter <= 100


@EVERY_SOLVER
@pytest.mark.parametrize("loss", ["multiclass_logistic", "binary_logistic", "squared"])
@pytest.mark.parametrize("reach", [3, 6])
def test_activations_of_any_scale(loss, solver, reach):
    """Without a penalty the scales do not matter: the optimum is that of unit scales."""
    A, Y, w = data(loss, 200, 4, 3)
    best = optimum(loss, "l1", 0.0, True, n=200, k=4, m=3)[1]
    scales = np.logspace(-reach, reach, 4)
    fit = refit_output(
        A * scales, Y, loss=loss, alpha=0.0, solver=solver, sample_weight=w, tol=1e-8
    )
    assert_allclose(fit.objective, best, rtol=1e-6)


@EVERY_SOLVER
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_one_scale_for_all(solver, scale):
    """A -> s A and alpha -> s alpha leaves the objective."""
    A, Y, _ = data("multiclass_logistic")
    best = optimum("multiclass_logistic", "l1/l2", 0.3)[1]
    fit = refit_output(scale * A, Y, alpha=0.3 * scale, solver=solver, tol=1e-8)
    assert_allclose(fit.objective, best, rtol=1e-6)


# ---- lower-order terms --------------------------------------------------------------------------


@cache
def explicit(loss, form, strength, alpha_linear, d=4):
    """Data with linear terms X, and the optimal objective by the plain solver."""
    A, Y, w = data(loss, 80, 4, 3)
    rng = np.random.default_rng(7)
    X = (rng.normal(size=(80, d)) * (rng.random((80, d)) < 0.6)).round(3)
    joined = np.hstack([A, np.ones((80, 1)), X])
    ridge = np.r_[np.zeros(5), np.full(d, alpha_linear)][:, None]

    def value_grad(P):
        value, G = reference.loss_grad(loss, joined, Y, P, w)
        return value + 0.5 * float((ridge * P * P).sum()), G + ridge * P

    def prox(P, step):
        P = P.copy()
        if form == "alpha":
            P[:4] = reference_penalties.prox("l1/l2", P[:4], np.full(4, strength * step))
        else:
            P[:4] = reference_penalties.project("l1/l2", P[:4], strength)
        return P

    P = reference.fista(value_grad, prox, np.zeros((5 + d, 3)), n_iter=5000)
    best = value_grad(P)[0]
    if form == "alpha":
        best += strength * reference_penalties.value("l1/l2", P[:4])
    return A, Y, w, X, best


@EVERY_LOSS
@EVERY_FORM
@pytest.mark.parametrize("storage", ["dense", "csr", "float32"])
def test_linear_terms(loss, solver, form, storage):
    strength = {"alpha": 3.0, "tau": 0.8}[form]
    A, Y, w, X, best = explicit(loss, form, strength, 0.5)
    stored = {"dense": X, "csr": csr_array(X), "float32": X.astype(np.float32)}[storage]
    fit = refit_output(
        A, Y, loss=loss, n_outputs=3, solver=solver, sample_weight=w, tol=1e-8, max_iter=5000,
        linear=stored, alpha_linear=0.5, **{form: strength},
    )  # fmt: skip
    assert (fit.V.shape, fit.linear.shape) == ((4, 3), (4, 3))
    assert_allclose(fit.objective, best, rtol=1e-6)
    assert fit.objective - best <= fit.gap + 1e-7 * best
    O = A @ fit.V + X @ fit.linear + fit.intercept
    values, D = reference.ROWS[loss](Y, O)
    assert_allclose(fit.loss, w @ values, rtol=1e-6)
    scale = np.abs(w @ reference.ROWS[loss](Y, 0 * O)[1]).max() + 1
    assert_allclose(w @ D, 0, atol=1e-3 * scale)
    assert_allclose(X.T @ (w[:, None] * D), -0.5 * fit.linear, atol=1e-3 * scale)


@EVERY_SOLVER
def test_linear_terms_without_activations(solver):
    """k = 0 and no ridge: an ordinary least squares fit with an intercept."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 2)) + 5
    coef = np.linalg.lstsq(np.hstack([np.ones((50, 1)), X]), y, rcond=None)[0]
    fit = refit_output(
        np.empty((50, 0)), y, loss="squared", linear=X, alpha_linear=0.0,
        solver=solver, tol=1e-9,
    )  # fmt: skip
    assert_allclose(fit.intercept, coef[0], atol=1e-4)
    assert_allclose(fit.linear, coef[1:], atol=1e-4)
    assert fit.V.shape == (0, 2)


def test_newton_refuses_many_linear_terms():
    A, Y, _ = data("squared")
    wide = csr_array((60, 5000))
    with pytest.raises(ValueError, match=r'5000.*solver="fista"'):
        refit_output(A, Y, loss="squared", linear=wide, solver="newton")
    fit = refit_output(A, Y, loss="squared", linear=wide)
    assert fit.linear.shape == (5000, 3)


# ---- steps of Newton's method -------------------------------------------------------------------


class Poisson:
    """exp(o) - y o above its minimum, which is at o = log y; its curvature has no bound."""

    target = "real"

    def value_grad(self, Y, O, w=None):
        with np.errstate(over="ignore", invalid="ignore"):
            least = Y - Y * np.log(np.maximum(Y, 1e-300))
            return float((np.exp(O) - Y * O - least).sum()), np.exp(O) - Y

    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def curvature(self, Y, O, w=None):
        return np.exp(O)

    def smoothness(self, n_outputs):
        return np.inf


def test_a_loss_without_a_bound_takes_tiny_steps():
    """From zero, the first Newton step is a million times too long."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(100, 3)) ** 2
    y = rng.poisson(1e5 * A[:, 0])[:, None].astype(float)
    fit = refit_output(A, y, loss=Poisson(), alpha=0.1, solver="newton", tol=1e-6)
    assert fit.converged
    far = np.abs(A.T @ (1 - y)).max()
    assert_allclose(A.T @ (np.exp(A @ fit.V) - y), 0, atol=1e-3 * far)


def test_squared_hinges_reach_their_kinks():
    """More damping after every short step left a gap of a fifth of the objective."""
    m, rng = 6, np.random.default_rng(6)
    X = rng.normal(size=(260, 5))
    A = (X @ rng.normal(size=(12, 5)).T) ** 2
    y = (X @ rng.normal(size=(5, m)) + 0.5 * rng.normal(size=(260, m))).argmax(axis=1)
    options = {"loss": "squared_hinge", "penalty": "l1/linf", "alpha": 1e-3, "n_outputs": m}
    fit = refit_output(A, y, solver="newton", tol=1e-2, **options)
    assert fit.converged


@EVERY_PENALTY
def test_many_outputs(penalty, monkeypatch):
    """Too many outputs to keep their interactions in the model."""
    monkeypatch.setattr(convex, "couples", lambda problem: False)
    A, Y, _ = data("multiclass_logistic", 150, 8, 20)
    options = {"penalty": penalty, "alpha": 2.0, "tol": 1e-6, "n_outputs": 20, "max_iter": 3000}
    one, two = (refit_output(A, Y, solver=solver, **options) for solver in SOLVERS)
    assert one.converged
    assert two.converged or penalty == "l1/linf"  # which is slow to certify without interactions
    assert_allclose(one.objective, two.objective, rtol=1e-6)
