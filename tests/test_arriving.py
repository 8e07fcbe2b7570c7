"""Vectors of new levels against an unrelated solver, and rows that arrive."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from fastpoly import (
    FactorizationMachineClassifier,
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    PolynomialNetworkRegressor,
    PosteriorAverage,
)
from fastpoly.kernels.losses import get_loss

SIZES = 15, 12


def one_hot(users, items, width=None):
    n = len(users)
    columns = np.column_stack([items, SIZES[1] + users]).ravel()
    shape = n, width or sum(SIZES)
    return sp.csr_array((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=shape)


def made_up(rng, n=700):
    """Users, items and products of tastes; user 15 comes after the fit."""
    taste, style = rng.standard_normal((SIZES[0] + 1, 2)), rng.standard_normal((SIZES[1], 2))
    users, items = rng.integers(SIZES[0], size=n), rng.integers(SIZES[1], size=n)

    def targets(users, items):
        exact = (taste[users] * style[items]).sum(axis=1)
        return exact + 0.2 * rng.standard_normal(len(users))

    return users, items, targets


KINDS = {
    "squared": (FactorizationMachineRegressor, lambda y: y),
    "two columns": (FactorizationMachineRegressor, lambda y: np.column_stack([y, 1 - y**2])),
    "levels": (FactorizationMachineOrdinalRegressor, lambda y: np.digitize(y, [-1, 0, 1]) + 1),
    "classes": (FactorizationMachineClassifier, lambda y: np.digitize(y, [-0.7, 0.7])),
    "labels": (FactorizationMachineClassifier, lambda y: np.column_stack([y > 0, y > 1]) * 1),
}


@pytest.mark.parametrize("penalty", ["l1/l2", "l1", "l1/linf"])
@pytest.mark.parametrize("kind", KINDS)
def test_new_user_by_an_unrelated_solver(kind, penalty):
    """The vector minimizes the objective of the fit, written out, in all that a user has."""
    rng = np.random.default_rng(0)
    users, items, targets = made_up(rng)
    cls, form = KINDS[kind]
    machine = cls(alpha=1.0, alpha_linear=2.0, penalty=penalty, n_components=4, random_state=0)
    model = machine.fit(one_hot(users, items), form(targets(users, items)))
    new, rated = np.full(8, 15), np.arange(8)
    X = one_hot(new, rated, sum(SIZES) + 1)
    y = form(targets(new, rated))
    if kind == "classes":
        y = np.array([0, 1, 2, 1, 1, 0, 2, 1])
    found = model.fold_in(X, y)
    assert model.n_features_in_ == sum(SIZES)
    rows = model._rows_for(one_hot(np.zeros(8, dtype=int), rated), y, None, model._scaling)
    fitted = model._scaling.unfold(model.model_.parameters(), "anova")
    k, m = fitted.V.shape
    Z, base = fitted.H[:, rated].T, fitted.intercept + fitted.linear[rated]
    loss, Y = get_loss(rows.loss), rows.block.targets.by_row()
    norms = {"l1/l2": np.linalg.norm(fitted.V, axis=1), "l1": np.abs(fitted.V).sum(axis=1),
             "l1/linf": np.abs(fitted.V).max(axis=1)}[penalty]  # fmt: skip

    def objective(t):
        O = base + t[k:] + (Z * t[:k]) @ fitted.V
        return loss.value(Y, O) + norms @ t[:k] ** 2 + t[k:] @ t[k:]

    expected = minimize(objective, np.zeros(k + m), method="BFGS", options={"gtol": 1e-9}).x
    after = found._scaling.unfold(found.model_.parameters(), "anova")
    scale = np.linalg.norm(np.hstack([fitted.H, expected[:k, None]]), axis=1)
    tolerance = {"atol": 2e-5 * np.abs(expected).max(), "rtol": 2e-4}
    np.testing.assert_allclose(after.H[:, -1] * scale, expected[:k], **tolerance)
    np.testing.assert_allclose(after.linear[-1], expected[k:], **tolerance)
    known = one_hot(users, items)
    wider = one_hot(users, items, sum(SIZES) + 1)
    decision = model.model_.decision(known)
    np.testing.assert_allclose(found.model_.decision(wider), decision, atol=1e-12)


@pytest.mark.parametrize("fit_lower", ["augment", None, "explicit"])
def test_unseen_column(fit_lower):
    """A level that has a column, but no rows in the fit; scaled columns; weights."""
    rng = np.random.default_rng(1)
    users, items, targets = made_up(rng)
    y = targets(users, items)
    X = one_hot(users, items, sum(SIZES) + 2)
    X.data *= 3.0
    machine = FactorizationMachineRegressor(
        alpha=0.5, n_components=4, random_state=0, fit_lower=fit_lower, alpha_linear=0.1
    )
    model = machine.fit(X, y)
    new, rated = np.full(24, 16), np.arange(24) % 12
    Z = one_hot(new, rated, sum(SIZES) + 2)
    Z.data *= 3.0
    wanted = targets(new - 1, rated)
    weight = (np.arange(24) < 12).astype(float)
    folded = model.fold_in(Z, wanted, weight)
    short = model.fold_in(Z[:12], wanted[:12])
    np.testing.assert_allclose(folded.predict(Z), short.predict(Z), rtol=1e-6)
    error = np.mean((folded.predict(Z) - wanted) ** 2)
    assert error < 0.3 * np.mean((model.predict(Z) - wanted) ** 2)
    np.testing.assert_allclose(folded.predict(X), model.predict(X), atol=1e-12)


def test_rows_that_arrive():
    """With new users; nearly as good as a fit on all rows, and better than before them."""
    rng = np.random.default_rng(2)
    users, items, targets = made_up(rng, 600)
    y = targets(users, items)
    old, late = users < 12, users >= 12
    narrow = sp.csr_array(one_hot(users, items)[:, : SIZES[1] + 12])
    machine = FactorizationMachineRegressor(alpha=0.5, n_components=4, random_state=0)
    model = machine.partial_fit(narrow[old][:200], y[old][:200])
    X_test = one_hot(*(np.repeat(np.arange(15), 12), np.tile(np.arange(12), 15)))
    wanted = targets(np.repeat(np.arange(15), 12), np.tile(np.arange(12), 15))
    first = model.score(X_test[:144, : SIZES[1] + 12], wanted[:144])
    model.partial_fit(narrow[old][200:], y[old][200:])
    second = model.score(X_test[:144, : SIZES[1] + 12], wanted[:144])
    assert second > first
    model.partial_fit(one_hot(users, items)[late], y[late])
    whole = FactorizationMachineRegressor(alpha=0.5, n_components=4, random_state=0)
    best = whole.fit(one_hot(users, items), y).score(X_test, wanted)
    assert model.score(X_test, wanted) > best - 0.05
    assert list(model.staged_predict(X_test))[-1].shape == (180,)


def test_networks_go_on():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(400)
    model = PolynomialNetworkRegressor(alpha=0.1, random_state=0).partial_fit(X[:30], y[:30])
    before = model.score(X, y)
    for rows in np.split(np.arange(30, 400), 10):
        model.partial_fit(X[rows], y[rows])
    assert model.score(X, y) > before


def test_bad_input():
    rng = np.random.default_rng(4)
    users, items, targets = made_up(rng)
    X, y = one_hot(users, items), targets(users, items)
    model = FactorizationMachineRegressor(alpha=1.0, n_components=3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="needs sparse or joined X"):
        model.fold_in(X.toarray(), y)
    with pytest.raises(ValueError, match="cannot have fewer"):
        model.fold_in(X[:, :20], y)
    both = sp.csr_array(np.eye(1, 29, 27) + np.eye(1, 29, 28))
    with pytest.warns(UserWarning, match=r"the new levels \[27, 28\] have no vectors"):
        assert not model.fold_in(both, [1.0]).components_[:, 27:].any()
    classes = FactorizationMachineClassifier(alpha=1.0)
    with pytest.raises(ValueError, match="must have all classes"):
        classes.partial_fit(X, np.digitize(y, [0]), classes=[0, 1, 2])
    with pytest.raises(ValueError, match="and no other"):
        classes.partial_fit(X, np.digitize(y, [0]), classes=[1])
    network = PolynomialNetworkRegressor(alpha=1.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="factorization machines"):
        network.fold_in(X, y)
    levels = FactorizationMachineOrdinalRegressor(alpha=1.0, n_components=2, random_state=0)
    levels.fit(X, np.digitize(y, [0]))
    with pytest.raises(ValueError, match=r"y has \[7\], which the fit did not have"):
        levels.fold_in(one_hot(np.array([15]), np.array([0]), 28), [7])


NEW = one_hot(np.full(6, 15), np.arange(6), 28)


def changed(**parts):
    """NEW with entries of its arrays replaced after it was made."""
    X = NEW.copy()
    for name, value in parts.items():
        getattr(X, name)[3] = value
    return X


@pytest.mark.parametrize(
    ("X", "y", "w", "message"),
    [
        (NEW, np.ones(5), None, "inconsistent numbers"),
        (NEW, np.ones(7), None, "inconsistent numbers"),
        (NEW, np.ones(6), np.ones(7), "inconsistent numbers"),
        (changed(indices=-5), np.ones(6), None, "X.indices must lie in 0..27"),
        (changed(indices=10**6), np.ones(6), None, "X.indices must lie in 0..27"),
        (changed(data=np.nan), np.ones(6), None, "X contains NaN"),
        (changed(data=1e300), np.ones(6), None, "X has entries of size 1.0e[+]300"),
        (NEW, np.full(6, 1e300), None, "y is too large beside the targets of the fit"),
    ],
)
def test_rows_that_are_refused(X, y, w, message):
    users, items, targets = made_up(np.random.default_rng(4), 300)
    model = FactorizationMachineRegressor(alpha=1.0, n_components=2, random_state=0)
    model.fit(one_hot(users, items), targets(users, items))
    for method in (model.fold_in, model.partial_fit):
        with pytest.raises(ValueError, match=message):
            method(X, y, w)


@pytest.mark.parametrize("cls", [FactorizationMachineRegressor, PolynomialNetworkRegressor])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_sparse_and_dense_rows_that_arrive_are_the_same(cls, form):
    X = np.random.default_rng(5).standard_normal((60, 4)) + 1
    y = X[:, 0] * X[:, 1]
    dense, sparse = (
        cls(alpha=0.5, random_state=0).fit(form(X[:40]), y[:40]).partial_fit(rows, y[40:])
        for rows in (X[40:], sp.csr_array(X[40:]))
    )
    np.testing.assert_allclose(dense.predict(X), sparse.predict(X), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_prior_of_the_field():
    """After a posterior fit, the vector is the mode under the normal prior of the users."""
    rng = np.random.default_rng(5)
    users, items, targets = made_up(rng)
    machine = FactorizationMachineRegressor(alpha=1.0, n_components=3, random_state=0)
    average = PosteriorAverage(machine, n_samples=20, n_warmup=5, random_state=0)
    average.fit(one_hot(users, items), targets(users, items))
    new, rated = np.full(6, 15), np.arange(6)
    y = targets(new, rated)
    X = one_hot(new, rated, sum(SIZES) + 1)
    found = average.fold_in(X, y)
    scaling = average.estimator_._scaling
    model = scaling.unfold(average.model_.parameters(), "anova")
    A = np.hstack([model.H[:, SIZES[1] :].T, model.linear[SIZES[1] :]])
    mean, precision = A.mean(axis=0), np.linalg.inv(np.cov(A.T) + 1e-3 * np.diag(A.var(axis=0)))
    J = np.hstack([model.H[:, rated].T * model.V[:, 0], np.ones((6, 1))])
    rest = scaling.targets(y[:, None])[:, 0] - model.intercept[0] - model.linear[rated, 0]
    T = average.temper_
    t = np.linalg.solve(T * J.T @ J + precision, T * J.T @ rest + precision @ mean)
    expected = (J @ t + model.intercept[0] + model.linear[rated, 0]) * scaling.target_unit[0]
    np.testing.assert_allclose(found.predict(X), expected + scaling.target_center[0], rtol=1e-6)
    rest = targets(new, rated + 6)
    unseen = one_hot(new, rated + 6, sum(SIZES) + 1)
    before = np.mean((found.predict(unseen) - rest) ** 2)  # the mean goes on with rows, too
    assert np.mean((found.partial_fit(unseen, rest).predict(unseen) - rest) ** 2) < 0.8 * before
    with pytest.raises(ValueError, match="field of the new levels is not clear"):
        average.fold_in(sp.csr_array(np.eye(1, 28, 27)), y[:1])
