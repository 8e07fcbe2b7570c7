"""Joined rows against the plain rows: sums, gradients, operators, fits and predictions."""

import numpy as np
import pytest
import scipy.sparse as sp
from reference import table_matrix
from sklearn.base import clone

import fastpoly
from fastpoly import Joined
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.rows import CodedRows, Design, Tables, as_rows
from fastpoly.rows.coded import CodedOperators
from fastpoly.state import Model

LOSSES = ["squared", "poisson", "multiclass_logistic", "binary_logistic", "smoothed_hinge"]


def case(rng, loss, fit_lower, n=90, m=3):
    """Joined rows of three entities, the same plain rows, and a model."""
    sizes, widths = (9, 7, 4), (11, 8, 2)
    blocks = [rng.standard_normal((a, b)) for a, b in zip(sizes, widths, strict=True)]
    for B in blocks[:2]:
        B[rng.random(B.shape) < 0.5] = 0
    blocks = [sp.csr_array(blocks[0]), blocks[1], blocks[2]]
    codes = np.column_stack([rng.integers(size, size=n) for size in sizes])
    columns = (codes + np.array([0, 9, 16])).ravel()
    P = sp.csr_array((np.ones(3 * n), columns, np.arange(0, 3 * n + 1, 3)), shape=(n, 20))
    tables = Tables(blocks)
    X = sp.csr_array(P @ table_matrix(tables))
    Y = {
        "multiclass_logistic": rng.integers(m, size=n), "smoothed_hinge": rng.integers(m, size=n),
        "binary_logistic": rng.choice([-1.0, 1.0], size=(n, m)),
        "poisson": rng.poisson(1.0, size=(n, m)) * 1.0,
    }.get(loss, rng.standard_normal((n, m)))  # fmt: skip
    w = rng.random(n)
    plain = as_rows(Design(X, "anova", fit_lower=fit_lower), Y, loss=loss, sample_weight=w)
    keys = as_rows(Design(P, "anova", fit_lower="explicit"), Y, loss=loss, sample_weight=w)
    joined = CodedRows(keys, tables, within=True, fit_lower=fit_lower)
    d, k = plain.n_features, 4
    assert joined.n_features == d
    explicit = fit_lower == "explicit"
    model = Model(
        rng.standard_normal((k, d)) / 3, rng.standard_normal((k, plain.m)) / 3,
        rng.standard_normal(plain.m) * explicit,
        rng.standard_normal((d, plain.m)) / 3 if explicit else None,
    )  # fmt: skip
    return joined, plain, model


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
@pytest.mark.parametrize("loss", LOSSES)
def test_sums_are_those_of_plain_rows(loss, fit_lower):
    rng = np.random.default_rng(0)
    joined, plain, model = case(rng, loss, fit_lower)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    problem = Problem.of(plain.loss, "l1/l2", plain.m, alpha=1.0)
    x = Objective(problem, plain).pack(model)
    g, expected = np.empty_like(x), np.empty_like(x)
    k = len(model.H)
    np.testing.assert_allclose(
        joined.value_grad(x, k, g), plain.value_grad(x, k, expected), rtol=1e-12
    )
    np.testing.assert_allclose(g, expected, **exact)
    for j in rng.choice(len(x), 10, replace=False):  # finite differences
        step = np.zeros_like(x)
        step[j], rest = 1e-5, np.empty_like(x)
        rise = joined.value_grad(x + step, k, rest) - joined.value_grad(x - step, k, rest)
        assert g[j] == pytest.approx(rise / 2e-5, rel=1e-4, abs=1e-5)
    assert joined.value(model) == pytest.approx(plain.value(model), rel=1e-12)
    for a, b in zip(joined.value_layers(model), plain.value_layers(model), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, **exact)
    H, V = rng.standard_normal((2, *model.H.shape))[:, :2], rng.standard_normal((2, plain.m))
    norms = plain.squared_norms(H[0])
    np.testing.assert_allclose(joined.squared_norms(H[0])[:2], norms[:2], **exact)
    (along, bound), (other, wanted) = joined.ray(model, H[0], V), plain.ray(model, H[0], V)
    assert bound == pytest.approx(wanted)
    np.testing.assert_allclose(along(0.3), other(0.3), **exact)
    S = joined.sample(1000, np.random.default_rng(1))(H[1])
    np.testing.assert_allclose(S, plain.sample(1000, np.random.default_rng(1))(H[1]), **exact)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
