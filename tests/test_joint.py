"""The joint descent: its smooth forms, its preconditioner, its solver and its guarantees."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_fits import made_up, run
from scipy.optimize import approx_fprime
from scipy.optimize import minimize as scipy_minimize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastpoly import Design, alpha_max, conditional_gradient, select_basis
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.penalties import PENALTIES, get_penalty
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.refit.joint import JointRefit, fit_linear_terms, line_minimum
from fastpoly.refit.lbfgs import Preconditioner, minimize
from fastpoly.rows import as_rows
from fastpoly.state import Model

STORED = {"dense": np.asarray, "csr": sp.csr_array}


def targets(loss, n, m, rng):
    """Targets of any registered loss."""
    kind = get_loss(loss).target
    if kind == "label":
        return np.r_[np.arange(m), rng.integers(0, m, n - m)]
    y = rng.standard_normal((n, m))
    return np.sign(y) if kind == "sign" else np.abs(y) if loss == "poisson" else y


# ---- smooth forms --------------------------------------------------------------------------------


def unit_model(k=4, d=5, m=3, seed=0, one_output=False):
    rng = np.random.default_rng(seed)
    H, V = rng.standard_normal((k, d)), rng.standard_normal((k, m))
    if one_output:
        V *= np.arange(m) == rng.integers(0, m, k)[:, None]
    return H / np.linalg.norm(H, axis=1, keepdims=True), V


@pytest.mark.parametrize("name", PENALTIES)
def test_the_smooth_form_is_the_penalty_at_its_scale_and_above_it_elsewhere(name):
    penalty = get_penalty(name)
    form = penalty.smooth_form
    H, V = unit_model(one_output=form.fixed)
    H1, V1 = form.scale(H, V, penalty.row_norms(V))
    zeros = np.zeros_like(H), np.zeros_like(V)
    assert form.value_grad(H1, V1, 0.7, *zeros) == pytest.approx(0.7 * penalty.value(V))
    # The model is the same: v_r h_r h_r' does not change.
    np.testing.assert_allclose(
        np.einsum("rc,ri,rj->cij", V1, H1, H1), np.einsum("rc,ri,rj->cij", V, H, H)
    )
    if form.bound is not None:
        assert np.abs(V1).max() == pytest.approx(form.bound)
    for c in (0.5, 0.9, 1.1, 2.0):
        if form.bound is None and not form.fixed:
            other = form.value_grad(H1 / c, V1 * c**2, 0.7, *zeros)
            assert other > 0.7 * penalty.value(V) * (1 + 1e-3)


@pytest.mark.parametrize("name", PENALTIES)
def test_gradients_and_curvature_of_the_smooth_form(name):
    form = get_penalty(name).smooth_form
    H, V = unit_model(k=2, d=3, m=2)
    H = 1.3 * H
    GH, GV = np.zeros_like(H), np.zeros_like(V)
    form.value_grad(H, V, 0.7, GH, GV)

    def value(x):
        zeros = np.zeros_like(H), np.zeros_like(V)
        return form.value_grad(
            x[: H.size].reshape(H.shape), x[H.size :].reshape(V.shape), 0.7, *zeros
        )

    x = np.r_[H.ravel(), V.ravel()]
    np.testing.assert_allclose(np.r_[GH.ravel(), GV.ravel()], approx_fprime(x, value), atol=1e-5)
    # Second derivatives along the columns of a rotation.
    T = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    found = form.curvature(H, 0.7, H @ T, np.ones(3))
    for r, j in itertools.product(range(2), range(3)):
        step = np.zeros_like(H)
        step[r] = 1e-3 * T[:, j]
        move = np.r_[step.ravel(), np.zeros(V.size)]
        second = (value(x + move) - 2 * value(x) + value(x - move)) / 1e-6
        assert found[r, j] == pytest.approx(second, rel=1e-3)
    step = np.r_[np.zeros(H.size), 1e-3, np.zeros(V.size - 1)]
    second = (value(x + step) - 2 * value(x) + value(x - step)) / 1e-6
    assert form.output_curvature(0.7) == pytest.approx(second, abs=1e-4)


# ---- the preconditioner --------------------------------------------------------------------------


def labels_and_objective(stored, activation, lower, penalty="l1/l2", loss="logistic", d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, d)) * (rng.random((40, d)) < 0.7)
    design = Design(STORED[stored](X), activation, fit_lower=lower, n_threads=1)
    y = targets("multiclass_logistic", 40, 3, rng)
    rows = as_rows(design, y, loss=loss)
    problem = Problem.of(rows.loss, penalty, rows.m, alpha=0.3, alpha_linear=0.2)
    return y, Objective(problem, rows)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("stored", STORED)
def test_the_preconditioner_is_symmetric_and_positive(stored, activation, lower, penalty):
    _, objective = labels_and_objective(stored, activation, lower, penalty)
    refit = JointRefit(objective, 1e-3, 100, 9)
    d = objective.rows.n_features
    H, V = unit_model(d=d, one_output=refit.form.fixed)
    rng = np.random.default_rng(2)
    linear = rng.standard_normal((d, 3)) if objective.explicit else None
    model = refit.rescale(Model(H, V, rng.standard_normal(3) * objective.explicit, linear))
    curvature = objective.rows.curvature(model, np.zeros(len(model.H)))
    P = Preconditioner(objective.problem, refit.form, model, curvature)
    n = len(objective.pack(model))
    matrix = np.array([P(e) for e in np.eye(n)])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix).min() > 0


def test_the_preconditioner_is_the_inverse_hessian_of_a_linear_model():
    """Without basis vectors and for squared loss, one step is enough."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 4)) * [1e-3, 1.0, 10.0, 1e3]
    y = rng.standard_normal((50, 2)) + 3
    design = Design(X, fit_lower="explicit", n_threads=1)
    rows = as_rows(design, y, loss="squared")
    objective = Objective(Problem.of(rows.loss, "l1/l2", 2, alpha_linear=0.1), rows)
    model = fit_linear_terms(objective, 1e-6)
    A = np.c_[np.ones(50), X]
    best = np.linalg.solve(A.T @ A + np.diag([0, 0.1, 0.1, 0.1, 0.1]), A.T @ y)
    np.testing.assert_allclose(np.vstack([model.intercept, model.linear]), best, rtol=1e-4)


