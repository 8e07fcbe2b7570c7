"""Estimators of frames with text, bools, numbers and gaps."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from estimator_cases import REGRESSORS
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastpoly
from fastpoly import PolyModel, strengths

LIBRARIES = ["pandas", "polars", "pyarrow"]
ESTIMATORS = [
    fastpoly.FactorizationMachineClassifier,
    fastpoly.PolynomialNetworkClassifier,
    fastpoly.FactorizationMachineRegressor,
    fastpoly.PolynomialNetworkRegressor,
    fastpoly.FactorizationMachineOrdinalRegressor,
    fastpoly.PolynomialNetworkOrdinalRegressor,
]
EVERY = pytest.mark.parametrize("cls", ESTIMATORS)


def columns(n=240, seed=0):
    """Named lists: text, bool, a number with gaps, a number; and a target of their products."""
    rng = np.random.default_rng(seed)
    city, sun = rng.choice(["Oslo", "Rome", "Lima"], n), rng.random(n) < 0.5
    age, size = rng.normal(40, 12, n), rng.exponential(10, n)
    score = np.where(city == "Oslo", 1, -1) * (age > 40) + np.where(sun, 0.5, -0.5) * (size > 7)
    gaps = rng.random(n) < 0.1
    table = {
        "city": city.tolist(),
        "sun": sun.tolist(),
        "age": [None if gap else a for gap, a in zip(gaps, age.tolist(), strict=True)],
        "size": size.tolist(),
    }
    return table, score + 0.1 * rng.normal(size=n)


def as_frame(table, library):
    module = pytest.importorskip(library)
    return module.table(table) if library == "pyarrow" else module.DataFrame(table)


def targets(cls, score):
    if "Classifier" in cls.__name__:
        return np.where(score > 0, "yes", "no")
    return np.digitize(score, [-0.7, 0.0, 0.7]) if "Ordinal" in cls.__name__ else score


def outputs(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@EVERY
def test_a_frame_in_and_a_model_out(cls, tmp_path):
    table, score = columns()
    y = targets(cls, score)
    frames = [as_frame(table, library) for library in LIBRARIES]
    models = [cls(random_state=0).fit(frame, y) for frame in frames]
    expected = outputs(models[0], frames[0])
    assert models[0].score(frames[0], y) > 0.8
    for model in models:
        assert list(model.feature_names_in_) == list(table)
        assert model.n_features_in_ == 4
        for frame in (*frames, table):
            np.testing.assert_allclose(outputs(model, frame), expected, atol=1e-12)
    again = pickle.loads(pickle.dumps(models[0]))
    np.testing.assert_array_equal(outputs(again, frames[0]), expected)
    np.testing.assert_array_equal(outputs(clone(models[0]).fit(frames[0], y), frames[0]), expected)
    reordered = {name: table[name] for name in ("size", "city", "age", "sun")}
    np.testing.assert_array_equal(outputs(models[0], reordered), expected)
    models[0].model_.save(tmp_path / "model.npz")
    loaded = PolyModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(frames[0]), models[0].predict(frames[0]))
    assert loaded == models[0].model_


@EVERY
def test_early_stopping_weights_and_warm_starts(cls):
    table, score = columns()
    y, frame = targets(cls, score), as_frame(table, "pandas")
    w = np.random.default_rng(0).integers(1, 3, len(y))
    model = cls(random_state=0, early_stopping=True).fit(frame, y, sample_weight=w)
    assert model.score(frame, y) > 0.7
    model = cls(random_state=0, alpha=2.0, n_components=2, warm_start=True).fit(frame, y)
    before = model.objective_
    model.set_params(n_components=6).fit(frame, y)
    assert model.objective_ <= before
    assert model.score(frame, y) > 0.7
    assert len(list(model.staged_predict(frame))) == len(model.history_["loss"])


def levels_of(n=300, seed=0):
    """A frame of three categories, its one-hot columns, their sizes, and a product of two."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    codes = {
        "a": rng.integers(3, size=n),
        "b": rng.integers(5, size=n),
        "c": rng.integers(9, size=n),
    }
    frame = pandas.DataFrame({name: np.array(list("qwertyuio"))[v] for name, v in codes.items()})
    parts = [np.eye(9)[:, : v.max() + 1][v] for v in codes.values()]
    order = [np.argsort(list("qwertyuio")[: part.shape[1]]) for part in parts]
    parts = [part[:, at] for part, at in zip(parts, order, strict=True)]
    score = np.where(codes["a"] == 0, 1.0, -1.0) * (codes["b"] - 2) + 0.1 * rng.normal(size=n)
    return frame, np.hstack(parts), [part.shape[1] for part in parts], score


