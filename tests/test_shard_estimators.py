"""The estimators on rows in files: the model of the same rows in memory."""

import tracemalloc
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, CLASSIFIERS, ORDINAL, REGRESSORS, targets
from shard_cases import Case
from sklearn.base import clone

from fastpoly import PathSearchCV, PolyModel, write_shards
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.rows import as_rows
from fastpoly.rows import shards as stored
from fastpoly.rows.engine import ThreadEngine

pd = pytest.importorskip("pandas")

KINDS = {"dense": np.asarray, "csr": sp.csr_array}


def written(folder, X, y, n_shards=4, w=None):
    batch = (X, y) if w is None else (X, y, w)
    return write_shards(folder, [batch], rows_per_shard=-(-X.shape[0] // n_shards))


@pytest.fixture
def binary(data):
    """Features of 0, 1 and -1, of which one is 1: the units of CSR shards are those in memory."""
    X, score = data
    X = np.sign(np.where(np.abs(X) < 0.5, 0, X))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * score


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", ALL)
def test_the_model_of_the_rows_in_memory(cls, kind, binary, tmp_path):
    X, score = binary
    X, y = KINDS[kind](X), targets(cls, score)
    shards = written(tmp_path, X, y)
    model = cls(alpha=0.5, alpha_linear=1.0, random_state=0, tol=1e-4, n_components=20)
    memory, files = clone(model).fit(X, y), clone(model).fit(shards)
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-4)
    assert isinstance(files.model_, PolyModel)
    np.testing.assert_allclose(files.predict(shards), files.predict(X), rtol=1e-9, atol=1e-9)
    if hasattr(files, "predict_proba"):
        np.testing.assert_allclose(files.predict_proba(shards), files.predict_proba(X), atol=1e-12)
        assert list(files.classes_) == list(memory.classes_)
        np.testing.assert_allclose(files.predict_proba(X), memory.predict_proba(X), atol=0.02)
    for given in ((shards,), (shards, shards.targets())):
        assert files.score(*given) == pytest.approx(files.score(X, y))
    stages = list(files.staged_predict(shards))
    np.testing.assert_array_equal(stages[-1], files.predict(shards))


@pytest.mark.parametrize("cls", ALL)
def test_features_of_any_scale(cls, data, tmp_path):
    """Dense shards are standardized from their statistics."""
    X, score = data
    y = targets(cls, score)
    X = X * [1, 1e3, 1e-3, 5, 1] + [0, 10, 0, -3, 7]
    model = cls(alpha=1.0, random_state=0, tol=1e-3)
    memory, files = clone(model).fit(X, y), clone(model).fit(written(tmp_path, X, y))
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-3)
    np.testing.assert_allclose(files.predict(X), memory.predict(X), rtol=0.02, atol=0.02)


def test_weights_labels_and_several_targets(data, tmp_path):
    X, score = data
    w = np.arange(len(X)) % 3 + 0.5
    model = CLASSIFIERS[0](alpha=1.0, random_state=0, tol=1e-3)
    memory = clone(model).fit(X, score > 0, sample_weight=w)
    files = clone(model).fit(written(tmp_path / "w", X, (score > 0).astype(int), w=w))
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-3)
    labels = np.column_stack([score > 0, X[:, 0] > 0]).astype(float)
    files = clone(model).fit(written(tmp_path / "labels", X, labels))
    memory = clone(model).fit(X, labels.astype(int))
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-3)
    assert files.predict(X).shape == (len(X), 2)
    Y = np.column_stack([score, 100 * X[:, 2] * X[:, 3] + 50])
    model = REGRESSORS[0](alpha=1.0, random_state=0, tol=1e-3)
    files = clone(model).fit(written(tmp_path / "numbers", X, Y))
    memory = clone(model).fit(X, Y)
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-3)
    np.testing.assert_allclose(files.predict(X), memory.predict(X), rtol=0.02, atol=0.2)


