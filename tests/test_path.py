"""The regularization path: where it begins, and that warm starts reach the same objective."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from reference_fits import LOSSES, made_up, products, run, spectral_norm
from scipy.optimize import minimize

from fastpoly import Design, alpha_max
from fastpoly.algorithm import Options
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.penalties import PENALTIES
from fastpoly.objective import Objective
from fastpoly.path import alpha_grid, gained_little, largest_alpha, regularization_path, walk
from fastpoly.problem import Problem
from fastpoly.rows import as_rows


def lower_only(X, y, m, loss, ridge):
    """Outputs of the best intercept and linear weights, by a generic solver."""
    d = X.shape[1]

    def objective(p):
        b, W = p[:m], p[m:].reshape(d, m)
        values, D = LOSSES[loss][0](y, X @ W + b)
        value = values.sum() + ridge / 2 * (W**2).sum()
        return value, np.concatenate([D.sum(axis=0), (X.T @ D + ridge * W).ravel()])

    p = minimize(objective, np.zeros(m + d * m), jac=True, options={"gtol": 1e-9}).x
    return X @ p[m:].reshape(d, m) + p[:m]


@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("loss", ["squared", "multiclass_logistic"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_alpha_max_of_l1_is_an_eigenvalue(activation, loss, lower):
    X, y = made_up(30, loss=loss)
    w = np.random.default_rng(0).uniform(0.5, 1.5, len(X)) if lower is None else np.ones(len(X))
    O, data = np.zeros((len(X), 3)), X
    if lower == "explicit":
        O = lower_only(X, y, 3, loss, ridge=0.7)
    elif lower == "augment":
        data = np.column_stack([np.ones(len(X)), X])
    D = w[:, None] * LOSSES[loss][0](y, O)[1]
    true = spectral_norm(np.einsum("ic,ijk->cjk", D, products(data, activation)))
    design = Design(X, activation, fit_lower=lower)
    options = {"loss": loss, "penalty": "l1", "alpha_linear": 0.7, "sample_weight": w}
    found = alpha_max(design, y, **options)
    assert found == pytest.approx(true, rel=1e-3 if lower == "explicit" else 1e-6)
    above = run(design, y, alpha=1.01 * found, **options)
    assert above[-1].n_components == 0
    assert above[-1].stop == "optimal"
    assert run(design, y, alpha=0.97 * found, **options)[-1].n_components > 0


def test_alpha_max_over_many_sparse_features():
    """By Lanczos steps, which stop at the tolerance."""
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 150), density=0.05, rng=rng, format="csr")
    y = rng.standard_normal((300, 2))
    dense = X.toarray()
    true = spectral_norm(np.einsum("ic,ij,ik->cjk", y, dense, dense))
    assert alpha_max(Design(X), y, loss="squared", penalty="l1") == pytest.approx(true, rel=1e-6)


def test_a_round_that_gains_little():
    """Less than a hundredth of the tolerance, relative to the objective."""
    X, y = made_up(32)
    first, second, *_ = run(Design(X), y, alpha=0.1)
    assert not gained_little(first, 0.1)  # there is no round before it
    assert not gained_little(second, 0.1)
    for gain, little in ((0.9e-3, True), (1.1e-3, False)):
        memory = second.memory._replace(recent=(20.0, 10.0 * (1 + gain)))
        state = replace(second, objective=10.0, memory=memory)
        assert gained_little(state, 0.1) == little
        assert not gained_little(state, 0.01)


@pytest.mark.parametrize("lower", [None, "explicit"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_empty_above_alpha_max_and_not_below(penalty, lower):
    X, y = made_up(31, m=4)
    design = Design(X, fit_lower=lower)
    largest = alpha_max(design, y, penalty=penalty)
    options = {"penalty": penalty, "tol": 1e-4}
    assert run(design, y, alpha=1.002 * largest, **options)[-1].n_components == 0
    assert run(design, y, alpha=0.99 * largest, **options)[-1].n_components > 0


@pytest.mark.parametrize("lower", [None, "explicit"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_warm_starts_end_where_cold_ones_do(penalty, lower):
    X, y = made_up(32, n=50, d=3, m=4)
    design = Design(X, fit_lower=lower)
    options = {"penalty": penalty, "tol": 1e-3, "n_components": 200}
    path = list(regularization_path(design, y, n_alphas=3, alpha_min_ratio=0.2, **options))
    assert len(path) == 3
    assert path[0].n_components == 0
    alphas = np.array([state.alpha for state in path])
    assert (np.diff(alphas) < 0).all()
    assert alphas[0] == alpha_max(design, y, penalty=penalty)
    assert (np.diff([state.penalty for state in path]) >= 0).all()
    assert (np.diff([state.loss for state in path]) <= 0).all()
    for state in path:
        assert state.stop == "optimal"
        cold = run(design, y, alpha=state.alpha, **options)[-1]
        assert state.objective <= cold.objective * (1 + 1e-3)


@pytest.mark.parametrize("refit", ["full", "output"])
@pytest.mark.parametrize("lower", [None, "explicit"])
def test_a_walk_comes_near_the_optimum_of_every_alpha(refit, lower):
    X, y = made_up(32, n=80, d=4, m=3)
    rows = as_rows(Design(X, fit_lower=lower), y, loss="logistic")
    objective = Objective(Problem.of(rows.loss, "l1/l2", rows.m, alpha=1.0), rows)
    alphas = alpha_grid(largest_alpha(objective, 1e-6), 5, 0.1)
    states = list(walk(objective, alphas, Options(tol=0.01, refit=refit, finish=False)))
    last = {i: state for i, state in states}
    assert [i for i, _ in states] == sorted(i for i, _ in states)
    assert [state.stop for _, state in states if state.stop] == ["no progress"] * len(alphas)
    for i, state in last.items():
        assert state.stop
        assert state.objective == pytest.approx(objective.at(alphas[i]).value(state.model))
        best = run(rows, None, alpha=alphas[i], tol=1e-4)[-1].objective
        assert best * (1 - 1e-4) <= state.objective <= best * (1 + 0.02), (i, state.n_components)


def test_the_path_ends_when_the_basis_vectors_do():
    X, y = made_up(33)
    path = list(regularization_path(Design(X), y, alphas=[5.0, 0.5, 0.05], n_components=6))
    assert path[-1].n_components == 6
    assert len(path) < 3
    assert [state.n_components >= 6 for state in path] == [False] * (len(path) - 1) + [True]


def test_nothing_to_select():
    design, y = Design(np.zeros((5, 2))), np.array([0, 1, 0, 1, 1])
    assert alpha_max(design, y) == 0
    assert [s.n_components for s in regularization_path(design, y, n_alphas=2)] == [0, 0]


def test_grid():
    np.testing.assert_allclose(alpha_grid(8.0, 4, 0.125), [8, 4, 2, 1])
    assert alpha_grid(8.0, 1).tolist() == [8.0]
    for bad in ({"largest": 0.0}, {"n_alphas": 0}, {"alpha_min_ratio": 1.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            alpha_grid(**{"largest": 1.0, **bad})


@pytest.mark.parametrize("alphas", [[], [1.0, 2.0], [1.0, 1.0], [1.0, 0.0], [1.0, np.nan], [[1.0]]])
def test_bad_alphas(alphas):
    X, y = made_up(34)
    with pytest.raises(ValueError, match="alphas"):
        regularization_path(Design(X), y, alphas=alphas)


@pytest.mark.parametrize("name", ["alpha", "tau", "start"])
def test_a_path_sets_the_strength_itself(name):
    X, y = made_up(35)
    with pytest.raises(TypeError, match="unexpected keyword"):
        regularization_path(Design(X), y, **{name: 1.0})