@pytest.mark.parametrize("lower", [None, "explicit"])
def test_the_eigenbasis_keeps_every_own_curvature(lower):
    """In the shared directions T, `basis` is the diagonal of T' B_r T, with B_r from finite
    differences of its definition."""
    y, objective = labels_and_objective("dense", "squared", lower)
    H, V = unit_model(d=6)
    rng = np.random.default_rng(4)
    linear = rng.standard_normal((6, 3)) if objective.explicit else None
    model = Model(H, V, np.zeros(3), linear)
    X = objective.rows.block.design.matrix.array
    O = (X @ H.T) ** 2 @ V + (X @ linear if objective.explicit else 0)
    E = np.exp(O - O.max(axis=1, keepdims=True))
    E /= E.sum(axis=1, keepdims=True)
    C, D = E * (1 - E), E - np.eye(3)[np.asarray(y).ravel().astype(int)]
    found = objective.rows.curvature(model, np.zeros(len(model.H)))
    for r in range(len(H)):
        u = 4 * (X @ H[r]) ** 2 * (C @ V[r] ** 2) + np.abs(D @ V[r])
        B = X.T @ (u[:, None] * X)
        T = found.directions
        np.testing.assert_allclose(found.basis[r], np.diag(T.T @ B @ T), rtol=1e-9)
    A = (X @ H.T) ** 2
    A = np.c_[A, np.ones(40), X] if objective.explicit else A
    np.testing.assert_allclose(found.joint, A.T @ (C.mean(axis=1)[:, None] * A), rtol=1e-9)


def test_many_features_get_a_diagonal():
    rng = np.random.default_rng(5)
    d = 520
    X, y = rng.standard_normal((30, d)), np.r_[0, 1, rng.integers(0, 2, 28)]
    design = Design(X, n_threads=1)
    alpha = 0.5 * alpha_max(design, y)
    states = run(design, y, alpha=alpha, n_components=4)
    assert as_rows(design, y).curvature(states[-1].model, np.zeros(4)).directions is None
    assert states[-1].objective < 0.97 * states[0].objective