@pytest.mark.parametrize("cls", [CLASSIFIERS[0], REGRESSORS[1], ORDINAL[1]])
def test_sparse_columns_of_any_scale(cls, data, tmp_path):
    """Each is divided by its own largest |x|, over all shards: the fit in memory."""
    X, score = data
    X = np.where(np.abs(X) < 0.4, 0, X) * [1e-4, 1, 1e5, 30, 2]
    X[:5, 1] = 0, 0, 9, 0, 0  # the largest entry of a column is in only one shard
    y = targets(cls, score)
    for dtype in (np.float64, np.float32):
        rows = sp.csr_array(X.astype(dtype))
        shards = written(tmp_path / dtype.__name__, rows, y, n_shards=7)
        options = {"random_state": 0, "tol": 1e-8, "n_components": 30, "max_iter": 5000}
        model = cls(alpha=0.1, alpha_linear=1.0, **options)
        memory, files = (clone(model).fit(*each) for each in ((rows, y), (shards,)))
        assert files.objective_ == pytest.approx(memory.objective_, rel=1e-9)
        verb = "predict" if cls in REGRESSORS else "predict_proba"
        want, got = (getattr(each, verb)(rows) for each in (memory, files))
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_class_weight(kind, data, tmp_path):
    """Class weights also count in the units, which are part of the problem."""
    X, score = data
    X = KINDS[kind](X + (score > 1)[:, None])  # so that the means depend on the weights
    y = np.digitize(score, [-0.5, 1.0])
    shards = written(tmp_path, X, y)
    for class_weight in ("balanced", {0: 2.0, 1: 1.0, 2: 5.0}):
        options = {"alpha": 1.0, "tol": 1e-8, "max_iter": 5000}
        model = CLASSIFIERS[0](class_weight=class_weight, random_state=0, **options)
        memory, files = clone(model).fit(X, y), clone(model).fit(shards)
        assert files.objective_ == pytest.approx(memory.objective_, rel=1e-9)
        np.testing.assert_allclose(files.predict_proba(X), memory.predict_proba(X), atol=1e-3)


def test_weights_count_in_the_units_of_levels(data, tmp_path):
    """A regression whose targets are few numbers, which shards keep as levels."""
    X, score = data
    y, w = np.digitize(score, [-0.5, 1.0]) * 10.0, np.where(score > 1.0, 5.0, 0.5)
    model = REGRESSORS[0](alpha=1.0, random_state=0, tol=1e-8, max_iter=5000)
    memory = clone(model).fit(X, y, sample_weight=w)
    files = clone(model).fit(written(tmp_path, X, y, w=w))
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-9)
    np.testing.assert_allclose(files.predict(X), memory.predict(X), rtol=1e-3, atol=1e-3)


def test_names_of_levels(data, tmp_path):
    X, score = data
    names = np.array(["low", "middle", "high"])
    y = names[np.digitize(score, [-0.5, 0.5])]
    shards = written(tmp_path, X, y)
    with pytest.raises(ValueError, match="order of the levels"):
        ORDINAL[0]().fit(shards)
    model = ORDINAL[0](levels=names, alpha=1.0, random_state=0)
    memory, files = clone(model).fit(X, y), clone(model).fit(shards)
    assert list(files.classes_) == list(names)
    assert files.objective_ == pytest.approx(memory.objective_, rel=1e-3)


@pytest.mark.parametrize("cls", ALL)
def test_early_stopping_and_checkpoints(cls, data, tmp_path):
    X, score = data
    shards = written(tmp_path / "rows", X, targets(cls, score))
    options = {"alpha": 0.01, "block": 1, "n_components": 8, "early_stopping": True}
    options |= {"n_iter_no_change": 2, "random_state": 0}
    whole = cls(**options).fit(shards)
    scores = whole.history_["validation_score"]
    assert len(scores) > 2
    train, held = shards.split(0.75, 0.25, seed=0)
    assert whole.score(held, held.targets()) == pytest.approx(scores.max())
    assert len(held.targets()) + len(train.targets()) == len(X)
    path = tmp_path / "run.npz"
    first = cls(**{**options, "n_components": 3}, checkpoint=path).fit(shards)
    assert first.n_components_ <= 3
    again = cls(**{**options, "n_components": 3}, checkpoint=path).fit(shards)
    assert again.model_ == first.model_
    with pytest.raises(ValueError, match="another fit"):
        cls(**options, checkpoint=path).fit(train.take([0, 1]))


