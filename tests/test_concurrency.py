"""Fits and predictions at the same time, in threads and processes: the bits of serial ones."""

import hashlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import concurrent_fits
import numpy as np
import pandas as pd
import pytest
from concurrent_fits import OPTIONS, answer, fitted
from estimator_cases import ALL, CLASSIFIERS, ORDINAL, REGRESSORS, targets
from joblib import Parallel, delayed, parallel_config
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

import fastpoly
from fastpoly.estimators import prediction
from fastpoly.kernels.blas_threads import one_blas_thread


@pytest.fixture(scope="module")
def serial():
    return [fitted(i) for i in range(12)]


pytestmark = [
    pytest.mark.usefixtures("two_blas_threads"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def test_separate_estimators_in_threads(serial):
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fitted, range(12))) == serial


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_joblib(serial, backend):
    with parallel_config(backend, n_jobs=2):
        assert Parallel()(delayed(fitted)(i) for i in range(12)) == serial


def nested(i):
    with threadpool_limits(limits=1 + i % 2), ThreadPoolExecutor(3) as pool:
        one, two = pool.map(fitted, [i, i])
        assert one == two
        return one


def test_pools_in_pools(serial):
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(nested, range(6))) == serial[:6]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(serial, method):
    """Forked while our threads run: the child does not have them, and must not wait for them."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method}")
    chosen = [1, 2, 5] if method == "fork" else [4]
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=answer, args=(queue, i)) for i in chosen]
    for child in children:
        child.start()
    answers = dict(queue.get(timeout=120) for _ in chosen)
    for child in children:
        child.join(timeout=60)
        assert child.exitcode == 0
    assert answers == {i: serial[i] for i in chosen}


def components(cls, X, y):
    model = cls(alpha=10.0, n_components=6, n_threads=1, random_state=0)
    return model.fit(X, y).components_


@pytest.mark.parametrize("cls", [CLASSIFIERS[0], REGRESSORS[1], ORDINAL[0]])
@pytest.mark.parametrize(("n", "d"), [(2000, 30), (12000, 5)])
def test_the_bits_depend_neither_on_the_thread_nor_on_the_threads_of_blas(cls, n, d):
    """BLAS splits a product of 2000 x 30, and a sum of more than 10,000 rows, between threads."""
    X = np.random.default_rng(0).standard_normal((n, d))
    y = targets(cls, X[:, 0] * X[:, 1] + 0.1 * X[:, 2])
    want = components(cls, X, y)
    with ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(pool.submit(components, cls, X, y).result(), want)
        with one_blas_thread():
            np.testing.assert_array_equal(pool.submit(components, cls, X, y).result(), want)
    for limit in (1, 2):
        with threadpool_limits(limits=limit):
            np.testing.assert_array_equal(components(cls, X, y), want)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(300, 12), (12000, 3)])
def test_the_bits_do_not_depend_on_the_order_of_memory(cls, weighted, shape):
    rng = np.random.default_rng(1)
    X = rng.standard_normal(shape) + 3
    y, w = targets(cls, X[:, 0] * X[:, 1] - 9), rng.random(len(X)) if weighted else None
    model = cls(alpha=0.01 * len(X), n_components=4, shapes=None, n_threads=1, random_state=0)
    want = model.fit(X, y, sample_weight=w).model_
    assert model.fit(np.asfortranarray(X), y, sample_weight=w).model_ == want
    assert model.fit(pd.DataFrame(X), y, sample_weight=w).model_ == want
    wide = np.zeros((len(X), 2 * shape[1]))
    wide[:, ::2] = X
    assert model.fit(wide[:, ::2], y, sample_weight=w).model_ == want


class ByMessage(Executor):
    """Runs tasks at once. Their arrays come from a message, at odd addresses, as in Dask."""

    def submit(self, task, *arguments):
        buffers = []
        message = pickle.dumps(arguments, protocol=5, buffer_callback=buffers.append)
        received = [np.zeros(len(b.raw()) + 1, dtype=np.uint8)[1:] for b in buffers]
        for copy, b in zip(received, buffers, strict=True):
            copy[:] = np.frombuffer(b.raw(), dtype=np.uint8)
        future = Future()
        future.set_result(task(*pickle.loads(message, buffers=received)))
        return future


def test_the_bits_do_not_depend_on_the_addresses_of_a_message(tmp_path):
    X = np.random.default_rng(0).standard_normal((800, 30))
    y = np.digitize(X[:, 0] * X[:, 1], [-0.5, 0.5])
    shards = fastpoly.write_shards(tmp_path / "rows", [(X, y)], rows_per_shard=200)
    want = components(CLASSIFIERS[0], shards, None)
    got = components(CLASSIFIERS[0], shards.on(ByMessage()), None)
    np.testing.assert_array_equal(got, want)


FORKING = """
import os, signal, threading, time
import numpy as np
from fastpoly import PolynomialNetworkClassifier

X = np.random.default_rng(0).standard_normal((40, 3))
y = (X[:, 0] * X[:, 1] > 0).astype(int)
model = PolynomialNetworkClassifier(alpha=1.0, random_state=0)
want = model.fit(X, y).model_

def fit_for_ever():
    while True:
        PolynomialNetworkClassifier(alpha=1.0).fit(X, y)

