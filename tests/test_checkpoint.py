"""Interrupted fits continue with the same bits; files of other fits are refused."""

import json
import os
import random
import signal
from dataclasses import fields, replace

import killing
import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, CLASSIFIERS, JOINT, PAPER, REGRESSORS, targets

from fastpoly import Design, Joined, PathSearchCV, conditional_gradient, write_shards
from fastpoly.algorithm import train
from fastpoly.state import State
from fastpoly.storage.checkpoint import fingerprint, load_state, save_state
from fastpoly.storage.npz import read_arrays, write_arrays


class Cut(Exception):
    pass


@pytest.fixture
def cut(monkeypatch):
    """Make fits raise an exception after this many states."""

    def cut_after(n):
        def shorter(*args, **options):
            states = train(*args, **options)

            def some():
                for i, state in enumerate(states):
                    if i == n:
                        raise Cut
                    yield state

            return some()

        for module in ("estimators.base", "strengths"):
            monkeypatch.setattr(f"fastpoly.{module}.train", shorter)

    return cut_after


class Quadratic:
    """A loss of users, whose parameter does not show in its representation."""

    target = "real"

    def __init__(self, weight):
        self.weight = weight

    def value_grad(self, Y, O, w=None):
        D = self.weight * (O - Y) * (1.0 if w is None else w[:, None])
        return 0.5 * float(np.vdot(D, O - Y)), D

    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def smoothness(self, n_outputs):
        return self.weight

    def __repr__(self):
        return "<Quadratic object at 0x7f0000000000>"  # of an object that was at that address


def test_the_checkpoint_of_a_loss_with_another_parameter_is_refused(tmp_path, data):
    """At 5de635d it was accepted."""
    X, score = data
    how = {"alpha": 1.0, "alpha_linear": 1.0, "n_components": 2, "random_state": 0}
    how["checkpoint"] = tmp_path / "run.npz"
    first = REGRESSORS[0](loss=Quadratic(1.0), **how).fit(X, score)
    assert REGRESSORS[0](loss=Quadratic(1.0), **how).fit(X, score).model_ == first.model_
    with pytest.raises(ValueError, match="checkpoint of another fit"):
        REGRESSORS[0](loss=Quadratic(7.0), **how).fit(X, score)


def assert_same_fit(one, two, X):
    assert one.model_ == two.model_
    for name in ("n_iter_", "objective_", "violation_"):
        assert getattr(one, name) == getattr(two, name), name
    assert one.history_.keys() == two.history_.keys()
    for name in one.history_.keys() - {"seconds"}:
        np.testing.assert_array_equal(one.history_[name], two.history_[name], err_msg=name)
    for a, b in zip(one.staged_predict(X), two.staged_predict(X), strict=True):
        np.testing.assert_array_equal(a, b)


# Each of them takes at least four states.
OPTIONS = {
    "default": {"n_components": 20, "alpha": 0.005},
    "joint": {**JOINT, "max_iter": 30},
    "joint, explicit": {**JOINT, "fit_lower": "explicit"},
    "joint, l1": {**JOINT, "penalty": "l1"},
    "joint, l1/linf": {**JOINT, "penalty": "l1/linf"},
    "paper": PAPER,
    "paper, explicit": {**PAPER, "fit_lower": "explicit"},
    "single step": {"refit": None},
    "constrained": {"alpha": None, "tau": 5.0, "penalty": "l1"},
    "early stopping": {**JOINT, "early_stopping": True, "n_iter_no_change": 3},
    "optimal": {**JOINT, "alpha": 0.2, "n_components": 50, "tol": 0.05},
}


@pytest.mark.filterwarnings("ignore:the output layer is inaccurate")  # of single steps
@pytest.mark.parametrize(
    ("name", "cls"),
    [
        # The defaults of all six; of the others every option of every second one.
        pytest.param(name, cls, marks=[pytest.mark.slow] if name != "default" and i % 2 else [])
        for name in OPTIONS
        for i, cls in enumerate(ALL)
    ],
)
def test_an_interrupted_fit_ends_with_the_same_bits(cls, name, data, tmp_path, cut):
    X, score = data
    y = targets(cls, score)
    options = {"alpha": 0.1, "n_components": 6, "random_state": 0, "tol": 1e-3, **OPTIONS[name]}
    whole = cls(**options).fit(X, y)
    model = cls(checkpoint=tmp_path / "run.npz", checkpoint_every=0, **options)
    for n in (1, 2, 0):  # after the first state, then after two more, then before any
        cut(n)
        with pytest.raises(Cut):
            model.fit(X, y)
        assert not hasattr(model, "model_")
    cut(10**6)
    assert_same_fit(model.fit(X, y), whole, X)
    assert os.listdir(tmp_path) == ["run.npz"]
    # A finished fit is not repeated: another fit reads it from the file.
    cut(0)
    assert_same_fit(model.fit(X, y), whole, X)