@EVERY
def test_a_frame_is_its_one_hot_columns_with_fields(cls):
    frame, X, sizes, score = levels_of()
    y, alpha = targets(cls, score), 1.0 if "Machine" in cls.__name__ else 3.0
    settings = {"alpha": alpha, "alpha_linear": 1.0, "random_state": 0, "tol": 1e-6}
    by_frame = cls(**settings).fit(frame, y)
    names = np.repeat(["a", "b", "c"], sizes).tolist()
    for fields in (sizes, names):
        for rows in (X, csr_array(X)) if "Machine" in cls.__name__ else (X,):
            by_hand = cls(fields=fields, **settings).fit(rows, y)
            assert by_hand.objective_ == pytest.approx(by_frame.objective_, rel=1e-6)
            np.testing.assert_allclose(outputs(by_hand, rows), outputs(by_frame, frame), atol=2e-3)
            assert by_hand.model_.fields.tolist() == np.repeat([0, 1, 2], sizes).tolist()
            assert by_hand.n_features_in_ == X.shape[1]


@EVERY
def test_permutations_of_rows_levels_and_columns(cls):
    frame, _, _, score = levels_of()
    frame["v"] = score + np.random.default_rng(1).normal(size=len(frame))
    y, order = targets(cls, score), np.random.default_rng(0).permutation(len(frame))
    model = cls(alpha=2.0, alpha_linear=1.0, shapes="hinges", random_state=0, tol=1e-6)
    expected = outputs(clone(model).fit(frame, y), frame)
    other = frame.iloc[order][["v", "c", "a", "b"]]
    found = outputs(clone(model).fit(other, y[order]), other)
    np.testing.assert_allclose(found, expected[order], atol=5e-3)
    swapped = frame.assign(c=frame["c"].map(dict(zip("qwertyuio", "oiuytrewq", strict=True))))
    np.testing.assert_allclose(outputs(clone(model).fit(swapped, y), swapped), expected, atol=5e-3)


def test_shapes_are_chosen_on_rows_held_out():
    """Steps always fit better; of noise they must not be taken, and of a threshold they must."""
    rng, chosen = np.random.default_rng(0), []
    for seed in range(6):
        table = {f"v{j}": rng.normal(size=300).tolist() for j in range(4)}
        noise = rng.normal(size=300)
        model = fastpoly.FactorizationMachineRegressor(random_state=seed).fit(table, noise)
        chosen.append(model.shapes_)
        assert model.score(table, noise) < 0.3
    assert chosen.count("steps") <= 1
    v = rng.normal(size=2000)
    table, y = {"v": v.tolist(), "w": rng.normal(size=2000).tolist()}, (v > 0.3).astype(float)
    model = fastpoly.FactorizationMachineRegressor(random_state=0).fit(table, y)
    assert model.shapes_ == "steps"
    assert model.score(table, y) > 0.95


@pytest.mark.parametrize("kind", ["FactorizationMachine", "PolynomialNetwork"])
def test_straight_lines_keep_their_digits(kind):
    """Bins and soft units would lose them where numbers are skewed; levels and gaps are beside."""
    rng = np.random.default_rng(0)
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"skewed": np.exp(rng.normal(size=900)), "c": rng.choice([*"ab"], 900)})
    table["v"] = np.where(rng.random(900) < 0.1, np.nan, rng.normal(size=900))
    y = 2 * table["skewed"] - 3 * table["v"].fillna(0.7) + (table["c"] == "a")
    model = getattr(fastpoly, f"{kind}Regressor")(random_state=0).fit(table[:600], y[:600])
    assert model.shapes_ == "plain"
    assert model.score(table[600:], y[600:]) > 0.9999
    given = clone(model).set_params(shapes="plain", alpha=model.alpha_)
    assert given.fit(table[:600], y[:600]).score(table[600:], y[600:]) > 0.9999
    table.loc[5, "skewed"] = 1e300  # which is a million units
    assert np.isfinite(clone(given).fit(table[:600], y[:600]).predict(table)).all()


