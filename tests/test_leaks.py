"""A thousand fits and predictions take no more memory than a few."""

import gc
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_cases import ALL, targets


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def fit_and_predict(i, X, score):
    """A small fit, each time of another estimator, storage and solver."""
    cls = ALL[i % len(ALL)]
    X = sp.csr_array(X) if i % 5 == 1 else X.astype(np.float32) if i % 5 == 2 else X
    options = ({}, {"fit_lower": "explicit"}, {"tau": 1.0}, {"refit": None})[i % 4]
    model = cls(n_components=2, alpha=0.5, random_state=i, max_iter=20, tol=0.1, **options)
    model.fit(X, targets(cls, score)).predict(X)
    if i % 50 == 0:
        with pytest.raises(ValueError, match="NaN"):
            model.fit(X, np.full(len(score), np.nan))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.filterwarnings("ignore::UserWarning")  # Python keeps the text of each one it shows
def test_a_thousand_fits_leak_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    score = X[:, 0] * X[:, 1] + X[:, 2]
    numbers = []
    for i in range(1200):
        if i in (200, 700):
            gc.collect()
            numbers.append((resident(), sys.getallocatedblocks()))
        fit_and_predict(i, X, score)
    gc.collect()
    numbers.append((resident(), sys.getallocatedblocks()))
    (_, blocks), (_, later), (_, last) = numbers
    # An object kept a fit, or an array of 60 rows, would be 1000 blocks or 480 kB.
    assert min(later - blocks, last - later) < 100
    growth = numbers[2][0] - numbers[0][0]
    assert growth < 400_000, numbers