# ---- the solver ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bounded", [False, True])
def test_lbfgs_finds_the_minimum(bounded):
    rng = np.random.default_rng(6)
    B = rng.standard_normal((12, 12))
    B = B @ B.T + 0.1 * np.eye(12)
    target = 2 * rng.standard_normal(12)

    def value_grad(x):
        return 1 + 0.5 * (x - target) @ B @ (x - target), B @ (x - target)

    values = []

    def objective(x, g):
        value, g[:] = value_grad(x)
        values.append(value)
        return value

    bounds = (np.full(12, -1.0), np.full(12, 1.0)) if bounded else None
    P = 1 / np.diag(B)
    found = minimize(
        objective, np.zeros(12), lambda g: P * g, max_iter=500, ftol=1e-14, memory=10, bounds=bounds
    )
    limits = list(zip(*bounds, strict=True)) if bounded else None
    best = scipy_minimize(value_grad, np.zeros(12), jac=True, bounds=limits, tol=1e-12)
    assert found.value == pytest.approx(best.fun, rel=1e-7)
    np.testing.assert_allclose(found.x, best.x, atol=1e-3)
    assert found.converged
    if not bounded:
        assert len(values) < 100  # a gradient descent would need hundreds


def test_lbfgs_with_a_full_memory_continues():
    """Pairs are moved within the memory; a wrong move would break the directions."""

    def objective(x, g):
        g[:] = scales * x**3
        return 0.25 * float(scales @ x**4)

    scales = np.geomspace(1, 1e4, 30)
    few, many = (
        minimize(objective, np.ones(30), np.copy, max_iter=400, ftol=1e-13, memory=m)
        for m in (4, 400)
    )
    assert few.value < 1e-6
    assert many.value < 1e-6


def test_line_minimum_is_near_the_minimum():
    for scale in (1e-6, 1.0, 1e6):
        t = line_minimum(lambda t: ((t - scale) ** 2, 2 * (t - scale)), 1.0)  # noqa: B023
        assert t == pytest.approx(scale, rel=0.11)


# ---- the descent ---------------------------------------------------------------------------------


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    loss=st.sampled_from(sorted(LOSSES)),
    penalty=st.sampled_from(sorted(PENALTIES)),
    activation=st.sampled_from(["squared", "anova"]),
    stored=st.sampled_from(sorted(STORED)),
    lower=st.sampled_from([None, "augment", "explicit"]),
    weighted=st.booleans(),
    m=st.integers(2, 4),
    log_alpha=st.floats(-4, 2),
    block=st.sampled_from(["auto", 1, 3]),
    seed=st.integers(0, 10**6),
)
def test_the_objective_never_rises(
    loss, penalty, activation, stored, lower, weighted, m, log_alpha, block, seed
):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(m + 1, 40)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 1, d)
    y, w = targets(loss, n, m, rng), rng.integers(0, 3, n) + 1e-3 if weighted else None
    design = Design(STORED[stored](X), activation, fit_lower=lower, n_threads=1)
    states = list(
        itertools.islice(
            conditional_gradient(
                design, y, loss=loss, penalty=penalty, alpha=10**log_alpha, n_components=8,
                block=block, refit="full", sample_weight=w, n_outputs=m, random_state=seed,
            ),
            12,
        )
    )  # fmt: skip
    pen, fn = get_penalty(penalty), get_loss(loss)
    Y = fn.encode(y, m)
    objectives = [state.objective for state in states]
    assert (np.diff(objectives) <= 1e-12 * np.abs(objectives[:-1])).all()
    for state in states:
        O = design.outputs(state.H, state.V) + state.intercept
        ridge = 0.0
        if state.linear is not None:
            O = O + X @ state.linear
            ridge = 0.5 * (state.linear**2).sum()
        omega = pen.value(state.V) if len(state.V) else 0.0
        total = fn.value(Y, O, w) + 10**log_alpha * omega + ridge
        assert state.objective == pytest.approx(total, rel=1e-8, abs=1e-12)
        np.testing.assert_allclose(np.linalg.norm(state.H, axis=1), 1, rtol=1e-9)


def digits():
    X, y = load_digits(return_X_y=True)
    X, _, y, _ = train_test_split(X / 16, y, test_size=0.5, random_state=0)
    return np.c_[np.ones(len(X)), X], y