def test_products_of_numbers_need_no_shapes():
    """Linear models of noise may prefer a finer form by chance; products then decide."""
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(150, 5))
        table = {f"v{j}": x.tolist() for j, x in enumerate(X.T)}
        model = fastpoly.FactorizationMachineRegressor(random_state=0)
        model.fit(table, X[:, 0] * X[:, 1] + 0.7 * X[:, 2])
        assert model.shapes_ is None
        assert model.score(table, X[:, 0] * X[:, 1] + 0.7 * X[:, 2]) > 0.95


def test_forms_are_judged_on_the_same_rows():
    table, score = columns()
    model = fastpoly.FactorizationMachineRegressor(random_state=0)
    held = []
    for shape in (None, "steps"):
        model.set_params(shapes=shape)
        model._scaling = model._units(data := model._prepare(table, score, None))
        objective = model._objective(data)
        by = held[0][0] if held else objective.rows
        folds = strengths.make_folds(objective, model._options(), drawn_by=by)
        parts = [part.rows for fold in folds for part in fold.held]
        held.append((objective.rows, [part.codes.block.targets.values for part in parts]))
    for one, other in zip(*(values for _, values in held), strict=True):
        np.testing.assert_array_equal(one, other)


def test_held_out_targets_change_no_model_that_they_judge():
    """Other targets of the rows held out leave the models of the rows to train on as they were."""
    table, score = columns()
    model = fastpoly.FactorizationMachineClassifier(random_state=0, shapes="hinges")
    y = targets(type(model), score)
    model._scaling = model._units(data := model._prepare(table, y, None))
    options, rows = model._options(), model._objective(data)
    number = rows.rows.draw(strengths.FOLDS, options.seed)
    held = strengths.make_folds(rows, options)
    values = np.where(number == 0, 1 - data.targets.values, data.targets.values)
    other = replace(data, targets=data.targets._replace(values=values.astype(np.int32)))
    changed = model._objective(other)
    same = strengths.make_folds(changed, options, drawn_by=rows.rows)
    first, *others = zip(held, same, strict=True)
    for folds in (first, others[0]):
        for fold in folds:
            fold.descend(1.0, 1.0, 1e-6)
    assert np.array_equal(first[0].model.linear, first[1].model.linear)
    assert not np.allclose(others[0][0].model.linear, others[0][1].model.linear, atol=1e-3)
    assert first[1].loss().sum() > 1.5 * first[0].loss().sum()


@EVERY
def test_gaps_in_arrays(cls):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    y = targets(cls, 2 * X[:, 0] * (X[:, 1] > 0) + 0.1 * rng.normal(size=250))
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    model = cls(random_state=0).fit(holes, y)
    assert model.score(X, y) > 0.5
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_allclose(
        outputs(model, holes), outputs(model, {f"x{j}": x for j, x in enumerate(holes.T)})
    )
    model = cls(alpha=1.0, n_components=3, random_state=0).fit(X, y)
    filled = np.where(np.isnan(holes), X.mean(axis=0), holes)
    np.testing.assert_allclose(outputs(model, holes), outputs(model, filled))
    with pytest.raises(ValueError, match="NaN"):
        cls().fit(csr_array(holes), y)


def test_bad_tables_are_named():
    table, score = columns()
    machine = fastpoly.FactorizationMachineRegressor(alpha=1.0, shapes=None, random_state=0)
    with pytest.raises(ValueError, match="y holds text; use a classifier"):
        machine.fit(table, np.where(score > 0, "a", "b"))
    with pytest.raises(ValueError, match="y holds text; use a classifier"):
        machine.fit(np.ones((2, 2)), ["a", "b"])
    with pytest.raises(ValueError, match="X holds text; give a frame"):
        machine.fit(np.array([["a", "b"], ["c", "d"]]), [0.0, 1.0])
    with pytest.raises(ValueError, match="fields must be None: frames"):
        machine.set_params(fields=[2, 2]).fit(table, score)
    for fields in ([2, 2], "ab", ["a"], [0, 3], 3):
        with pytest.raises(ValueError, match="fields must"):
            machine.set_params(fields=fields).fit(np.ones((5, 3)), np.ones(5))
    with pytest.raises(ValueError, match="unknown shapes 'steps'; known: 'auto', None, 'plain'"):
        fastpoly.PolynomialNetworkRegressor(shapes="steps").fit(table, score)
    machine = clone(machine).set_params(fields=None).fit(table, score)
    with pytest.raises(ValueError, match=r"lacks the columns \['city'\]"):
        machine.predict({name: table[name] for name in ("sun", "age", "size")})
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        machine.fit(table, score[:-1])