def rows_of(kind, tmp_path):
    """120 rows of every form that a fit takes, and their targets; shards hold theirs."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(12, size=120), rng.integers(9, size=120)
    age = rng.standard_normal(12)
    likes = np.sin(item)
    score = 3 * age[user] * likes + np.cos(user + item) + 0.1 * rng.standard_normal(120)
    frame = {"user": list(map(str, user)), "item": list(map(str, item)), "age": age[user]}
    pair = np.column_stack([age[user], likes, np.cos(user), np.cos(item)]), score
    if kind == "frame":
        return frame, score
    if kind == "joined":
        rows = {"user": user, "item": item}
        return Joined(rows, user={"user": np.arange(12), "age": age}, item=None), score
    if kind == "shards":
        return write_shards(tmp_path / "shards", pair, rows_per_shard=40), None
    if kind == "shards of a frame":
        table, names = {**frame, "y": score}, ["user", "item"]
        how = {"one_hot": names, "numeric": ["age"], "target": "y"}
        return write_shards(tmp_path / "shards", table, **how, rows_per_shard=40), None
    return pair


@pytest.mark.parametrize("options", [{}, {"alpha": 0.1}], ids=["default", "alpha"])
@pytest.mark.parametrize("kind", ["array", "frame", "joined", "shards", "shards of a frame"])
def test_a_fit_resumes_at_every_round(kind, options, tmp_path, cut):
    """With the default alpha, as well, whose choice is repeated."""
    X, y = rows_of(kind, tmp_path)
    how = {"n_components": 4, "block": 1, "tol": 1e-3, "random_state": 0, **options}
    whole = REGRESSORS[1](**how).fit(X, y)
    rounds = len(whole.history_["objective"])
    assert rounds > 2 or not options  # after the walk, a round or two are left
    for n in range(rounds):
        path = tmp_path / f"run-{n}.npz"
        model = REGRESSORS[1](**how, checkpoint=path, checkpoint_every=0)
        cut(n)
        with pytest.raises(Cut):
            model.fit(X, y)
        assert path.exists() == (n > 0)
        cut(10**6)
        assert_same_fit(model.fit(X, y), whole, X)


def test_more_basis_vectors_than_before(data, tmp_path):
    """With one vector per round, the run does not depend on n_components."""
    X, score = data
    options = {"alpha": 0.01, "random_state": 0, "tol": 1e-3, **PAPER}
    model = REGRESSORS[0](checkpoint=tmp_path / "run", n_components=2, **options).fit(X, score)
    model.set_params(n_components=5).fit(X, score)
    assert_same_fit(model, REGRESSORS[0](n_components=5, **options).fit(X, score), X)
    with pytest.raises(ValueError, match="5 basis vectors, and n_components=4 is less"):
        model.set_params(n_components=4).fit(X, score)


def test_more_basis_vectors_in_blocks(data, tmp_path):
    """Blocks depend on n_components, so the run differs, but it reaches the same optimum."""
    X, score = data
    options = {"alpha": 0.01, "random_state": 0}
    model = REGRESSORS[0](checkpoint=tmp_path / "run", n_components=4, **options).fit(X, score)
    before = model.history_["objective"].copy()
    model.set_params(n_components=12).fit(X, score)
    assert model.n_components_ > 4
    np.testing.assert_array_equal(model.history_["objective"][: len(before)], before)
    assert (np.diff(model.history_["objective"]) <= 0).all()
    straight = REGRESSORS[0](n_components=12, **options).fit(X, score)
    assert model.objective_ == pytest.approx(straight.objective_, rel=1e-3)


@pytest.mark.parametrize("cls", [CLASSIFIERS[1], REGRESSORS[0]])
def test_a_run_without_a_seed_keeps_its_own(cls, data, tmp_path, cut):
    """Each resumption holds out the rows that the first one held out."""
    X, score = data
    options = {"alpha": 0.01, "n_components": 6, "early_stopping": True, "n_iter_no_change": 2}
    options |= JOINT
    path = tmp_path / "run.npz"
    model = cls(checkpoint=path, checkpoint_every=0, **options)
    cut(2)
    with pytest.raises(Cut):
        model.fit(X, targets(cls, score))
    record = json.loads(bytes(read_arrays(path)["record"]))
    seeds = [record["seed"], record["state"]["seed"]]
    cut(10**6)
    model.fit(X, targets(cls, score))
    record = json.loads(bytes(read_arrays(path)["record"]))
    assert [record["seed"], record["state"]["seed"]] == seeds
    assert len(set(record["scores"])) > 1

    class Seeds(np.random.RandomState):
        def randint(self, *_):
            return seeds.pop(0)

    whole = cls(random_state=Seeds(), **options).fit(X, targets(cls, score))
    assert whole.model_ == model.model_


@pytest.mark.parametrize("mode", [PAPER, JOINT], ids=["paper", "joint"])
def test_unseen_features_and_sparse_data(mode, tmp_path, cut):
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.1, rng=rng, format="csr")
    X = sp.csr_array(X * (np.arange(30) != 7))
    y = rng.standard_normal((200, 2))
    options = {"alpha": 1e-2, "n_components": 5, "random_state": 0, "tol": 1e-3, **mode}
    options["fit_lower"] = "augment"
    model = REGRESSORS[1](checkpoint=tmp_path / "run", checkpoint_every=0, **options)
    cut(3)
    with pytest.raises(Cut):
        model.fit(X, y)
    cut(10**6)
    assert_same_fit(model.fit(X, y), REGRESSORS[1](**options).fit(X, y), X)
    assert not model.components_[:, 8].any()


def test_written_at_intervals(data, tmp_path, monkeypatch):
    X, score = data
    writes, clock = [], [0.0]
    monkeypatch.setattr(
        "fastpoly.estimators.base.write_record", lambda *args: writes.append(clock[0])
    )

    def tick():
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr("fastpoly.estimators.base.monotonic", tick)
    options = {"alpha": 1e-3, "n_components": 6, "random_state": 0, "checkpoint": tmp_path / "run"}
    options |= {"tol": 1e-3, **PAPER}
    REGRESSORS[0](checkpoint_every=0, **options).fit(X, score)
    assert len(writes) == 8  # after every round, and at the end
    writes.clear()
    REGRESSORS[0](checkpoint_every=3, **options).fit(X, score)
    assert 2 <= len(writes) <= 5
    writes.clear()
    REGRESSORS[0](**options).fit(X, score)
    assert len(writes) == 1  # at the end


# ---- what is refused -----------------------------------------------------------------------------


def other_fits(X, y):
    yield {}, X + 1e-12, y
    yield {}, X.astype(np.float32), y
    yield {}, sp.csr_array(X), y
    yield {}, X[::-1], y
    yield {}, X, np.roll(y, 1)
    yield {"alpha": 0.2}, X, y
    yield {"alpha": None, "tau": 1.0}, X, y
    yield {"penalty": "l1"}, X, y
    yield {"fit_lower": "augment"}, X, y
    yield {"standardize": False}, X, y
    yield {"refit": "output"}, X, y
    yield {"block": 1}, X, y
    yield {"early_stopping": True}, X, y
    yield {"random_state": 1}, X, y


def test_a_checkpoint_of_another_fit_is_refused(data, tmp_path):
    X, score = data
    y = targets(CLASSIFIERS[0], score)
    path = tmp_path / "run.npz"
    options = {"alpha": 0.1, "n_components": 3, "random_state": 0, "checkpoint": path}
    CLASSIFIERS[0](**options).fit(X, y)
    before = path.read_bytes()
    for more, other, labels in other_fits(X, y):
        with pytest.raises(ValueError, match=r"run\.npz is the checkpoint of another fit.*delete"):
            CLASSIFIERS[0](**{**options, **more}).fit(other, labels)
    with pytest.raises(ValueError, match="another fit"):
        CLASSIFIERS[0](**options).fit(X, y + 1)  # other classes, the same codes
    with pytest.raises(ValueError, match="another fit"):
        CLASSIFIERS[0](**options).fit(X, y, sample_weight=np.full(len(y), 2.0))
    with pytest.raises(ValueError, match="another fit"):
        CLASSIFIERS[1](**options).fit(X, y)
    assert path.read_bytes() == before
    # What does not change the model does not matter.
    CLASSIFIERS[0](**options).set_params(verbose=2, checkpoint_every=5, n_threads=1).fit(X, y)


def test_bad_parameters(data, tmp_path):
    X, score = data
    for options, error, message in (
        ({"checkpoint": 3}, TypeError, "path of a file"),
        ({"checkpoint": tmp_path}, ValueError, "file in an existing folder"),
        ({"checkpoint": tmp_path / "none" / "run"}, ValueError, "existing folder"),
        ({"checkpoint": tmp_path / "run", "warm_start": True}, ValueError, "warm_start"),
        ({"checkpoint_every": -1}, ValueError, "checkpoint_every"),
        ({"checkpoint_every": "often"}, TypeError, "checkpoint_every"),
    ):
        with pytest.raises(error, match=message):
            REGRESSORS[0](**options).fit(X, score)
    with pytest.raises(ValueError, match="checkpoint=None"):
        PathSearchCV(REGRESSORS[0](checkpoint=tmp_path / "run")).fit(X, score)


@pytest.fixture
def saved(data, tmp_path):
    """A model with a checkpoint of it, and its arrays."""
    X, score = data
    path = tmp_path / "run.npz"
    model = REGRESSORS[1](
        alpha=0.01, n_components=3, random_state=0, tol=1e-3, early_stopping=True,
        checkpoint=path, **PAPER,
    )  # fmt: skip
    model.fit(X, score)
    return model, dict(read_arrays(path))


# Arrays by their names; scalars by their names in the JSON record, after a slash. None: left out.
FORGED = {
    "version": {"/version": 1},
    "no version": {"/version": None},
    "version is text": {"/version": "2"},
    "no record": {"record": None},
    "not JSON": {"record": np.frombuffer(b"{", dtype=np.uint8)},
    "deep JSON": {"record": np.frombuffer(b"[" * 100_000, dtype=np.uint8)},
    "not a dictionary": {"record": np.frombuffer(b"[1]", dtype=np.uint8)},
    "no H": {"state.H": None},
    "H of another length": {"state.H": np.ones((2, 5))},
    "H with NaN": {"state.H": np.full((3, 5), np.nan)},
    "H of integers": {"state.H": np.ones((3, 5), dtype=np.int64)},
    "H flat": {"state.H": np.ones(15)},
    "other outputs": {"state.intercept": np.ones(2)},
    "linear": {"state.linear": np.ones((4, 1))},
    "no linear": {"state.linear": None},
    "vectors": {"state.vectors": np.ones((1, 9))},
    "stop": {"/state/stop": "why not"},
    "n_iter": {"/state/n_iter": -1},
    "n_iter is true": {"/state/n_iter": True},
    "seed": {"/state/seed": "__import__('os')"},
    "seed below 0": {"/state/seed": -1},
    "timings": {"/state/timings": [1.0] * 4},
    "timings of text": {"/state/timings": ["1"] * 3},
    "no dual norm of the rows": {"/state/own_dual_norm": None},
    "dual norms of the rows": {"/state/own_dual_norm": [1.0, 1.0]},
    "objective": {"/state/objective": float("nan")},
    "state of text": {"/state": "none"},
    "row outside the pool": {"stages.H": np.full(6, 10**9)},
    "row before the pool": {"stages.H": np.full(6, -1)},
    "sizes": {"stages.sizes": np.array([2**62, 2**62, 2**62, 2**62 + 6])},
    "sizes below 0": {"stages.sizes": np.array([-1, 2, 2, 3])},
    "no sizes": {"stages.sizes": np.zeros(0, dtype=np.int64)},
    "rounds": {"/rounds": -1},
    "pool": {"stages.pool": np.ones((3, 6))},
    "numbers": {"stages.numbers": np.ones((4, 3))},
    "scores": {"/scores": [1.0] * 3},
    "no scores": {"/scores": []},
    "scores with NaN": {"/scores": [float("nan")] * 4},
    "split seed": {"/seed": "x"},
    "unknown": {"more": np.ones(1)},
    "best of another shape": {"best.H": np.ones((3, 4))},
    "no best": {"/best": None},
}


def forged(arrays, changes):
    """The arrays of a checkpoint with some of its arrays and scalars replaced."""
    arrays = dict(arrays)
    record = json.loads(bytes(arrays["record"]))
    for name, value in changes.items():
        if not name.startswith("/"):
            arrays[name] = value
            continue
        *path, last = name.split("/")[1:]
        place = record
        for key in path:
            place = place[key]
        place[last] = value
        if value is None:
            del place[last]
    if "record" not in changes:
        arrays["record"] = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
    return {k: v for k, v in arrays.items() if v is not None}


@pytest.mark.parametrize("name", FORGED)
def test_forged_checkpoints_are_refused(name, saved, data):
    X, score = data
    model, arrays = saved
    write_arrays(model.checkpoint, forged(arrays, FORGED[name]))
    before = dict(vars(model))
    with pytest.raises(ValueError, match=r"run\.npz is not a usable checkpoint: .*; delete"):
        model.fit(X, score)
    assert vars(model) == before


def test_arrays_of_a_checkpoint_are_as_the_forgeries_expect(saved, data):
    """The arrays have the shapes that the forgeries assume, so no other error hides a check."""
    model, arrays = saved
    assert arrays["state.H"].shape == arrays["stages.pool"].shape == (3, 5)
    assert arrays["stages.H"].shape == (6,)
    assert arrays["stages.sizes"].tolist() == [0, 1, 2, 3]
    assert arrays["state.linear"].shape == (5, 1)
    record = json.loads(bytes(arrays["record"]))
    assert len(record["state"]["timings"]) == 3
    assert len(record["scores"]) == record["rounds"] == 4
    assert isinstance(record["state"]["own_dual_norm"], float)
    write_arrays(model.checkpoint, forged(arrays, {}))
    model.fit(*data)


# ---- the state alone -----------------------------------------------------------------------------


def test_states_come_back_whole(tmp_path, data):
    X, score = data
    path = tmp_path / "state.npz"
    for lower, options in ((None, {"tau": 3.0}), ("explicit", {"alpha": 0.1})):
        design = Design(X, fit_lower=lower)
        states = conditional_gradient(
            design, score[:, None], loss="squared", n_components=3, random_state=10**30, **options
        )
        for state in states:
            save_state(path, state, "me")
            loaded = load_state(path, "me")
            assert np.isfinite(loaded.own_dual_norm)
            assert loaded.timings.keys() == {"gradient", "selection", "refit"}
            for field in fields(State):
                here, there = getattr(state, field.name), getattr(loaded, field.name)
                if field.name == "memory":
                    assert here[:2] == there[:2]
                    np.testing.assert_array_equal(there.vectors, here.vectors)
                    continue
                np.testing.assert_array_equal(there, here, err_msg=field.name)
                assert type(here) is type(there) or np.isscalar(here), field.name
    with pytest.raises(ValueError, match="another fit"):
        load_state(path, "you")
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "none", "me")
    save_state(path, replace(state, stop=None, alpha=1))
    assert (load_state(path).stop, load_state(path).alpha) == (None, 1.0)


def test_fingerprints_tell_things_apart():
    X = np.eye(3)
    parts = [
        (X,), (X, None), (X, ""), (None, X), (X.astype("f4"),), (X[:1],), (X.reshape(1, 9),),
        (sp.csr_array(X),), (sp.csc_array(X),), (sp.csr_array(X * 2),), ("ab", "c"), ("a", "bc"),
        (np.array(["a", None], dtype=object),), (np.array(["a"]),), (np.array(["b"]),),
    ]  # fmt: skip
    assert len({fingerprint(*p) for p in parts}) == len(parts)
    assert fingerprint(X) == fingerprint(np.asfortranarray(X))


# ---- processes that are killed -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no such signals to send to a process")
@pytest.mark.parametrize(
    ("kind", "signum"),
    [
        ("network", "SIGKILL"), ("machine", "SIGKILL"), ("ordinal", "SIGKILL"),
        ("ordinal", "SIGTERM"), ("machine", "SIGINT"),
    ],
)  # fmt: skip
def test_killed_at_any_moment(kind, signum, tmp_path):
    """`python tests/killing.py` does this many times."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    killing.fit(kind, whole)
    moment = random.Random(kind + signum).uniform(0, 0.08)
    assert killing.kill(kind, killed, moment, getattr(signal, signum))
    killing.fit(kind, killed)
    assert killing.results(killed) == killing.results(whole)
