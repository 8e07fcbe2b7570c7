"""A thousand fits and predictions take no more memory than a few."""

import gc
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, targets
from subprocesses import run_python


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def fit_and_predict(i, X, score):
    """A small fit, each time of another estimator, storage and solver."""
    cls = ALL[i % len(ALL)]
    X = sp.csr_array(X) if i % 5 == 1 else X.astype(np.float32) if i % 5 == 2 else X
    options = ({}, {"fit_lower": "explicit"}, {"alpha": None, "tau": 1.0}, {"refit": None})[i % 4]
    options = {"alpha": 0.5, **options}
    model = cls(n_components=2, random_state=i, max_iter=20, tol=0.1, **options)
    model.fit(X, targets(cls, score)).predict(X)
    if i % 50 == 0:
        with pytest.raises(ValueError, match="NaN"):
            model.fit(X, np.full(len(score), np.nan))


def measure():
    """Bytes and blocks after 200, 700 and 1200 fits."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    score = X[:, 0] * X[:, 1] + X[:, 2]
    numbers = []
    for i in range(1201):
        if i in (200, 700, 1200):
            gc.collect()
            numbers.append((resident(), sys.getallocatedblocks()))
        fit_and_predict(i, X, score)
    return numbers


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_a_thousand_fits_leak_nothing():
    """In a separate process, without the memory of other tests and their runner."""
    # Python keeps the text of each warning that it shows.
    code = f"""
import json, sys, warnings
sys.path.insert(0, {str(Path(__file__).parent)!r})
warnings.simplefilter("ignore", UserWarning)
import test_leaks
print(json.dumps(test_leaks.measure()))
"""
    numbers = json.loads(run_python(code, timeout=600))
    # An object kept per fit would be 500 blocks in each half, an array of 60 rows 240 kB. What is
    # allocated once falls into one half.
    nbytes, blocks = np.diff(numbers, axis=0).min(axis=0)
    assert blocks < 100, numbers
    assert nbytes < 200_000, numbers
