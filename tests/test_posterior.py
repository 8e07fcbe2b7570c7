"""The chain against closed forms, its mean against the average of the draws, and the estimator."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import scipy.sparse as sp
from killing_workers import hunted
from scipy.special import expit
from scipy.stats import chisquare
from sklearn.base import clone

from fastpoly import (
    Design,
    FactorizationMachineClassifier,
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    Joined,
    PathSearchCV,
    PolyModel,
    PolynomialNetworkRegressor,
    PosteriorAverage,
    write_shards,
)
from fastpoly.draws import composite_temper, effective_draws, factorize, split_rhat
from fastpoly.estimators.prediction import fitted_estimator
from fastpoly.objective import Objective
from fastpoly.posterior import Chain, field_labels, one_hot_fields
from fastpoly.priors import Prior, Side, occurrence_sides
from fastpoly.problem import Problem
from fastpoly.rows import CodedRows, as_rows
from fastpoly.rows.coded import Tables
from fastpoly.state import Model
from fastpoly.storage.npz import read_arrays, write_arrays


def ratings(rng, n=600, sizes=(12, 9), noise=0.5):
    """One-hot rows of two fields, and products of their levels plus noise."""
    codes = np.column_stack([rng.integers(size, size=n) for size in sizes])
    columns = (codes + np.array([0, sizes[0]])).ravel()
    X = sp.csr_array((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, sum(sizes)))
    a, b = (rng.standard_normal(size) for size in sizes)
    return X, a[codes[:, 0]] * b[codes[:, 1]] + noise * rng.standard_normal(n)


def objective_of(X, Y, loss="squared", activation="anova"):
    rows = as_rows(Design(X, activation, fit_lower="explicit", n_threads=1), Y, loss=loss)
    return Objective(Problem.of(rows.loss, "l1/l2", rows.m, alpha=1.0), rows)


def random_model(rng, k, d, m):
    H, V = rng.standard_normal((k, d)), rng.standard_normal((k, m))
    return Model(H, V, rng.standard_normal(m), rng.standard_normal((d, m)))


def linear_draws(X, y, T, precision, n_draws, share):
    """Draws of a model without basis vectors and with fixed priors, and their closed form."""
    objective = objective_of(X, y[:, None])
    fields = np.zeros(X.shape[1], dtype=np.intp)
    chain = Chain(objective, objective.empty_model(), fields, 0, T, share=share)
    chain.prior.Omega[0] = precision
    chain.prior.draw = lambda model, rng: None
    models = (chain.draw() for _ in range(n_draws))
    draws = np.array([np.r_[model.intercept, model.linear[:, 0]] for model in models])
    A = np.column_stack([np.ones(len(X)), X])
    P = T * A.T @ A + np.diag([0.0, *np.full(X.shape[1], precision)])
    return draws, np.linalg.solve(P, T * A.T @ y), np.linalg.inv(P)


def test_linear_posterior_is_gaussian():
    """Without basis vectors, and with fixed priors, mean and covariance have a closed form."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 + rng.standard_normal(60)
    draws, mean, covariance = linear_draws(X, y, 2.0, 3.0, 12000, 0.2)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.12 * deviation.max())
    scaled = np.cov(draws.T) / np.outer(deviation, deviation)
    np.testing.assert_allclose(scaled, covariance / np.outer(deviation, deviation), atol=0.15)