@pytest.mark.parametrize(("penalty", "best"), [("l1/l2", 36.7260), ("l1", 39.9270)])
def test_the_known_optimum_of_digits(penalty, best):
    X, y = digits()
    *_, state = run(Design(X, n_threads=1), y, penalty=penalty, alpha=1.0, n_components=200)
    assert state.stop == "optimal"
    assert state.objective <= best
    assert state.n_components <= 20
    D = get_loss("multiclass_logistic").value_grad(y[:, None], Design(X).outputs(state.H, state.V))[
        1
    ]
    gamma = Design(X).gamma(D)
    for seed in (11, 12):
        again = select_basis(gamma, penalty, thorough=True, random_state=seed)
        assert again.value <= 1 + 2e-3


KNOWN = {
    ("vowel", "l1/l2"): 162.33,
    ("vowel", "l1"): 201.54,
    ("segment", "l1/l2"): 124.74,
    ("satimage", "l1/l2"): 421.95,
}


@pytest.mark.skipif("FASTPOLY_DATA" not in os.environ, reason="needs the data sets of the paper")
@pytest.mark.parametrize(("name", "penalty"), KNOWN)
def test_the_known_optima_of_the_data_of_the_paper(name, penalty):
    data = np.load(Path(os.environ["FASTPOLY_DATA"]) / f"{name}.npz")
    rows = data["split"] == 0 if "split" in data else slice(None)
    X, y = data["X"][rows], data["y"][rows]
    X, _, y, _ = train_test_split(X, y, test_size=0.5, random_state=0)
    design = Design(np.c_[np.ones(len(X)), X], n_threads=1)
    *_, state = run(
        design, y, penalty=penalty, alpha=1.0, n_components=400, n_outputs=int(data["y"].max()) + 1
    )
    assert state.objective <= KNOWN[name, penalty]
    assert state.stop == "optimal"


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("share", [0.999, 0.5, 1e-2, 1e-6])
def test_every_alpha(penalty, share):
    X, y = made_up(21, n=80, d=4, m=3)
    design = Design(X, n_threads=1)
    alpha = share * alpha_max(design, y, penalty=penalty)
    states = run(design, y, penalty=penalty, alpha=alpha, n_components=40)
    assert states[-1].stop in ("optimal", "no progress", "n_components")
    assert states[-1].n_components > 0
    assert states[-1].objective < states[0].objective
    if share >= 0.5:
        assert states[-1].stop == "optimal"


def test_separable_data():
    rng = np.random.default_rng(22)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    keep = np.abs(X[:, 0] * X[:, 1]) > 0.3
    design = Design(X[keep], n_threads=1)
    for loss in ("logistic", "squared_hinge", "smoothed_hinge"):
        *_, state = run(design, y[keep], loss=loss, alpha=1e-5, n_components=30)
        assert state.objective < 1e-2
        O = design.outputs(state.H, state.V)
        assert (O.argmax(axis=1) == y[keep]).all()


@pytest.mark.parametrize(("seed", "most"), [(1, 10), pytest.param(0, 30, marks=pytest.mark.slow)])
def test_badly_scaled_columns(seed, most):
    """It may be far from the certificate, but is no worse than the output refit."""
    X, y = made_up(23 + seed, n=100, d=5, m=3)
    design = Design(X * np.geomspace(1e-3, 1e3, 5), n_threads=1)
    full = run(design, y, alpha=1.0, n_components=most)[-1]
    output = run(design, y, alpha=1.0, n_components=most, block=1, refit="output")[-1]
    assert full.objective <= output.objective * (1 + 1e-3)


def objective_of(X, y, w=None, **options):
    design = Design(X, n_threads=1)
    options = {"alpha": 2.0, "n_components": 60, "tol": 1e-4} | options
    return run(design, y, sample_weight=w, n_outputs=3, **options)[-1]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_permutations_and_repeated_rows(penalty):
    X, y = made_up(24, n=70, d=4, m=3)
    rng = np.random.default_rng(0)
    base = objective_of(X, y, penalty=penalty)
    assert base.stop == "optimal"
    rows, columns, classes = rng.permutation(70), rng.permutation(4), rng.permutation(3)
    w = rng.integers(1, 4, 70)
    for other in (
        objective_of(X[rows], y[rows], penalty=penalty),
        objective_of(X[:, columns], y, penalty=penalty),
        objective_of(X, classes[y], penalty=penalty),
        objective_of(-X, y, penalty=penalty),
    ):
        assert other.objective == pytest.approx(base.objective, rel=2e-4)
    weighted = objective_of(X, y, w.astype(float), penalty=penalty)
    repeated = objective_of(np.repeat(X, w, axis=0), np.repeat(y, w), penalty=penalty)
    assert weighted.objective == pytest.approx(repeated.objective, rel=2e-4)
    # The answer is permuted, too: the quadratic forms of the classes agree.
    moved = objective_of(X, classes[y], penalty=penalty)
    A, B = (np.einsum("rc,ri,rj->cij", s.V, s.H, s.H) for s in (base, moved))
    np.testing.assert_allclose(B[classes], A, atol=0.05 * np.abs(A).max())