def test_gamma_against_dense_matrices(fit_lower):
    rng = np.random.default_rng(2)
    joined, plain, model = case(rng, "multiclass_logistic", fit_lower)
    found, wanted = joined.gradient(model), plain.gradient(model)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(found.V, wanted.V, **exact)
    G = wanted.gamma().dense()

    codes = joined.codes.gradient(joined.level_model(model))
    operators = CodedOperators(joined, codes.gamma(), codes.linear)
    np.testing.assert_allclose(operators.dense(None), G, **exact)
    S, w = rng.standard_normal((plain.m, 2)), rng.standard_normal(plain.m)
    B = rng.standard_normal((plain.n_features, plain.m))
    h = B[:, 0]
    combined = np.einsum("ce,cij->eij", S, G)
    np.testing.assert_allclose(operators.matvecs(None, B), np.einsum("cij,jc->ic", G, B), **exact)
    np.testing.assert_allclose(
        operators.matvecs(S, B[:, :2]), np.einsum("eij,je->ie", combined, B[:, :2]), **exact
    )
    np.testing.assert_allclose(operators.forms(None, h), h @ G @ h, **exact)
    np.testing.assert_allclose(operators.forms(S, h), h @ combined @ h, **exact)
    np.testing.assert_allclose(
        operators.combine(None, w, h), np.einsum("c,cij,j", w, G, h), **exact
    )
    np.testing.assert_allclose(found.gamma().forms(h), h @ G @ h, **exact)


def tables():
    """Users and items with side information, and ratings of them."""
    rng = np.random.default_rng(3)
    users = {
        "user": [f"u{i}" for i in range(20)], "age": rng.integers(18, 70, size=20) * 1.0,
        "job": rng.choice(["a", "b", "c"], size=20),
    }  # fmt: skip
    genres = [list(rng.choice(["war", "love", "fun"], size=1 + i % 2, replace=False))
              for i in range(15)]  # fmt: skip
    items = {"item": np.arange(15)[::-1] * 10, "genres": genres}
    rows = {
        "user": rng.choice(users["user"], size=400), "item": rng.choice(items["item"], size=400),
        "day": rng.choice(["mon", "tue"], size=400),
    }  # fmt: skip
    X = Joined(rows, user=users, item=items, day=None)
    truth = rng.standard_normal((2, X.shape[1]))
    P = X.plain()
    y = (P @ truth[0]) * (P @ truth[1]) / 5 + 0.3 * rng.standard_normal(400)
    return X, y, (rows, users, items)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment", None])
@pytest.mark.parametrize("kind", ["Regressor", "Classifier", "OrdinalRegressor"])
@pytest.mark.parametrize("machine", ["FactorizationMachine", "PolynomialNetwork"])
def test_fit_of_joined_rows_is_that_of_plain_rows(machine, kind, fit_lower):
    X, y, _ = tables()
    y = y if kind == "Regressor" else np.digitize(y, [-1, 1])
    make = getattr(fastpoly, machine + kind)
    options = {"alpha": 2.0, "alpha_linear": 1.0, "n_components": 12, "random_state": 0}
    joined = make(**options, fit_lower=fit_lower).fit(X, y)
    plain = make(**options, fit_lower=fit_lower).fit(X.plain(), y)
    assert joined.objective_ == pytest.approx(plain.objective_, rel=2e-2)
    np.testing.assert_allclose(joined.predict(X), joined.predict(X.plain()), rtol=1e-9, atol=1e-10)
    assert joined.top_interactions(0 if kind != "Classifier" else 1, 1)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_searches_and_averages_of_joined_rows():
    X, y, (rows, users, items) = tables()
    machine = fastpoly.FactorizationMachineRegressor(n_components=5, random_state=0)
    search = fastpoly.PathSearchCV(machine, n_alphas=3, cv=3).fit(X, y)
    assert search.score(X, y) > 0.3
    average = fastpoly.PosteriorAverage(machine, n_samples=30, random_state=0).fit(X, y)
    np.testing.assert_allclose(average.predict(X), average.predict(X.plain()))
    assert average.score(X, y) > 0.3
    mean, std = average.predict(X, return_std=True)
    assert (std > 0).all()
    few = Joined(rows, user=users, item=items, day=None, ids=False)  # columns alone
    assert clone(average).fit(few, y).score(few, y) > 0.1
    best = fastpoly.recommend(average, X.entity("user"), 3, items=X.entity("item"))
    assert best.items.shape == (20, 3)