def test_early_stopping_weighs_the_rows_held_out(data, tmp_path):
    X, score = data
    y, w = targets(CLASSIFIERS[0], score), np.tile([1.0, 0.0], len(X) // 2)
    y = np.where(w > 0, y, (y + 1) % 3)  # rows without weight have wrong classes
    shards = written(tmp_path, X, y, w=w)
    model = CLASSIFIERS[0](alpha=0.1, early_stopping=True, random_state=0).fit(shards)
    _, held = shards.split(0.75, 0.25, seed=0)
    want = model.score(held, held.targets(), held.weights())
    assert model.history_["validation_score"].max() == pytest.approx(want)
    assert want > model.score(held, held.targets()) + 0.2


def test_a_fold_without_some_class_is_left_out(data, tmp_path):
    X, score = data
    y = (score > np.median(score)).astype(int)
    y[:3] = 2  # all of them in the first shard
    shards = written(tmp_path, X, y)
    folds = [(shards.take([0, 1, 2]), shards.take([3])), (shards.take([1, 2, 3]), shards.take([0]))]
    search = PathSearchCV(CLASSIFIERS[0](n_components=3, random_state=0), n_alphas=3, cv=folds)
    with pytest.warns(UserWarning, match="1 of 2 splits cannot be scored"):
        search.fit(shards)
    assert np.isfinite(search.best_score_)


def test_predictions_in_a_file(data, tmp_path):
    X, score = data
    shards = written(tmp_path / "rows", X, score)
    model = REGRESSORS[0](random_state=0).fit(shards)
    saved = model.predict(shards, out=tmp_path / "predictions.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "predictions.npy"), model.predict(shards))
    assert isinstance(saved, np.memmap)
    before = saved.copy()
    model.predict(X[:2], out=tmp_path / "predictions.npy")  # a file that is mapped is not truncated
    np.testing.assert_array_equal(saved, before)
    assert [path.name for path in tmp_path.glob("*.npy*")] == ["predictions.npy"]
    model.predict(X, out=tmp_path / "more.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "more.npy"), model.predict(X))


@pytest.mark.parametrize("cls", ALL)
def test_predictions_hold_the_outputs_of_one_shard_at_a_time(cls, tmp_path):
    """Nothing larger than the result and a few arrays of one shard is ever allocated."""
    rng = np.random.default_rng(0)
    n, n_shards = 40_000, 20
    X, y = rng.standard_normal((n, 3)), rng.integers(6, size=n)
    shards = written(tmp_path, X, y, n_shards)
    model = cls(n_components=1, alpha=1e4, max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(shards.take([0, 1]))
    want = model.predict(X)
    tracemalloc.start()
    try:
        found = model.predict(shards)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found, want)
    outputs = 8 * 6 * n
    assert peak < found.nbytes + 8 * outputs / n_shards < found.nbytes + outputs
    np.testing.assert_array_equal(list(model.staged_predict(shards))[-1], found)


def test_predictions_of_parts_of_shards(data, tmp_path):
    """Random parts, whose rows are fewer than those of the files, and empty ones."""
    X, score = data
    shards = written(tmp_path, X, score)
    model = REGRESSORS[0](random_state=0).fit(shards)
    whole = model.predict(shards)
    for part in (*shards.split(0.3, 0.7), shards.split(1e-9, 0.5)[0]):
        rows = [
            np.flatnonzero(shard.weights()) + first
            for shard, first in zip(part, range(0, 120, 30), strict=True)
        ]
        np.testing.assert_array_equal(model.predict(part), whole[np.concatenate(rows)])


def test_warm_start_continues(data, tmp_path):
    X, score = data
    shards = written(tmp_path, X, score)
    model = REGRESSORS[0](alpha=0.5, n_components=1, warm_start=True, random_state=0).fit(shards)
    first = model.objective_
    model.set_params(n_components=20).fit(shards)
    assert model.objective_ < first


@pytest.mark.parametrize("cv", [3, 0.3])
@pytest.mark.parametrize("cls", [CLASSIFIERS[0], REGRESSORS[1], ORDINAL[1]])
def test_path_search(cls, cv, data, tmp_path):
    X, score = data
    y = targets(cls, score)
    shards = written(tmp_path, X, y)
    model = cls(n_components=6, alpha_linear=1.0, random_state=0)
    search = PathSearchCV(model, n_alphas=4, cv=cv).fit(shards)
    assert search.n_splits_ == (3 if cv == 3 else 1)
    assert search.best_estimator_.n_features_in_ == 5
    assert search.predict(X).shape == (len(X),)
    assert search.score(shards) == pytest.approx(search.score(shards, shards.targets()))
    np.testing.assert_array_equal(search.transform(X), search.best_estimator_.transform(X))
    # The scores are those of fits of the folds, where these are accurate (full models are not).
    alpha = search.alphas_[1]
    folds = shards.folds(3, seed=0) if cv == 3 else [shards.split(0.7, 0.3, seed=0)]
    train, test = folds[0]
    model = clone(search.estimator).set_params(alpha=alpha, tol=1e-3).fit(train)
    table = search.cv_results_["split0_test_score"].reshape(4, 6)
    found = search.scorer_(model, test, test.targets())
    assert table[1, -1] == pytest.approx(found, abs=0.05)


def test_whole_shards_as_folds(data, tmp_path):
    X, score = data
    shards = written(tmp_path, X, score)
    folds = [(shards.take([0, 1, 2]), shards.take([3])), (shards.take([1, 2, 3]), shards.take([0]))]
    search = PathSearchCV(REGRESSORS[0](n_components=4, random_state=0), n_alphas=3, cv=folds)
    assert search.fit(shards).n_splits_ == 2


def test_bad_use(data, tmp_path):
    X, score = data
    shards = written(tmp_path / "a", X, score)
    with pytest.raises(ValueError, match="y must be None: shards hold their own"):
        REGRESSORS[0]().fit(shards, score)
    with pytest.raises(ValueError, match="sample_weight must be None"):
        REGRESSORS[0]().fit(shards, sample_weight=np.ones(len(X)))
    two = written(tmp_path / "two", X, np.column_stack([score, score]))
    with pytest.raises(ValueError, match="not levels"):
        ORDINAL[0]().fit(two)
    with pytest.raises(ValueError, match="5 features, but .* is expecting 3"):
        REGRESSORS[0]().fit(X[:, :3], score).predict(shards)
    words = written(tmp_path / "b", X, np.where(score > 0, "yes", "no"))
    with pytest.raises(ValueError, match="not numbers"):
        REGRESSORS[0]().fit(words)


@pytest.mark.parametrize("cls", ALL)
def test_the_same_bits_whatever_computes(cls, data, tmp_path):
    X, score = data
    shards = written(tmp_path, X, targets(cls, score), n_shards=5)
    one, two = (cls(random_state=0, n_threads=n).fit(shards) for n in (1, 2))
    others = [two]
    if cls is CLASSIFIERS[1]:
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            others.append(cls(random_state=0).fit(shards.on(pool)))
    for other in others:
        assert other.model_ == one.model_
        np.testing.assert_array_equal(other.history_["objective"], one.history_["objective"])


def test_wrong_folds_of_shards(data, tmp_path):
    X, score = data
    shards = written(tmp_path, X, score)
    model = REGRESSORS[0](n_components=2, random_state=0)
    for cv, error, message in (
        ([(shards,)], TypeError, "pairs of shards"),
        ([5], TypeError, "pairs of shards"),
        ([(np.arange(5), np.arange(5, 9))], TypeError, "pairs of shards"),
        (1.5, ValueError, "share of the rows"),
    ):
        with pytest.raises(error, match=message):
            PathSearchCV(model, alphas=[1.0], cv=cv).fit(shards)
    with pytest.raises(ValueError, match="groups must be None"):
        PathSearchCV(model, alphas=[1.0]).fit(shards, groups=np.arange(len(X)))


def mixed_table(n=900):
    """A frame of text, numbers and gaps, and targets that depend on their products."""
    rng = np.random.default_rng(0)
    city, day = rng.integers(9, size=n), rng.integers(7, size=n)
    age, size = rng.integers(18, 90, size=n).astype(float), rng.exponential(size=n).round(1)
    score = np.sin(city) * (age - 50) / 20 + (size > 1) * np.cos(day)
    table = pd.DataFrame(
        {"city": [f"city {i}" for i in city], "age": age, "day": pd.Categorical(day.astype(str)),
         "size": size, "once": [f"only {i}" if i < 5 else "often" for i in range(n)]}
    )  # fmt: skip
    table.loc[rng.random(n) < 0.1, "age"] = np.nan
    table.loc[rng.random(n) < 0.1, "city"] = None
    return table, score + 0.3 * rng.standard_normal(n)


def objective_of(model, X, y=None):
    """What a fit minimizes."""
    data = model._prepare(X, y, None)
    model._scaling = model._units(data)
    return model._objective(data)


@pytest.mark.parametrize(("batches", "shape"), [(1, "hinges"), (4, "steps")])
def test_a_table_in_memory_and_in_shards_is_the_same(tmp_path, batches, shape):
    """The same encoding, the same model to rounding, and predictions of frames."""
    table, score = mixed_table()
    how = {"alpha": 3.0, "alpha_linear": 1.0, "n_components": 3, "random_state": 0}
    for task, y in ((CLASSIFIERS[1], np.digitize(score, [-0.5, 0.5])), (REGRESSORS[1], score)):
        whole = table.assign(y=y)
        parts = [whole[i::batches] for i in range(batches)]
        order = np.concatenate([np.arange(len(table))[i::batches] for i in range(batches)])
        shards = write_shards(tmp_path, parts, target="y", rows_per_shard=250, overwrite=True)
        # Which rows are held out is not the same in memory and in shards, so the shape is given.
        memory = task(**how, shapes=shape).fit(table.iloc[order], y[order])
        stored = task(**how, shapes=shape).fit(shards)
        assert shards.encoding == memory.model_.encoding == stored.model_.encoding
        np.testing.assert_allclose(stored.objective_, memory.objective_, rtol=1e-4)
        answer = stored.predict if task is REGRESSORS[1] else stored.decision_function
        np.testing.assert_allclose(answer(table.iloc[order]), answer(shards), atol=1e-9)
        # The descents stop at a tolerance. What they minimize is the same to rounding:
        here = objective_of(clone(memory), table.iloc[order], y[order])
        there = objective_of(clone(stored), shards)
        x = np.random.default_rng(0).standard_normal(here.pack(here.empty_model()).size)
        g, h = np.empty_like(x), np.empty_like(x)
        value = there.smooth_value_grad(x, 0, h)
        np.testing.assert_allclose(here.smooth_value_grad(x, 0, g), value, rtol=1e-12)
        np.testing.assert_allclose(g, h, atol=1e-10 * np.abs(g).max())
        np.testing.assert_array_equal(stored.feature_names_in_, table.columns)


def test_shards_have_no_plain_numbers(tmp_path):
    table, score = mixed_table(300)
    shards = write_shards(tmp_path, table.assign(y=score), target="y")
    model = REGRESSORS[1](shapes="plain", alpha=5.0, random_state=0)
    with pytest.raises(ValueError, match="shapes must not be 'plain': shards hold the bins"):
        model.fit(shards)
    with pytest.raises(ValueError, match="plain columns of its table, and .* codes;"):
        model.fit(table, score).predict(shards)


def test_a_model_of_shards_serves_itself(tmp_path):
    """A saved model has the encoding: it predicts frames, with unseen levels, gaps and all."""
    table, score = mixed_table(300)
    shards = write_shards(tmp_path / "rows", table.assign(y=score > 0), target="y")
    model = CLASSIFIERS[1](alpha=5.0, n_components=2, random_state=0).fit(shards)
    model.model_.save(tmp_path / "model.npz")
    new = table[:5].assign(city=["nowhere", None, "city 1", "city 2", "city 3"])
    loaded = PolyModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    np.testing.assert_array_equal(loaded.predict(new[new.columns[::-1]]), model.predict(new))
    assert np.mean(model.predict(table) == shards.targets()) > 0.7


def test_networks_and_parts_of_coded_shards(tmp_path):
    table, score = mixed_table(400)
    shards = write_shards(tmp_path, table.assign(y=score), target="y", rows_per_shard=150)
    train, test = shards.split(0.7, 0.3)
    model = REGRESSORS[0](alpha=3.0, n_components=3, early_stopping=True, random_state=0).fit(train)
    assert model.score(test) > 0.2
    with_two = REGRESSORS[1](alpha=3.0, n_components=2, n_threads=2, random_state=0).fit(train)
    with_one = REGRESSORS[1](alpha=3.0, n_components=2, n_threads=1, random_state=0).fit(train)
    assert with_two.model_ == with_one.model_


def test_codes_of_another_table_are_refused(tmp_path):
    """They would mean other levels: the predictions would be garbage."""
    table, score = mixed_table(300)
    shards = write_shards(tmp_path / "a", table.assign(y=score), target="y")
    other = write_shards(tmp_path / "b", table[:200].assign(y=score[:200]), target="y")
    model = REGRESSORS[1](alpha=5.0, n_components=2, random_state=0).fit(shards)
    for use in (model.predict, model.score, model.set_params(warm_start=True).fit):
        with pytest.raises(ValueError, match="other levels or bins"):
            use(other)


def test_interactions_of_shards_have_names(tmp_path):
    case = Case("codes")
    shards = case.write(tmp_path, 3)
    fitted = REGRESSORS[1](alpha=5.0, n_components=4, random_state=0).fit(shards)
    other = "<other>"
    names = [f"user={i}" for i in [*range(12), other]] + [f"item={i}" for i in [*range(10), other]]
    assert list(shards.feature_names) == list(fitted.model_.feature_names) == names
    C = fitted.interaction_matrix()
    found = fitted.top_interactions(k=200, standardized=False)
    i, j, value = next(pair for pair in found if pair[0][:4] != pair[1][:4])
    assert value == pytest.approx(2 * C[names.index(i), names.index(j)])


def test_outputs_of_shards_that_overflow_are_an_error(data, tmp_path):
    """At 5de635d they were NaN, and classes made of NaN."""
    X, score = data
    model = CLASSIFIERS[0](alpha=0.1, n_components=2, random_state=0).fit(X, score > 0)
    huge = X[:6].copy()
    huge[1] = 1e200
    shards = written(tmp_path, huge, score[:6], n_shards=3)
    for verb in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="outputs overflow"):
            verb(shards)
    with pytest.raises(ValueError, match="outputs overflow"):
        model.predict(shards, out=tmp_path / "classes.npy")
    assert not (tmp_path / "classes.npy").exists()


@pytest.fixture
def passes(monkeypatch):
    """The names of the sums over all shards that are computed."""
    names, compute = [], ThreadEngine.sum

    def recorded(self, items, method, *arguments):
        names.append(method.__name__)
        return compute(self, items, method, *arguments)

    monkeypatch.setattr(ThreadEngine, "sum", recorded)
    return names


def test_a_good_fit_ends_with_the_certificate(data, tmp_path, passes):
    """What a warning would need is computed only where there may be one: it takes a pass."""
    X, score = data
    REGRESSORS[0](alpha=1.0, random_state=0).fit(written(tmp_path, X, score))
    assert passes.count("value_grad") > 0
    assert passes[-2] in ("conjugate", "gamma_matrices")
    assert passes[-1] == "shard_sums"  # for contributions


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_a_fit_makes_each_pass_once(data, tmp_path, passes, monkeypatch, kind, alpha):
    """Statistics once, nothing to build a problem, and no file is looked at twice."""
    X, score = data
    shards = written(tmp_path, KINDS[kind](X), targets(CLASSIFIERS[0], score))
    looked, identity = Counter(), stored.identity
    monkeypatch.setattr(stored, "identity", lambda path: looked.update([path]) or identity(path))
    CLASSIFIERS[0](alpha=alpha, random_state=0, n_components=4).fit(shards)
    assert passes[0] == "statistics"
    assert passes.count("statistics") == 1
    # Of all rows, and with the default alpha also of both parts of a split.
    for name in ("loss_at_zero", "weight"):
        assert passes.count(name) <= (1 if alpha else 3)
    assert set(looked.values()) == {1}
    assert len(looked) == 4 * len(shards[0].files)


def test_a_problem_needs_one_pass(data, tmp_path, passes):
    X, score = data
    rows = as_rows(written(tmp_path, X, score), loss="squared")
    problem = Problem.of(rows.loss, "l1/l2", rows.m, alpha=1.0)
    assert passes == ["statistics"]
    objectives = [Objective(problem, rows).at(alpha) for alpha in (1.0, 2.0)]
    assert objectives[0].small == objectives[1].small
    assert passes == ["statistics", "loss_at_zero"]