def test_l1_with_more_outputs_than_vectors_shares_them():
    """A unit of the joint descent serves one output; "auto" leaves no output without a unit."""
    rng = np.random.default_rng(29)
    X = rng.standard_normal((150, 5))
    y = np.sign(X @ rng.standard_normal((5, 20)) * X[:, :1])
    options = {"loss": "logistic", "penalty": "l1", "alpha": 0.5, "n_components": 25}
    auto, output = (run(Design(X), y, refit=r, **options)[-1] for r in ("auto", "output"))
    assert auto.V.any(axis=0).all()
    assert auto.objective <= output.objective * (1 + 1e-6)
    # A warm start does not split the shared vectors of a model.
    again = run(Design(X), y, start=output, **options | {"alpha": 0.6, "n_components": 30})
    assert again[0].objective <= output.objective + 0.1 * output.penalty * (1 + 1e-6)


def test_a_unit_serves_one_output_with_l1():
    X, y = made_up(25, n=80, d=4, m=3)
    state = objective_of(X, y, penalty="l1")
    assert ((state.V != 0).sum(axis=1) == 1).all()


class NoCurvature:
    """The squared loss as a user would write it, without second derivatives or conjugate."""

    name, target = "mine", "real"

    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def value_grad(self, Y, O, w=None):
        D = (O - Y) * (1 if w is None else w[:, None])
        return 0.5 * float((D * (O - Y)).sum()), D

    def smoothness(self, m):
        return np.inf


def test_a_loss_object_without_curvature():
    X, y = made_up(26, n=80, d=4, m=3, loss="squared")
    states = [
        run(Design(X, n_threads=1), y, loss=loss, alpha=5.0, n_components=60)[-1]
        for loss in ("squared", NoCurvature())
    ]
    assert states[1].objective == pytest.approx(states[0].objective, rel=2e-3)


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [0, -1])
def test_a_block_has_vectors(block):
    X, y = made_up(27)
    with pytest.raises(ValueError, match="block must be at least 1"):
        conditional_gradient(Design(X), y, block=block)


@pytest.mark.parametrize("block", ["many", 1.5, None])
def test_a_block_is_a_count(block):
    X, y = made_up(27)
    with pytest.raises(TypeError, match="block must be an integer"):
        conditional_gradient(Design(X), y, block=block)


@pytest.mark.parametrize(("n", "size"), [(4, 12), (40, 20)])
def test_a_few_rows_need_few_vectors(n, size):
    """n rows of m outputs need n m vectors, each as long as a row: wide rows took 6 GB at first."""
    rows = as_rows(Design(np.ones((n, 100))), np.arange(n) % 3)
    objective = Objective(Problem.of(rows.loss, "l1", rows.m, alpha=1.0), rows)
    assert JointRefit(objective, 1e-3, 100, 50).block(0) == size


def test_the_constrained_form_has_no_full_refit():
    X, y = made_up(27)
    with pytest.raises(ValueError, match=r'refit="full".*tau.*use refit="output" or alpha'):
        conditional_gradient(Design(X), y, tau=1.0, refit="full")


class Plain:
    """A user's penalty: l1/l2 without a smooth form."""

    name = "mine"

    def __init__(self):
        self.inner = get_penalty("l1/l2")

    def __getattr__(self, name):
        if name == "smooth_form" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def test_a_penalty_without_a_smooth_form_gets_the_output_refit():
    X, y = made_up(28)
    with pytest.raises(ValueError, match='refit="full".*does not have.*use refit="output"'):
        conditional_gradient(Design(X), y, penalty=Plain(), refit="full")
    own = run(Design(X), y, penalty=Plain(), alpha=1.0, n_components=5)
    paper = run(Design(X), y, penalty="l1/l2", alpha=1.0, n_components=5, refit="output")
    assert own[-1].objective == pytest.approx(paper[-1].objective, rel=2e-2)
    assert [s.n_components for s in own][:3] == [0, 1, 2]