def test_contributions_are_those_of_plain_rows():
    X = Joined({"user": [0, 1, 2] * 8, "item": [0, 1] * 12}, user=np.eye(3, 2), item=None)
    model = fastpoly.FactorizationMachineRegressor(alpha=0.1, random_state=0)
    model.fit(X, np.arange(24.0) % 5)
    found, want = model.contributions(X[:4]), model.contributions(X[:4].plain())
    np.testing.assert_array_equal(found.values, want.values)


def test_matrices_as_tables():
    B = sp.random_array((6, 4), density=0.5, rng=0, format="coo")
    X = Joined({"user": [5, 0, 3], "item": [1, 1, 0]}, user=B, item=np.eye(2), ids=False)
    expected = np.hstack([B.toarray()[[5, 0, 3]], np.eye(2)[[1, 1, 0]]])
    np.testing.assert_array_equal(X.plain().toarray(), expected)
    np.testing.assert_array_equal(X[[2, 0]].plain().toarray(), expected[[2, 0]])
    assert X.feature_names == ["user.0", "user.1", "user.2", "user.3", "item.0", "item.1"]


def test_columns_of_frames():
    X, _, (rows, users, items) = tables()
    P, names = X.plain().toarray(), X.feature_names
    for i in (0, 17):
        u = users["user"].index(rows["user"][i])
        assert P[i, names.index(f"user={rows['user'][i]}")] == 1.0
        assert P[i, names.index(f"user.job={users['job'][u]}")] == 1.0
        assert P[i, names.index(f"day={rows['day'][i]}")] == 1.0
        own = items["genres"][list(items["item"]).index(rows["item"][i])]
        for genre in ("war", "love", "fun"):
            assert (P[i, names.index(f"item.genres={genre}")] > 0) == (genre in own)


@pytest.mark.parametrize("fit_lower", ["explicit", "augment"])
@pytest.mark.parametrize("machine", ["FactorizationMachine", "PolynomialNetwork"])
def test_joined_shards_are_joined_rows(tmp_path, machine, fit_lower):
    X, y, (rows, users, items) = tables()
    used = np.char.str_len(rows["user"]) == 3  # some users have no rows
    X, y, rows = X[used], y[used], {name: column[used] for name, column in rows.items()}
    keys = {"one_hot": ["user", "day", "item"], "target": "y"}
    shards = fastpoly.write_shards(tmp_path, [rows | {"y": y}], rows_per_shard=50, **keys)
    stored = Joined.over(shards, user=users, item=items, day=None)
    X = Joined(rows, user=users, day=None, item=items)  # columns in the order of the shards
    assert (stored.n_samples, stored.n_features) == X.shape
    options = {"alpha": 2.0, "alpha_linear": 1.0, "n_components": 8, "random_state": 0}
    make = getattr(fastpoly, machine + "Regressor")
    memory = make(**options, fit_lower=fit_lower).fit(X, y)
    model = make(**options, fit_lower=fit_lower).fit(stored)
    assert model.objective_ == pytest.approx(memory.objective_, rel=1e-2)
    np.testing.assert_allclose(model.predict(stored), model.predict(X), atol=1e-12)
    assert model.score(stored) == pytest.approx(memory.score(X, y), abs=5e-3)
    new = Joined(
        {"user": ["u1"], "day": ["mon"], "item": [20]}, user=users, day={"day": ["mon", "tue"]},
        item=items,
    )  # fmt: skip
    np.testing.assert_allclose(model.predict(new), model.predict(new.plain()), atol=1e-12)


@pytest.mark.filterwarnings("ignore:the chain has not mixed")
def test_averages_and_searches_of_joined_shards(tmp_path):
    X, y, (rows, users, items) = tables()
    keys = {"one_hot": ["user", "item", "day"], "target": "y"}
    shards = fastpoly.write_shards(tmp_path, [rows | {"y": y}], rows_per_shard=150, **keys)
    stored = Joined.over(shards, user=users, item=items, day=None)
    machine = fastpoly.FactorizationMachineRegressor(n_components=4, random_state=0)
    average = fastpoly.PosteriorAverage(machine, n_samples=30, random_state=0)
    ours, theirs = clone(average).fit(stored), clone(average).fit(X, y)
    np.testing.assert_allclose(ours.predict(stored), ours.predict(X), atol=1e-12)
    assert np.corrcoef(ours.predict(X), theirs.predict(X))[0, 1] > 0.98
    search = fastpoly.PathSearchCV(machine, n_alphas=3, cv=2).fit(stored)
    assert search.score(stored, shards.targets()) > 0.3
    machine = fastpoly.FactorizationMachineRegressor(n_components=4, fit_lower="augment")
    average = clone(average).set_params(estimator=machine).fit(stored)  # beside a constant
    assert average.score(stored, shards.targets()) > 0.3
    with pytest.raises(TypeError, match=r"Joined\.over"):
        Joined(shards, user=users, item=items, day=None)
    with pytest.raises(ValueError, match=r"columns \['day'\] without a table"):
        Joined.over(shards, user=users, item=items)
    few = {"user": users["user"][1:], "age": users["age"][1:]}
    with pytest.raises(ValueError, match="no row for the key 'u0'"):
        Joined.over(shards, user=few, item=items, day=None)