def test_unseen_levels_and_gaps_are_those_of_the_rare():
    table, score = columns()
    table["city"][0] = "Paris"  # once: rare
    model = fastpoly.FactorizationMachineRegressor(random_state=0).fit(table, score)
    row = {"sun": [True], "age": [30.0], "size": [5.0]}
    rare, unseen, gap = (model.predict(row | {"city": [v]}) for v in ("Paris", "Bonn", None))
    assert rare == unseen == gap
    assert rare != model.predict(row | {"city": ["Oslo"]})


def test_list_columns():
    rng = np.random.default_rng(0)
    genres = [list(rng.choice(["noir", "war", "kids"], rng.integers(1, 3))) for _ in range(300)]
    y = np.array([("noir" in g) * 2.0 - ("war" in g) for g in genres])
    for cls in ESTIMATORS[2:4]:
        model = cls(random_state=0).fit({"genres": genres}, y)
        assert model.score({"genres": genres}, y) > 0.95
        assert set(model.model_.fields) == {-1}  # several in a row


@EVERY
@pytest.mark.parametrize("frame", [
    {"a": ["x"] * 60}, {"a": ["x"] * 60, "b": [None] * 60}, {"a": [None] * 60, "b": [np.nan] * 60},
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:these columns say nothing", "ignore:the model has no basis")
def test_a_frame_that_says_nothing(cls, frame):
    model = cls(alpha=0.5, random_state=0).fit(frame, np.arange(60) % 2)
    assert len(np.unique(model.predict(frame))) == 1


@EVERY
@pytest.mark.filterwarnings("ignore:these columns say nothing", "ignore:the model has no basis")
def test_a_column_of_gaps_beside_a_number(cls):
    """All pairs are within a field, so Gamma is nothing but rounding errors."""
    x = np.random.default_rng(0).standard_normal(120)
    frame = {"x": x, "gaps": [None] * 120}
    y = (x > 0).astype(int)
    assert cls(alpha=0.5, random_state=0).fit(frame, y).score(frame, y) > 0.5


def test_encoder_is_a_transformer():
    table, _ = columns()
    frame = as_frame(table, "pandas")
    encoder = fastpoly.TableEncoder(shapes="hinges").set_output(transform="pandas")
    found = encoder.fit_transform(frame)
    assert list(found.columns) == list(encoder.get_feature_names_out())
    assert {"city=Oslo", "sun=True", "age", "age=<missing>"} <= set(found.columns)
    assert any(name.startswith("size > ") for name in found.columns)
    sparse = fastpoly.TableEncoder(shapes="hinges", sparse_output=True).fit(frame).transform(frame)
    np.testing.assert_array_equal(sparse.toarray(), found)
    from fastpoly.tables import TableEncoder

    assert TableEncoder is fastpoly.TableEncoder


@parametrize_with_checks([fastpoly.TableEncoder()])
def test_encoder_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", REGRESSORS)
def test_warm_start_where_gaps_are_filled(cls):
    """The rows have the columns of the earlier fit, also where they could do without."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 60))
    gaps = {"a": np.where(np.arange(60) % 7 == 0, np.nan, a), "b": b}
    model = cls(alpha=0.1, shapes=None, n_components=2, warm_start=True, random_state=0)
    names = list(model.fit(gaps, a * b).model_.feature_names)
    model.set_params(n_components=4).fit({"a": a, "b": b}, a * b)
    assert list(model.model_.feature_names) == names
    assert model.score({"a": a, "b": b}, a * b) > 0.6
