"""Estimators of frames with text, bools, numbers and gaps."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import fastpoly
from fastpoly import PolyModel

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
