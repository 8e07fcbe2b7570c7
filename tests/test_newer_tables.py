"""Keys that come after the fit: by the columns of their tables, then by vectors of their own."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import fastpoly
from fastpoly import FactorizationMachineRegressor, Joined, PosteriorAverage
from fastpoly.kernels.losses import get_loss

EXACT = {"rtol": 1e-9, "atol": 1e-10}


def tables():
    """Joined rows, targets, and tables of 12 users and 9 items."""
    rng = np.random.default_rng(0)
    users = {
        "user": [f"u{i:02}" for i in range(12)], "age": rng.integers(18, 70, size=12) * 1.0,
        "seen": [list(rng.choice(list("abc"), size=1 + i % 2, replace=False)) for i in range(12)],
    }  # fmt: skip
    items = {"item": np.arange(9) * 10, "kind": np.array(list("xyz"))[np.arange(9) % 3]}
    rows = {
        "user": rng.choice(users["user"], size=300), "item": rng.choice(items["item"], size=300),
        "day": rng.choice(["mon", "tue"], size=300),
    }  # fmt: skip
    X = Joined(rows, user=users, item=items, day=None)
    P, truth = X.plain(), rng.standard_normal((2, X.shape[1]))
    y = (P @ truth[0]) * (P @ truth[1]) / 5 + 0.3 * rng.standard_normal(300)
    return X, y, users, items, rows


def newer(users):
    """The table in another order, without one user, and with two whose columns are those of u03."""
    order = [7, 3, 0, 11, 9, 1, 2, 4, 5, 6, 8]
    return {
        "user": ["zed", *(users["user"][i] for i in order), "amy"],
        "age": np.array([users["age"][i] for i in [3, *order, 3]]),
        "seen": [users["seen"][i] for i in [3, *order, 3]],
    }


NEW = {"user": ["amy", "u05", "zed", "u10"], "item": [30, 0, 80, 30], "day": ["tue"] * 4}


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
@pytest.mark.parametrize("kind", ["Regressor", "Classifier", "OrdinalRegressor"])
@pytest.mark.parametrize("machine", ["FactorizationMachine", "PolynomialNetwork"])
def test_new_users_have_the_columns_of_their_table(machine, kind, fit_lower):
    """A prediction is that of the plain row: the columns of a user, and no id."""
    X, y, users, _, rows = tables()
    y = y if kind == "Regressor" else np.digitize(y, [-1, 1])
    make = getattr(fastpoly, machine + kind)
    model = make(alpha=1.0, alpha_linear=1.0, n_components=6, random_state=0, fit_lower=fit_lower)
    model.fit(X, y)
    Z = X.with_rows(NEW, user=newer(users))
    plain = X.with_rows(NEW | {"user": ["u03", "u05", "u03", "u10"]}).plain().toarray()
    plain[[0, 2], X.feature_names.index("user=u03")] = 0.0
    plain = sp.csr_array(plain)
    methods = ["predict", "transform"]
    methods += [] if kind == "Regressor" else ["decision_function", "predict_proba"]
    for method in methods:
        found, wanted = getattr(model, method)(Z), getattr(model, method)(plain)
        np.testing.assert_allclose(found, wanted, **EXACT)
    assert model.score(Z, y[:4]) == pytest.approx(model.score(plain, y[:4]))
    found, wanted = model.contributions(Z), model.contributions(plain)
    np.testing.assert_allclose(found.values, wanted.values, **EXACT)
    assert np.abs(found.values).max() > 0.01
    same = X.with_rows(rows, user=newer(users), day={"day": ["wed", "tue", "mon"]})
    np.testing.assert_allclose(model.predict(same), model.predict(X), **EXACT)
    assert same.shape[1] == X.shape[1] + 3


def test_what_is_new_of_old_users():
    X, y, users, _, _ = tables()
    model = FactorizationMachineRegressor(alpha=0.5, random_state=0).fit(X, y)
    older = {name: column[5:6] for name, column in users.items()} | {"age": [200.0]}
    rows = {"user": ["u05", "u06"], "item": [0, 0], "day": ["mon", "mon"]}
    before, after = model.predict(X.with_rows(rows)), model.predict(X.with_rows(rows, user=older))
    assert abs(after[0] - before[0]) > 1e-3
    assert after[1] == pytest.approx(before[1], rel=1e-12)


@pytest.mark.filterwarnings("error:the new levels")
def test_a_new_user_with_a_level_that_no_user_had():
    X, y, users, items, _ = tables()
    model = FactorizationMachineRegressor(alpha=0.5, random_state=0).fit(X, y)
    odd = {"user": ["odd", "plain"], "age": [30.0, 30.0], "seen": [["a", "new"], ["a", "new"]]}
    new = {"user": ["odd"] * 9, "item": items["item"], "day": ["mon"] * 9}
    Z = X.with_rows(new, user=odd)
    before = model.predict(Z)
    wider = model.fold_in(Z, before + 2.0)
    assert 1.0 < np.mean(wider.predict(Z) - before) < 2.0
    assert not wider.components_[:, Z.feature_names.index("user.seen=<other>")].any()
    other = Z.with_rows(new | {"user": ["plain"] * 9})
    np.testing.assert_allclose(wider.predict(other), before, **EXACT)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment"])
@pytest.mark.parametrize("kind", ["Regressor", "OrdinalRegressor"])
def test_vectors_of_new_users_by_an_unrelated_solver(kind, fit_lower):
    """`fold_in` minimizes the objective of the fit over what two new users have of their own."""
    X, y, users, items, _ = tables()
    levels = kind != "Regressor"
    y = np.digitize(y, [-1, 1]) if levels else y
    make = getattr(fastpoly, "FactorizationMachine" + kind)
    model = make(alpha=1.0, alpha_linear=2.0, n_components=3, random_state=0, fit_lower=fit_lower)
    model.fit(X, y)
    few = {
        "user": ["amy"] * 6 + ["zed"] * 5,
        "item": items["item"][[0, 1, 2, 3, 4, 5, 0, 2, 4, 6, 8]],
    }
    Z = X.with_rows(few | {"day": ["mon"] * 11}, user=newer(users))
    wanted = np.arange(11) % 3 if levels else np.cos(np.arange(11.0))
    found = model.fold_in(Z, wanted)
    augment = int(model.model_.augment)
    known = np.array([name not in ("user=amy", "user=zed") for name in Z.feature_names])
    columns = np.append(np.ones(augment, bool), known)
    # Without the new ids, it is the model of the fit.
    shape = found.components_[:, columns] / found.components_[:, :1]
    np.testing.assert_allclose(shape, model.components_ / model.components_[:, :1], rtol=1e-9)
    assert found.n_features_in_ == X.shape[1] + 2
    assert found.model_.feature_names == tuple(Z.feature_names)
    scaled = model._scaling.unfold(model.model_.parameters(), "anova")
    after = found._scaling.unfold(found.model_.parameters(), "anova")
    rows = model._rows_for(sp.csr_array(Z.plain()[:, known]), wanted, None, model._scaling)
    loss, Y = get_loss(rows.loss), rows.block.targets.by_row()
    k, m = scaled.V.shape
    unit = 1.0 if model._scaling.factor is None else model._scaling.factor
    W = Z.plain()[:, known] * np.reshape(unit, (1, -1))
    H = scaled.H
    S = W @ H[:, augment:].T + (H[:, 0] if augment else 0)
    squares = (W * W) @ (H[:, augment:] ** 2).T + (H[:, 0] ** 2 if augment else 0)
    base = 0.5 * (S**2 - squares) @ scaled.V + scaled.intercept
    base = base if augment else base + W @ scaled.linear
    ridge = np.linalg.norm(scaled.V, axis=1)
    for name, own in (("user=amy", slice(6)), ("user=zed", slice(6, 11))):

        def objective(t, own=own):
            h, w = t[:k], t[k:]
            O = base[own] + (S[own] * h) @ scaled.V + (0 if augment else w)
            return loss.value(Y[own], O) + ridge @ h**2 + w @ w

        start = np.zeros(k + m * (not augment))
        expected = minimize(objective, start, method="BFGS", options={"gtol": 1e-9}).x
        j = Z.feature_names.index(name)
        scale = after.V[:, 0] / scaled.V[:, 0]  # vectors are kept as units: v |h|^2 is the same
        np.testing.assert_allclose(
            after.H[:, augment + j] * np.sqrt(scale), expected[:k], atol=2e-5
        )
        assert np.abs(expected[:k]).max() > 1e-2
        if not augment:
            np.testing.assert_allclose(after.linear[j], expected[k:], atol=2e-5)
    np.testing.assert_allclose(found.predict(Z.with_rows(NEW))[[1, 3]],
                               model.predict(Z.with_rows(NEW))[[1, 3]], **EXACT)  # fmt: skip
    np.testing.assert_allclose(found.predict(Z), found.predict(Z.plain()), **EXACT)


def test_one_after_another():
    """Users, then items, joined with the first rows anew; then a fit that goes on."""
    X, y, users, items, rows = tables()
    model = FactorizationMachineRegressor(alpha=0.5, n_components=4, random_state=0).fit(X, y)
    Z = X.with_rows(
        {"user": ["zed"] * 9, "item": items["item"], "day": ["mon"] * 9}, user=newer(users)
    )
    wider = model.fold_in(Z, np.cos(np.arange(9.0)))
    toys = {"item": [95, 40], "kind": ["x", "y"]}  # 40 is known
    few = {"user": ["zed", "amy", "u01"], "item": [95] * 3, "day": ["tue"] * 3}
    turned = {name: column[::-1] for name, column in newer(users).items()}
    more = X.with_rows(few, item=toys, user=turned)
    both = wider.fold_in(more, [1.0, -1.0, 2.0])
    assert "item=95" in both.model_.feature_names
    np.testing.assert_allclose(both.predict(more.with_rows(rows)), model.predict(X), **EXACT)
    back = more.with_rows(few | {"item": [0] * 3, "day": ["mon"] * 3}, user=newer(users))
    np.testing.assert_allclose(both.predict(back)[0], wider.predict(Z)[0], **EXACT)
    with pytest.raises(ValueError, match=r"with_rows\(rows, name=table\) adds the keys"):
        both.predict(Z)  # which lacks the item
    model.set_params(warm_start=True)
    with pytest.raises(ValueError, match="the earlier fit did not have: fold_in"):
        model.fit(more.with_rows(rows), y)
    both.set_params(warm_start=True).fit(more.with_rows(rows), y)
    assert both.score(more.with_rows(rows), y) > 0.5
    assert model.set_params(warm_start=False).fit(more.with_rows(rows), y).score(X.with_rows(
        rows, item=toys, user=newer(users)), y) > 0.5  # fmt: skip


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_averages_and_recommendations():
    X, y, users, items, _ = tables()
    machine = FactorizationMachineRegressor(n_components=3, random_state=0)
    average = PosteriorAverage(machine, n_samples=20, n_warmup=5, random_state=0).fit(X, y)
    new = {"user": ["zed"] * 9, "item": items["item"], "day": ["mon"] * 9}
    Z = X.with_rows(new, user=newer(users))
    mean, std = average.predict(Z, return_std=True)
    plain = X.with_rows(new | {"user": ["u03"] * 9}).plain().toarray()
    plain[:, X.feature_names.index("user=u03")] = 0.0
    np.testing.assert_allclose(mean, average.predict(sp.csr_array(plain)), **EXACT)
    np.testing.assert_allclose(std, average.predict(sp.csr_array(plain), return_std=True)[1])
    # The vector has the normal prior of the ids of the users.
    rated = np.cos(np.arange(5.0))
    found = average.fold_in(Z[:5], rated)
    scaling, j = average.estimator_._scaling, Z.feature_names.index("user=zed")
    model = scaling.unfold(average.model_.parameters(), "anova")
    A = np.hstack([model.H[:, :12].T, model.linear[:12]])
    precision = np.linalg.inv(np.cov(A.T) + 1e-3 * np.diag(A.var(axis=0) + 1e-12))
    W = sp.csr_array(plain[:5] * (1.0 if scaling.factor is None else scaling.factor))
    S = W @ model.H.T
    base = 0.5 * (S**2 - (W * W) @ (model.H**2).T) @ model.V + model.intercept + W @ model.linear
    J = np.hstack([S * model.V[:, 0], np.ones((5, 1))])
    rest, T = scaling.targets(rated[:, None])[:, 0] - base[:, 0], average.temper_
    t = np.linalg.solve(T * J.T @ J + precision, T * J.T @ rest + precision @ A.mean(axis=0))
    expected = (J @ t + base[:, 0]) * scaling.target_unit[0] + scaling.target_center[0]
    np.testing.assert_allclose(found.predict(Z[:5]), expected, rtol=1e-6)
    assert found.model_.fields[j] == found.model_.fields[0]
    # The best items of all users, by the model of the fit and with the new vector.
    for model in (average, found):
        best = fastpoly.recommend(model, Z.entity("user", model), 4, items=Z.entity("item", model))
        at = Z.entities["user"].keys.tolist().index("zed")
        pairs = Z.entity("user", model)[[at] * 9] + Z.entity("item", model)
        own = model.predict(sp.csr_array(pairs))
        np.testing.assert_array_equal(best.items[at], np.argsort(-own, kind="stable")[:4])
        np.testing.assert_allclose(best.scores[at], np.sort(own)[:-5:-1], **EXACT)
    assert best.items.shape == (14, 4)
    with pytest.raises(ValueError, match=r"give X\.entity\(name, model\)"):
        fastpoly.recommend(average, Z.entity("user"), 4, items=Z.entity("item"))


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_matrices_with_more_rows(form, ids):
    rng = np.random.default_rng(1)
    B = rng.standard_normal((8, 3))
    rows = {"user": rng.integers(6, size=80), "item": rng.integers(4, size=80)}
    X = Joined(rows, user=form(B[:6]), item=None, ids=ids)
    y = B[rows["user"], 0] * np.cos(rows["item"]) + B[rows["user"], 1]
    model = FactorizationMachineRegressor(alpha=0.1, random_state=0).fit(X, y)
    Z = X.with_rows({"user": [7, 2, 6], "item": [1, 2, 3]}, user=form(B))
    plain = np.zeros((3, X.shape[1]))
    first = 6 if ids else 0
    plain[:, first : first + 3] = B[[7, 2, 6]]
    plain[[0, 1, 2], [first + 4, first + 5, first + 6]] = 1.0
    plain[1, 2] = 1.0 if ids else plain[1, 2]
    np.testing.assert_allclose(model.predict(Z), model.predict(sp.csr_array(plain)), **EXACT)
    assert Z.shape[1] == X.shape[1] + 2 * ids
    with pytest.raises(ValueError, match="all of its 6 rows before new ones; it has .* and 2 rows"):
        X.with_rows({"user": [1], "item": [0]}, user=form(B[6:]))
    with pytest.raises(ValueError, match="must have keys of the same type and the columns"):
        X.with_rows({"user": [1], "item": [0]}, user=form(B[:, :2]))


def test_bad_newer_tables():
    X, y, users, items, _ = tables()
    model = FactorizationMachineRegressor(alpha=1.0, n_components=2, random_state=0).fit(X, y)
    good, one = newer(users), {"user": ["amy"], "item": [0], "day": ["mon"]}
    with pytest.raises(ValueError, match=r"the table of 'user' .*lacks the columns \['age'\]"):
        X.with_rows(one, user={"user": ["amy"], "seen": [["a"]]})
    with pytest.raises(ValueError, match=r"unknown columns \['job'\]"):
        X.with_rows(one, user=good | {"job": ["a"] * 13})
    with pytest.raises(ValueError, match="the newer table of 'user' must have"):
        X.with_rows(one, user={"user": ["amy"]})
    with pytest.raises(ValueError, match="the newer table of 'day' must have"):
        X.with_rows(one, day={"day": ["mon"], "sun": [1.0]})
    with pytest.raises(ValueError, match="the newer table of 'user' must have keys of the same"):
        X.with_rows(one, user=good | {"user": np.arange(13)})
    with pytest.raises(ValueError, match="the newer table of 'user' must have"):
        X.with_rows(one, user=np.eye(20, 4))
    with pytest.raises(ValueError, match="column 'kind' held texts"):
        X.with_rows(one, item=items | {"kind": np.arange(9) % 2 == 0})
    with pytest.raises(ValueError, match="has the key 'amy' more than once"):
        X.with_rows(one, user=good | {"user": ["amy", *good["user"][1:]]})
    with pytest.raises(ValueError, match="no row for the key 'eve'"):
        X.with_rows(one | {"user": ["eve"]}, user=good)
    with pytest.raises(ValueError, match="there is no 'shop'"):
        X.with_rows(one, shop=good)
    with pytest.raises(ValueError, match=r"rows lack the columns \['day'\]"):
        X.with_rows({"user": ["amy"], "item": [0]}, user=good)
    anew = Joined(one, user=good, item=items, day={"day": ["mon", "tue"]})
    with pytest.raises(ValueError, match=r"X\.with_rows\(rows, name=table\) adds the keys"):
        model.predict(anew)  # whose units are those of another table
    with pytest.raises(ValueError, match="other keys or columns"):
        model.fold_in(anew, [1.0])
