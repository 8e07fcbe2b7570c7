"""Fits and predictions at the same time, in threads and processes: the bits of serial ones."""

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import concurrent_fits
import numpy as np
import pytest
from concurrent_fits import OPTIONS, answer, fitted
from estimator_cases import ALL, CLASSIFIERS, REGRESSORS, targets
from joblib import Parallel, delayed, parallel_config
from sklearn.base import clone
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def serial():
    return [fitted(i) for i in range(12)]


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


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
    *_, last = model.staged_predict_proba(X)
    assert np.array_equal(P, last)
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