threading.Thread(target=fit_for_ever, daemon=True).start()
for _ in range(60):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if model.fit(X, y).model_ == want else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
print("done", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_can_fit_while_another_thread_of_its_parent_does():
    done = subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", FORKING],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout == "done\n", done.stderr


def test_predictions_of_a_shared_estimator(data):
    X, score = data
    for cls in ALL:
        model = cls(n_threads=2, **OPTIONS).fit(X, targets(cls, score))
        want = model.predict(X).tobytes()
        with ThreadPoolExecutor(8) as pool:
            assert {p.tobytes() for p in pool.map(model.predict, [X] * 40)} == {want}


def test_predictions_while_a_shared_estimator_is_fitted(data):
    """Each belongs to the fit before or after, never to an unfinished one."""
    X, score = data
    few, many = np.digitize(score, [0.0]), np.array(list("abcd"))[np.digitize(score, [-1, 0, 1])]
    model = CLASSIFIERS[0](**OPTIONS).fit(X, few)
    allowed = {clone(model).fit(X, y).predict(X).tobytes() for y in (few, many)}
    over, seen, errors = threading.Event(), set(), []

    def predict():
        while not over.is_set():
            try:
                seen.add(model.predict(X).tobytes())
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=predict) for _ in range(4)]
    for thread in threads:
        thread.start()
    for y in (many, few) * 6:
        model.fit(X, y)
    over.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert seen <= allowed


@pytest.mark.parametrize("cls", [REGRESSORS[0], ORDINAL[0]])
def test_outputs_are_those_of_one_model(data, cls, monkeypatch):
    """Another thread ends a fit just when outputs are computed; 5de635d mixed two models."""
    X, score = data
    y = targets(cls, score) if cls is ORDINAL[0] else np.column_stack([score, -score])
    one = cls(**OPTIONS).fit(X, y)
    two = cls(**OPTIONS).fit(-3 * X + 1, np.roll(y, 7, axis=0))
    want, shared, outputs = one.decision_function(X), cls(), fastpoly.PolyModel.decision_function

    def late(model, *arguments):
        shared.__dict__ = two.__dict__
        return outputs(model, *arguments)

    monkeypatch.setattr(fastpoly.PolyModel, "decision_function", late)
    shared.__dict__ = dict(one.__dict__)
    np.testing.assert_array_equal(shared.decision_function(X), want)
    assert shared.__dict__ is two.__dict__


def test_features_are_those_of_one_model(data, monkeypatch):
    """Another thread ends a fit just when the rows are checked."""
    X, score = data
    one, two = (REGRESSORS[0](**OPTIONS).fit(X, y) for y in (score, np.roll(score, 7)))
    want, shared, checked = one.transform(X), REGRESSORS[0](), prediction.validate

    def late(*arguments, **options):
        shared.__dict__ = two.__dict__
        return checked(*arguments, **options)

    monkeypatch.setattr(prediction, "validate", late)
    shared.__dict__ = dict(one.__dict__)
    np.testing.assert_array_equal(shared.transform(X), want)


def test_fits_of_one_estimator_in_threads(data):
    X, score = data
    model = REGRESSORS[0](**OPTIONS)
    want = clone(model).fit(X, score).model_
    with ThreadPoolExecutor(6) as pool:
        for done in pool.map(lambda _: model.fit(X, score), range(12)):
            assert done is model
    assert model.model_ == want


def test_another_process_gives_the_same_bits(serial):
    done = subprocess.run(
        [sys.executable, concurrent_fits.__file__, *map(str, range(12))],
        capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [hashlib.sha256(b"".join(bits)).hexdigest() for bits in serial]


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals")
def test_interruptions_leave_blas_its_threads():
    def interrupt(*_):
        raise KeyboardInterrupt

    def enter_and_leave(seconds):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            with one_blas_thread():
                pass

    before, handler = blas_threads(), signal.signal(signal.SIGALRM, interrupt)
    assert set(before) == {2}
    try:
        for i in range(200):
            with pytest.raises(KeyboardInterrupt):
                enter_and_leave(1e-4 + 1e-6 * i)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert blas_threads() == before


INTERRUPTED = """
import signal, warnings
import numpy as np
import fastpoly
warnings.simplefilter("ignore")
armed = False

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
X = np.random.default_rng(0).standard_normal((300, 8))
score = X[:, 0] * X[:, 1] + X[:, 2]
few, many = np.digitize(score, [0.0]), np.digitize(score, [-1, 0, 1])
model = fastpoly.PolynomialNetworkClassifier(n_components=12, alpha=0.1, random_state=0)
whole = {len(np.unique(y)): model.fit(X, y).predict_proba(X) for y in (few, many)}
print("ready", flush=True)
interrupts = 0
while interrupts < 15:
    try:
        armed = True
        model.fit(X, few)
        model.fit(X, many)
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
    # Either the old model or the new one, but of one piece.
    P = model.predict_proba(X)
    assert len(model.classes_) == P.shape[1] == model.output_weights_.shape[1]
    assert np.array_equal(P, whole[P.shape[1]])
    *_, last = model.staged_predict(X)
    assert np.array_equal(model.predict(X), last)
print("sound", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to send to a process")
def test_interruptions_leave_the_old_model_or_the_new_one():
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", INTERRUPTED],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        rng = np.random.default_rng(0)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(rng.uniform(0.01, 0.2))
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert out == "sound\n", err