def test_bad_tables():
    rows, B = {"user": [0, 1], "item": [0, 0]}, np.eye(2)
    with pytest.raises(ValueError, match=r"rows lack the columns \['shop'\]"):
        Joined(rows, user=B, item=B, shop=B)
    with pytest.raises(ValueError, match=r"have columns \['item'\] without a table"):
        Joined(rows, user=B)
    with pytest.raises(ValueError, match="no column 'user' with its keys"):
        Joined(rows, user={"name": ["a"]}, item=B)
    with pytest.raises(ValueError, match="has the key .* more than once"):
        Joined(rows, user={"user": [0, 1, 1], "x": [1.0, 2.0, 3.0]}, item=B)
    with pytest.raises(ValueError, match="'user' has no row for the key"):
        Joined(rows, user={"user": [0, 2], "x": [1.0, 2.0]}, item=B)
    with pytest.raises(ValueError, match="no row for the key"):
        Joined(rows, user=B, item=B).with_rows({"user": [2], "item": [0]})
    with pytest.raises(ValueError, match="gaps in the keys 'user'"):
        Joined({"user": ["a", None], "item": [0, 0]}, user=None, item=B)
    with pytest.raises(ValueError, match="must be 2-D"):
        Joined(rows, user=np.ones(2), item=B)
    with pytest.raises(ValueError, match="contains NaN"):
        Joined(rows, user=np.full((2, 1), np.nan), item=B)
    with pytest.raises(TypeError, match="frame or a mapping"):
        Joined(np.eye(2), user=B)
    model = fastpoly.FactorizationMachineRegressor(alpha=1.0)
    X = Joined({"user": [0, 1] * 5, "item": [0, 0, 1, 1, 0] * 2}, user=B, item=B)
    model.fit(X, np.arange(10.0))
    with pytest.raises(ValueError, match="other keys or columns"):
        model.predict(Joined(rows, user=B, item=B, ids=False))


def test_other_tables_are_refused():
    """Rows joined with other tables of the same size would be predicted by wrong columns."""
    rows, y = {"user": [0, 1, 0, 1], "item": [0, 0, 1, 1]}, [1.0, 2.0, 3.0, 5.0]
    ages = {"user": [0, 1], "age": ["old", "young"]}
    model = fastpoly.FactorizationMachineRegressor(alpha=0.01)
    model.fit(Joined(rows, user=ages, item=None), y)
    other = Joined(rows, user={"user": [1, 0], "age": ["old", "young"]}, item=None)
    with pytest.raises(ValueError, match="other keys or columns"):
        model.predict(other)
    with pytest.raises(ValueError, match="other keys or columns"):
        model.fold_in(other, y)


def test_models_name_columns_and_know_fields():
    rng = np.random.default_rng(8)
    users = {"user": np.arange(20), "age": np.array(list("abcd"))[np.arange(20) % 4]}
    items = {"item": np.arange(6), "tags": [["x"] * (j % 2) + ["y"] for j in range(6)]}
    rows = {"user": rng.integers(20, size=600), "item": rng.integers(6, size=600)}
    X = Joined(rows, user=users, item=items)
    y = np.where(rows["user"] % 4 == 1, 2.0, -1.0) * np.where(rows["item"] % 2, 1.0, -1.0)
    machine = fastpoly.FactorizationMachineRegressor(random_state=0)
    for model in (machine, fastpoly.PosteriorAverage(machine, n_samples=30, random_state=0)):
        found = {pair[:2] for pair in model.fit(X, y).top_interactions(k=40)}
        assert ("user.age=b", "item.tags=x") in found
        kinds = [{name.partition("=")[0] for name in pair} for pair in found]
        assert {"user"} not in kinds  # two users or two ages never meet
        assert {"user.age"} not in kinds
    model = fastpoly.FactorizationMachineRegressor(alpha=1.0).fit(X, y).fit(X.plain(), y)
    assert all(isinstance(each, int) for each in model.top_interactions(k=1)[0][:2])