@pytest.mark.parametrize("share", [0.9, pytest.param(0.7, marks=pytest.mark.slow), 0.3])
def test_bias_of_the_step_falls_with_it(share):
    """The variance of the stiffest direction is 1 / (1 - share^2) times too large."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 2))
    y = X[:, 0] + rng.standard_normal(50)
    draws, _, covariance = linear_draws(X, y, 1.0, 1.0, 10000, share)
    scale = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))  # the metric
    values, directions = np.linalg.eigh(covariance / np.outer(scale, scale))
    found = ((draws / scale) @ directions[:, 0]).var() / values[0]
    assert found == pytest.approx(1 / (1 - share**2), rel=0.15)


def test_gradient_of_the_density():
    rng = np.random.default_rng(2)
    X, y = ratings(rng, 80)
    signs = np.where(y[:, None] <= [-0.5, 0.5], 1.0, -1.0)
    objective = objective_of(X, signs, "binary_logistic")
    d, fields = X.shape[1], np.repeat([0, 1], [12, 9])
    sides = {0: Side.of(sp.csr_array(rng.standard_normal((12, 3))), np.ones(3))}
    chain = Chain(objective, random_model(rng, 2, d, 2), fields, 0, 0.7, sides)
    prior = chain.prior
    prior.draw(objective.unpack(chain.x, 2), rng)
    np.testing.assert_array_equal(prior.H[:, 12:], prior.mu[:, [1] * 9])  # nothing is known
    assert prior.H[:, :12].std() > 0
    assert prior.linear[:12].any()
    assert not prior.linear[12:].any()

    def minus_log_density(x):
        model = objective.unpack(x, 2)
        spread = prior.lam[:, fields] * (model.H - prior.H) ** 2
        W = model.linear - prior.linear
        ridge = sum(
            np.einsum("jc,ce,je->", W[fields == f], prior.Omega[f], W[fields == f])
            for f in range(2)
        )
        return 0.7 * objective.loss(model) + 0.5 * spread.sum() + 0.5 * ridge

    g = chain._force(chain.x, chain.slope)
    free = np.r_[: 2 * d, 2 * d + 4 : len(g)]
    assert not g[2 * d : 2 * d + 4].any()
    for j in rng.choice(free, 25, replace=False):
        step = np.zeros_like(g)
        step[j] = 1e-5
        slope = (minus_log_density(chain.x + step) - minus_log_density(chain.x - step)) / 2e-5
        assert g[j] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_draws_of_priors():
    """mu and lam given entries h are normal-gamma; Omega is Wishart."""
    rng = np.random.default_rng(3)
    h, W = rng.standard_normal(8) + 1, rng.standard_normal((8, 2))
    model = Model(h[None], np.ones((1, 2)), np.zeros(2), W)
    prior = Prior(model, np.zeros(8, dtype=np.intp), {})
    draws = []
    for _ in range(8000):
        prior.draw(model, rng)
        draws.append([prior.mu[0, 0], prior.lam[0, 0], *prior.Omega[0].ravel()])
    mu, lam, *Omega = np.mean(draws, axis=0)
    assert mu == pytest.approx(h.sum() / 9, abs=0.02)
    assert lam == pytest.approx(9 / (1 + h @ h - h.sum() ** 2 / 9), rel=0.03)
    expected = 10 * np.linalg.inv(np.eye(2) + W.T @ W)  # degrees of freedom times scale
    np.testing.assert_allclose(np.reshape(Omega, (2, 2)), expected, rtol=0.05, atol=0.02)


def test_draws_of_priors_with_side_information():
    """Given vectors, the mean of the prior is a ridge regression on what is known of the levels."""
    rng = np.random.default_rng(4)
    n, p = 400, 3
    C, B = rng.standard_normal((n, p)), np.array([[2.0, -1.0], [0.0, 3.0], [-1.0, 0.5]])
    H = 0.7 + C @ B[:, 0] + 0.5 * rng.standard_normal(n)
    W = C @ B + rng.standard_normal((n, 2)) * [0.2, 2.0]
    model = Model(H[None], np.ones((1, 2)), np.zeros(2), W)
    prior = Prior(model, np.zeros(n, dtype=np.intp), {0: Side.of(sp.csr_array(C), np.ones(p))})
    kept = []
    for draw in range(3000):
        prior.draw(model, rng)
        if draw >= 100:
            kept.append(np.vstack([prior.H, prior.linear.T, np.full(n, prior.lam[0, 0])]))
    h, *W_mean, lam = np.mean(kept, axis=0)
    design = np.column_stack([np.ones(n), C])
    fitted = design @ np.linalg.lstsq(design, H, rcond=None)[0]
    np.testing.assert_allclose(h, fitted, atol=0.03)
    np.testing.assert_allclose(
        np.transpose(W_mean), C @ np.linalg.lstsq(C, W, rcond=None)[0], atol=0.15
    )
    assert lam[0] == pytest.approx(1 / np.var(H - fitted), rel=0.05)
    sure, unsure = np.linalg.inv(prior.Omega[0]).diagonal()
    assert sure == pytest.approx(0.04, rel=0.3)
    assert unsure == pytest.approx(4.0, rel=0.3)


def test_levels_are_known_by_those_they_occur_with():
    """Two groups of users who meet two groups of items: the first two singular values are equal."""
    rng = np.random.default_rng(19)
    codes = np.column_stack([rng.integers(60, size=3000), rng.integers(50, size=3000)])
    codes = codes[(codes[:, 0] < 30) == (codes[:, 1] < 20)]
    n = len(codes)
    columns, w = np.add(codes, [0, 60]).ravel(), rng.integers(3, size=n).astype(float)
    X = sp.csr_array((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, 110))
    design = Design(X, "anova", fit_lower="explicit")
    rows = as_rows(design, rng.standard_normal((n, 1)), loss="squared", sample_weight=w)
    fields, exclusive = field_labels(rows, None)
    sides = occurrence_sides(rows, fields, exclusive)
    A = (X.T @ (w[:, None] * X.toarray())) * (fields[:, None] != fields)
    root = 1 / np.sqrt(A.sum(axis=1))
    left, S, right = np.linalg.svd((root[:, None] * A * root)[:60, 60:])
    for f, U in enumerate([left, right.T]):
        side = sides[f]
        assert side.U.shape == (len(U), len(U) // 10)
        np.testing.assert_allclose(np.linalg.svd(U[:, :2].T @ side.U[:, :2])[1], 1.0)
        np.testing.assert_allclose((side.S**2).sum(), len(U))
        np.testing.assert_allclose(side.S / side.S[0], S[: len(side.S)], rtol=0.02)
    frame = CodedRows(rows, Tables([np.full(60, 2.0), np.ones(50)]))  # scaled levels
    again = occurrence_sides(frame, frame.fields, frame.exclusive)
    np.testing.assert_array_equal(again[1].U, sides[1].U)
    frame = CodedRows(rows, Tables([np.full(60, 2.0), np.eye(50)]))  # a column of numbers
    assert occurrence_sides(frame, frame.fields, frame.exclusive) == {}
    keys = Tables([sp.eye_array(60, 59), sp.eye_array(50)])  # as in shards, whose last key is none
    for lower in ("explicit", "augment"):
        joined = CodedRows(rows, keys, within=True, fit_lower=lower)
        again = occurrence_sides(joined, joined.fields, joined.exclusive)
        constant = int(lower == "augment")
        assert again[constant].U.shape == (59, 5)
        np.testing.assert_allclose(again[constant + 1].S, sides[1].S, rtol=0.02)


def test_two_sides_of_one_field():
    rng = np.random.default_rng(20)
    C, D = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    unit = rng.random(3) + 0.5
    side, more = Side.of(sp.csr_array(C * unit), unit), Side.of(sp.csr_array(D), np.ones(2))
    both, tau = side.joined(more), 0.7
    A, Z = np.hstack([C * unit, D]), rng.standard_normal((4, 30))
    np.testing.assert_allclose((both.U * both.S**2) @ both.U.T, A @ A.T, atol=1e-9)
    expected = Z @ A @ np.linalg.inv(A.T @ A + tau * np.eye(5))
    np.testing.assert_allclose(both.split(Z, tau), expected[:, :3] * unit, atol=1e-9)


def test_temper_of_levels():
    """v'Hv / v'Jv by the definition of the covariance, level by level."""
    O = np.array([[-2.0, 0.5, 1.0], [-0.3, -0.1, 2.0]])
    curvature = covariance = 0.0
    for o in O:
        below = np.append(expit(o), 1.0)
        p = np.diff(below, prepend=0.0)
        gradient = np.array([(np.arange(4)[:, None] <= np.arange(3))[y].sum() for y in range(4)])
        covariance += p @ gradient**2 - (p @ gradient) ** 2
        curvature += (below[:3] * (1 - below[:3])).sum()
    assert composite_temper(O) == pytest.approx(curvature / covariance)
    assert composite_temper(np.zeros((3, 1))) == pytest.approx(1.0)


@pytest.mark.parametrize("activation", ["anova", "squared"])
def test_mean_model_is_the_average(activation):
    """Draws that share few directions: the mean of their outputs is one small model, exactly."""
    rng = np.random.default_rng(4)
    X, y = ratings(rng, 300, (60, 50))
    if activation == "squared":
        X = rng.standard_normal((300, 6))
    objective = objective_of(X, np.column_stack([y, y]), activation=activation)
    d = X.shape[1]
    fields = np.repeat([0, 1], [60, 50]) if activation == "anova" else np.zeros(d, dtype=np.intp)
    H, V = rng.standard_normal((3, d)), rng.standard_normal((3, 2))
    exclusive = np.full(int(fields.max()) + 1, activation == "anova")
    chain, outputs = (
        Chain(objective, Model(H, V, np.zeros(2), np.zeros((d, 2))), fields, 0, 1.0),
        [],
    )
    design, V = Design(X, activation), chain.model.V
    for _ in range(20):
        draw = Model(
            H * rng.standard_normal((3, 1)), V, rng.standard_normal(2), rng.standard_normal((d, 2))
        )
        chain.x = objective.pack(draw)
        chain.keep()
        outputs.append(design.outputs(draw.H, draw.V) + draw.intercept + X @ draw.linear)
    model, missed = chain.mean(3, exclusive)
    assert missed < 1e-6
    np.testing.assert_allclose(np.linalg.norm(model.H, axis=1), 1.0)
    found = design.outputs(model.H, model.V) + model.intercept + X @ model.linear
    expected = np.mean(outputs, axis=0)
    assert np.abs(found - expected).max() < 2e-2 * np.abs(expected).max()
    assert chain.mean(1, exclusive)[1] > missed


def test_thinned_draws():
    rng = np.random.default_rng(5)
    X, y = ratings(rng)
    fields, two = np.repeat([0, 1], [12, 9]), np.ones(2, dtype=bool)
    objective, models = (
        objective_of(X, y[:, None]),
        [random_model(rng, 2, 21, 1) for _ in range(50)],
    )
    chain = Chain(objective, models[0], fields, 0, 1.0, memory=1000.0)
    for model in models:
        chain.x = objective.pack(model)
        chain.keep()
    assert len(chain.kept) < 10
    mean = chain.mean(2, two)[0]
    np.testing.assert_allclose(mean.linear, np.mean([m.linear for m in models], axis=0))


def test_factorize_recovers_masked_entries():
    rng = np.random.default_rng(6)
    H, V = rng.standard_normal((2, 8)), rng.standard_normal((2, 3))
    labels = np.repeat([0, 1], 4)
    mask = labels[:, None] != labels
    G = np.einsum("rc,ri,rj->cij", V, H, H)
    G[:, ~mask] = 100.0  # entries that do not count
    found, weights, missed = factorize(G, mask, H + 0.3 * rng.standard_normal(H.shape), V)
    again = np.einsum("rc,ri,rj->cij", weights, found, found)
    assert missed < 1e-8
    np.testing.assert_allclose(again[:, mask], G[:, mask], atol=1e-2)


def test_diagnostics():
    rng = np.random.default_rng(7)
    draws = rng.standard_normal((400, 20, 2))
    assert split_rhat(draws) == pytest.approx(1.0, abs=0.02)
    assert effective_draws(draws) > 200
    drift = draws + 0.02 * np.arange(400)[:, None, None]
    assert split_rhat(drift) > 1.5
    assert effective_draws(drift) < 40


def test_fields_of_one_hot_rows():
    rng = np.random.default_rng(8)
    X, y = ratings(rng)
    assert one_hot_fields(objective_of(X, y[:, None]).rows) == [12, 9]
    dense = rng.standard_normal((20, 3))
    assert one_hot_fields(objective_of(dense, y[:20, None]).rows) == [3]


def test_fields_whose_columns_meet():
    """Pairs of columns of one field count in the mean if rows have both, sparse or dense."""
    rng = np.random.default_rng(25)
    X = np.hstack([rng.standard_normal((900, 3)), np.eye(40)[rng.integers(40, size=900)]])
    y = 2 * X[:, 1] * X[:, 2] + (X[:, 3:] @ rng.standard_normal(40)) * X[:, 0]
    machine = FactorizationMachineRegressor(random_state=0)
    average = PosteriorAverage(machine, fields=[1, 22, 20], n_samples=40, random_state=0)
    for rows in (X, sp.csr_array(X)):
        labels, exclusive = field_labels(objective_of(rows, y[:, None]).rows, [3, 40])
        np.testing.assert_array_equal(exclusive, [False, True])
        np.testing.assert_array_equal(labels, np.repeat([0, 1], [3, 40]))
        assert average.fit(rows[:600], y[:600]).score(rows[600:], y[600:]) > 0.9
        assert average.missed_ < 0.01


def test_average_is_better_and_honest():
    """Few ratings per level: the average beats the single model, and intervals cover."""
    rng = np.random.default_rng(9)
    X, y = ratings(rng, 3000, (120, 90), noise=1.0)
    X, y, X_test, y_test = X[:1500], y[:1500], X[1500:], y[1500:]
    machine = FactorizationMachineRegressor(alpha=3.0, n_components=6, random_state=0)
    model = PosteriorAverage(machine, n_samples=150, random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > machine.fit(X, y).score(X_test, y_test)
    assert model.model_.n_components <= 6
    draws = model.sample(X_test, 100)
    assert np.sqrt(np.mean((draws.mean(axis=0) - model.predict(X_test)) ** 2)) < 0.1
    low, high = model.predict_interval(X_test, 0.8).T
    assert 0.75 <= np.mean((low <= y_test) & (y_test <= high)) <= 0.87
    mean, std = model.predict(X_test, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X_test))
    order = np.argsort(std)
    error = np.abs(y_test - mean)
    assert error[order[-300:]].mean() > error[order[:300]].mean()


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_levels_and_classes():
    rng = np.random.default_rng(10)
    X, y = ratings(rng, 800)
    stars = np.digitize(y, [-1, 0, 1]) + 1
    machine = FactorizationMachineOrdinalRegressor(alpha=1.0, n_components=4, random_state=0)
    model = PosteriorAverage(machine, n_samples=20, n_warmup=5, random_state=0).fit(X, stars)
    assert 0.4 < model.temper_ < 1
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert set(np.unique(model.predict_interval(X))) <= {1, 2, 3, 4}
    assert model.top_interactions(1, 2)
    machine = FactorizationMachineClassifier(alpha=1.0, n_components=4, random_state=0)
    model = PosteriorAverage(machine, n_samples=20, n_warmup=5, random_state=0).fit(X, stars)
    assert model.score(X, stars) > 0.5
    with pytest.raises(ValueError, match="predict_proba"):
        model.predict(X, return_std=True)


def average_of(shards, **changes):
    options = {"n_samples": 6, "n_warmup": 2, "random_state": 1} | changes
    machine = FactorizationMachineRegressor(alpha=2.0, n_components=3, random_state=0)
    return PosteriorAverage(machine, **options).fit(shards)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_same_bits_from_all_engines(tmp_path):
    """Threads, processes and a cluster; the fields are found in the shards."""
    rng = np.random.default_rng(11)
    X, y = ratings(rng, 400)
    shards = write_shards(tmp_path / "rows", [(X, y)], rows_per_shard=100)
    expected = average_of(shards)
    assert expected.model_ == average_of(shards, fields=[12, 9]).model_
    assert expected.model_ != average_of(shards, fields=[21]).model_
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        found = average_of(shards.on(executor))
    assert found.model_ == expected.model_
    np.testing.assert_array_equal(found.sample(shards, 3), expected.sample(shards, 3))
    distributed = pytest.importorskip("distributed")
    on_cluster = pytest.importorskip("fastpoly.dask").on_cluster
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert average_of(on_cluster(shards, client)).model_ == expected.model_


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_killed_workers_change_no_bit(tmp_path):
    """kill -9 of the workers of a cluster while a chain runs."""
    pytest.importorskip("fastpoly.dask")
    X, y = ratings(np.random.default_rng(21), 400)
    shards = write_shards(tmp_path / "rows", [(X, y)], rows_per_shard=100)

    def draws(shards):
        return average_of(shards, n_samples=20).sample(X, 3).tobytes()

    hits, right = hunted(shards, draws(shards), seed=0, fit=draws)
    assert hits
    assert right


@pytest.mark.filterwarnings("ignore:the chain has not mixed", "ignore:interrupted")
@pytest.mark.parametrize("machine", [FactorizationMachineRegressor, PolynomialNetworkRegressor])
def test_cut_chain_goes_on_bit_for_bit(tmp_path, monkeypatch, machine):
    rng = np.random.default_rng(15)
    X, y = ratings(rng, 300)
    path = tmp_path / "chain.npz"

    def fit(**changes):
        options = {"n_samples": 12, "n_warmup": 2, "memory": 3000.0} | changes
        estimator = machine(alpha=2.0, n_components=3, random_state=0, fit_lower="explicit")
        return PosteriorAverage(estimator, random_state=1, **options).fit(X, y)

    uncut, whole, count = fit(), Prior._draw_basis, []

    def stopped(*args):  # in the middle of a draw
        whole(*args)
        count.append(1)
        if len(count) == 16:
            raise KeyboardInterrupt

    monkeypatch.setattr(Prior, "_draw_basis", stopped)
    with pytest.warns(UserWarning, match="the mean is that of [2-9] draws"):
        cut = fit(checkpoint=path)
    monkeypatch.setattr(Prior, "_draw_basis", whole)
    assert cut.model_ != uncut.model_
    resumed = fit(checkpoint=path)
    assert resumed.model_ == uncut.model_
    assert (resumed.rhat_, resumed.n_draws_) == (uncut.rhat_, uncut.n_draws_)
    np.testing.assert_array_equal(resumed.sample(X, 2), uncut.sample(X, 2))
    assert fit(checkpoint=path, n_samples=14).model_ == fit(n_samples=14).model_
    assert (tmp_path / "chain.npz.fit").exists()
    with pytest.raises(ValueError, match="another fit"):
        fit(checkpoint=path, n_warmup=3)
    arrays = read_arrays(path)
    write_arrays(path, arrays | {"x": arrays["x"][1:]})
    with pytest.raises(ValueError, match="x must have shape.*delete the file"):
        fit(checkpoint=path)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_average_is_an_ordinary_model(tmp_path):
    """Saving, interactions, contributions, plots and searches, as for any estimator."""
    rng = np.random.default_rng(16)
    X, y = ratings(rng, 300)
    machine = FactorizationMachineRegressor(n_components=3, random_state=0)
    search = PathSearchCV(machine, n_alphas=3, cv=0.25)
    model = PosteriorAverage(search, n_samples=5, n_warmup=2, random_state=0).fit(X, y)
    model.model_.save(tmp_path / "model.npz")
    loaded = PolyModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    C = model.interaction_matrix()
    np.testing.assert_array_equal(C, loaded.interaction_matrix(0))
    i, j, coefficient = model.top_interactions(k=1, standardized=False)[0]
    assert coefficient == pytest.approx(2 * C[i, j])
    assert model.score(X, y) > 0.3
    found = model.contributions(X[:2])
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict(X[:2]))
    assert model.n_features_in_ == 21
    assert not hasattr(model, "predict_proba")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert not hasattr(clone(model), "estimator_")
    assert fitted_estimator(model)[0].model_ is model.model_  # as plots see it


def test_side_information_of_keys(tmp_path):
    """What is known of users helps, most where there are few ratings; the model reads columns."""
    rng = np.random.default_rng(6)
    n_users, n_items, n = 150, 40, 1500
    group = rng.integers(4, size=n_users)
    tastes, items = 1.5 * rng.standard_normal((4, 2)), rng.standard_normal((n_items, 2))
    users = {"user": np.arange(n_users), "group": np.array(list("abcd"))[group]}
    kinds = {"item": np.arange(n_items), "tags": [["x"] * (j % 2) + ["y"] for j in range(n_items)]}
    user = rng.integers(n_users - 30, size=n)  # the last users have no ratings
    item = rng.integers(n_items, size=n)
    y = (tastes[group[user]] * items[item]).sum(axis=1) + 0.3 * rng.standard_normal(n)
    X = Joined({"user": user, "item": item}, user=users, item=kinds)
    machine = FactorizationMachineRegressor(random_state=0)
    average = PosteriorAverage(machine, n_samples=60, random_state=0).fit(X, y)
    new = np.repeat(np.arange(n_users - 30, n_users), n_items), np.tile(np.arange(n_items), 30)
    rows = X.with_rows({"user": new[0], "item": new[1]})
    truth = (tastes[group[new[0]]] * items[new[1]]).sum(axis=1)
    assert np.corrcoef(average.predict(rows), truth)[0, 1] > 0.99
    ids = PosteriorAverage(machine, n_samples=60, random_state=0).fit(X.codes, y)
    assert np.corrcoef(ids.predict(rows.codes), truth)[0, 1] < 0.9  # items alone
    np.testing.assert_allclose(average.predict(rows), average.predict(rows.plain()), atol=1e-9)
    mean, std = average.predict(rows, return_std=True)
    assert mean.shape == std.shape == (1200,)
    # Ratings say more of a user than the group.
    odd = X.with_rows({"user": [n_users - 1] * 20, "item": np.arange(20)})
    far = average.predict(odd) + 3.0 * np.where(items[:20, 0] > 0, 1.0, -1.0)
    folded = average.fold_in(odd, far)
    rest = X.with_rows({"user": [n_users - 1] * 20, "item": np.arange(20, 40)})
    moved = folded.predict(rest) - average.predict(rest)
    assert np.corrcoef(moved, np.where(items[20:, 0] > 0, 1.0, -1.0))[0, 1] > 0.5
    # A stranger of a known group, by the columns of the group alone.
    at = [X.feature_names.index(f"user.group={name}") for name in "abcd"]
    stranger = rows.plain().tolil()
    stranger[:, :n_users] = 0
    assert np.corrcoef(average.predict(stranger.tocsr()), truth)[0, 1] > 0.98
    assert np.abs(average.components_[:, at]).max() > 0.05
    average.model_.save(tmp_path / "mean.npz")
    loaded = PolyModel.load(tmp_path / "mean.npz")
    np.testing.assert_allclose(loaded.predict(rows.plain()), average.predict(rows), atol=1e-9)


@pytest.mark.parametrize("activation", ["anova", "squared"])
def test_models_over_keys_and_over_columns(activation):
    rng = np.random.default_rng(7)
    users = {"user": np.arange(5), "age": rng.random(5), "tags": [["x", "y"], ["x"], [], ["y"], []]}
    keys = {"user": rng.integers(5, size=20), "item": rng.integers(4, size=20)}
    X = Joined(keys, user=users, item=None)
    model = random_model(rng, 3, 9, 2)
    found = X.over_columns(
        model, activation, lambda e, Z: rng.standard_normal((len(Z), X.shape[1] - 9))
    )
    outputs = [
        Design(rows, activation).outputs(each.H, each.V) + rows @ each.linear + each.intercept
        for rows, each in ((X.codes, model), (X.plain(), found))
    ]
    np.testing.assert_allclose(*outputs, atol=1e-12)


def test_bad_input():
    rng = np.random.default_rng(12)
    X, y = ratings(rng, 100)
    machine = FactorizationMachineRegressor(alpha=1.0, random_state=0)
    with pytest.raises(ValueError, match="n_samples must be at least 2"):
        PosteriorAverage(machine, n_samples=1).fit(X, y)
    with pytest.raises(ValueError, match="not tau"):
        PosteriorAverage(FactorizationMachineRegressor(tau=1.0)).fit(X, y)
    with pytest.raises(TypeError, match="one of the six"):
        PosteriorAverage(object()).fit(X, y)
    with pytest.raises(ValueError, match="likelihood"):
        PosteriorAverage(FactorizationMachineRegressor(loss="huber", alpha=1.0)).fit(X, y)
    with pytest.raises(ValueError, match="fields must add up to the 21"):
        PosteriorAverage(machine, fields=[3, 4]).fit(X, y)
    with pytest.raises(ValueError, match="no basis vectors"):
        PosteriorAverage(FactorizationMachineRegressor(alpha=1e6)).fit(X, y)
    with pytest.raises(ValueError, match="memory must hold two draws, 3.5e\\+03"):
        PosteriorAverage(machine, memory=1000.0).fit(X, y)
    fitted = FactorizationMachineRegressor(alpha=1.0, n_components=2, random_state=0).fit(X, y)
    assert not hasattr(PosteriorAverage(fitted), "model_")  # which is not that of the estimator
    with pytest.raises(ValueError, match="n must be at most"):
        PosteriorAverage(machine, n_samples=3, n_warmup=0, random_state=0).fit(X, y).sample(X, 9)


def test_complaints(monkeypatch):
    """A chain that has not mixed, a mean that is not small, and a chain that never moves."""
    rng = np.random.default_rng(22)
    X, y = ratings(rng, 300)
    y += ratings(rng, 300)[1]
    machine = FactorizationMachineRegressor(alpha=1.0, n_components=4, random_state=0)
    with pytest.warns(UserWarning, match="of 1 basis vectors misses .*raise n_components"):
        PosteriorAverage(machine, n_samples=20, n_components=1, random_state=0).fit(X, y)
    monkeypatch.setitem(Chain.__init__.__kwdefaults__, "share", 0.01)  # far too short steps
    with pytest.warns(UserWarning, match="not mixed: R-hat is .*raise n_samples or n_warmup"):
        PosteriorAverage(machine, n_samples=20, n_warmup=0, random_state=0).fit(X, y)
    monkeypatch.setattr(Chain, "_move", lambda chain: False)
    with pytest.raises(ValueError, match="diverges with every step; fit with a larger alpha"):
        PosteriorAverage(machine, random_state=0).fit(X, y)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
@pytest.mark.parametrize("fit_lower", ["augment", None])
def test_tables_beside_a_constant_column(fit_lower):
    rng = np.random.default_rng(23)
    user, item = rng.integers(30, size=400), rng.integers(12, size=400)
    age = rng.standard_normal(30)
    y = age[user] * rng.standard_normal(12)[item]
    tables = {"user": {"user": np.arange(30), "age": age}, "item": None}
    X = Joined({"user": user, "item": item}, **tables)
    machine = FactorizationMachineRegressor(alpha=0.5, random_state=0, fit_lower=fit_lower)
    average = PosteriorAverage(machine, n_samples=20, n_warmup=10, random_state=0).fit(X, y)
    assert average.score(X, y) > 0.9
    np.testing.assert_allclose(average.predict(X), average.predict(X.plain()), atol=1e-9)


def test_frames_of_ids_have_the_average_of_one_hot_rows():
    """Levels of a frame are held back by their frequency in a fit, but not by the prior as well."""
    rng = np.random.default_rng(24)
    X, y = ratings(rng, 4000, (200, 100), noise=0.7)
    codes = X.indices.reshape(-1, 2)
    frame = {name: codes[:, j].astype(str) for j, name in enumerate(["user", "item"])}
    some = {name: column[:2000] for name, column in frame.items()}
    machine = FactorizationMachineRegressor(random_state=0, n_components=8)
    average = PosteriorAverage(machine, n_samples=60, random_state=0)
    expected = average.fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])
    rest = {name: column[2000:] for name, column in frame.items()}
    assert average.fit(some, y[:2000]).score(rest, y[2000:]) > expected - 0.02
    assert expected > machine.fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])


def test_a_failed_fit_keeps_the_earlier_average(monkeypatch):
    rng = np.random.default_rng(25)
    X, y = ratings(rng, 100)
    machine = FactorizationMachineRegressor(alpha=1.0, n_components=2, random_state=0)
    average = PosteriorAverage(machine, n_samples=4, n_warmup=1, random_state=0).fit(X, y)
    before = dict(vars(average))
    monkeypatch.setattr("fastpoly.estimators.posterior.effective_draws", lambda outputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        average.fit(X, -y)
    assert vars(average) == before


def test_networks():
    rng = np.random.default_rng(13)
    X = rng.standard_normal((200, 4))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(200)
    machine = PolynomialNetworkRegressor(alpha=0.1, n_components=4, random_state=0)
    model = PosteriorAverage(machine, n_samples=100, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95


def gibbs(codes, y, sizes, n_sweeps, rng):
    """Hyperparameters of a machine of one basis vector with V = 1, by conjugate draws alone.

    o = b + sum_f w_f[code] + h_0[code] h_1[code'] is linear in the entries of each field.
    """
    h, w = [rng.standard_normal(s) for s in sizes], [np.zeros(s) for s in sizes]
    b, T, found = 0.0, 1.0, []
    mu, lam, omega = np.zeros(2), np.ones(2), np.ones(2)
    for _ in range(n_sweeps):
        for f, size in enumerate(sizes):
            own, other = codes[:, f], h[1 - f][codes[:, 1 - f]]
            rest = b + w[1 - f][codes[:, 1 - f]]
            for values, slope, center, strength in (
                (h[f], other, mu[f], lam[f]), (w[f], np.ones(len(y)), 0.0, omega[f]),
            ):  # fmt: skip
                residual = y - rest - (w[f][own] if values is h[f] else h[f][own] * other)
                precision = strength + T * np.bincount(own, slope**2, size)
                mean = strength * center + T * np.bincount(own, slope * residual, size)
                values[:] = mean / precision + rng.standard_normal(size) / np.sqrt(precision)
            # mu ~ N(0, 1 / lam) and lam, omega ~ chi^2 with one degree of freedom
            spread = ((h[f] - mu[f]) ** 2).sum() + mu[f] ** 2
            lam[f] = rng.gamma(0.5 * (2 + size)) / (0.5 * (1 + spread))
            mu[f] = h[f].sum() / (size + 1) + rng.standard_normal() / np.sqrt(lam[f] * (size + 1))
            omega[f] = rng.gamma(0.5 * (1 + size)) / (0.5 * (1 + (w[f] ** 2).sum()))
        o = sum(w[f][codes[:, f]] for f in range(2)) + h[0][codes[:, 0]] * h[1][codes[:, 1]]
        b = (y - o).mean() + rng.standard_normal() / np.sqrt(T * len(y))
        T = rng.gamma(0.5 * (1 + len(y))) / (0.5 * (1 + ((y - o - b) ** 2).sum()))
        found.append(np.log([T, lam[0] * lam[1], *omega]))
    return np.array(found)


@pytest.mark.slow  # the whole chain; the tests around it have its parts
def test_hyperparameters_against_gibbs():
    """Means and deviations of log T, log lam_0 lam_1 (the scales of h_0, h_1 drift), log Omega."""
    rng, sizes = np.random.default_rng(17), (6, 5)
    X, y = ratings(rng, 80, sizes)
    y += 0.7 * rng.standard_normal(11)[X.indices[::2]]
    codes = X.indices.reshape(-1, 2) - [0, sizes[0]]
    expected = gibbs(codes, y, sizes, 12000, rng)[1000:]
    objective = objective_of(X, y[:, None])
    start = Model(rng.standard_normal((1, 11)), np.ones((1, 1)), np.zeros(1), np.zeros((11, 1)))
    chain = Chain(objective, start, np.repeat([0, 1], sizes), 0, None, share=0.3)
    found = []
    for _ in range(12000):
        chain.draw()
        lam, Omega = chain.prior.lam[0], chain.prior.Omega[:, 0, 0]
        found.append(np.log([chain.temper, lam[0] * lam[1], *Omega]))
    found = np.array(found)[1000:]
    deviation = expected.std(axis=0)
    assert (np.abs(found.mean(axis=0) - expected.mean(axis=0)) < 0.25 * deviation).all()
    np.testing.assert_allclose(found.std(axis=0), deviation, rtol=0.2)


def test_simulation_based_calibration():
    """Truths from the prior have uniform ranks among the draws of their posterior."""
    rng, sizes, n_ranks = np.random.default_rng(18), (4, 3), 10
    fields, ranks = np.repeat([0, 1], sizes), []
    for _ in range(80):
        X, _ = ratings(rng, 30, sizes)
        H, W, T = rng.normal(0.5, 1, (1, 7)), 0.7 * rng.standard_normal((7, 1)), 2.0
        truth = Model(H, np.ones((1, 1)), np.zeros(1), W)
        o = Design(X, "anova").outputs(H, truth.V) + X @ W
        objective = objective_of(X, o + rng.standard_normal(o.shape) / np.sqrt(T))
        chain = Chain(objective, truth, fields, int(rng.integers(2**31)), T, share=0.3)
        chain.prior.H[:], chain.prior.lam[:], chain.prior.Omega[:] = 0.5, 1.0, 1 / 0.49
        chain.prior.draw = lambda model, rng: None
        models = [chain.draw() for _ in range(15 * n_ranks)][15::15]
        values = [
            (h[0] * h[4], ((h - 0.5) ** 2).sum(), model.linear[0, 0], objective.loss(model))
            for model in (truth, *models)
            for h in model.H
        ]
        ranks.append((np.array(values[1:]) < values[0]).sum(axis=0))
    for column in np.array(ranks).T:
        assert chisquare(np.bincount(column, minlength=n_ranks)).pvalue > 0.01
