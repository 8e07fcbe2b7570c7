"""Test the installed package, never the uncompiled source tree beside the tests.

`python -m pytest` puts the working directory first on `sys.path`; taking the project root off it
makes `import fastpoly` find the installed (or editable) package whichever way pytest is started.
"""

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before it is held to one thread)
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]

# A shell lets what it starts in the background ignore Ctrl-C; the processes of tests inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These read the sources, the documentation or the benchmarks, and are left out where a wheel is
# tested without them (.ci/wheel).
if not (ROOT / "meson.build").exists():
    collect_ignore = [
        "test_datasets.py",
        "test_doctests.py",
        "test_experiments.py",
        "test_layering.py",
        "test_packaging.py",
    ]


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Threads of BLAS and tests in other processes fight for the cores: 15 times as slow."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def two_blas_threads():
    """As users have them, for tests of what BLAS may do to the rest."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def data():
    """X (120, 5), and a score with interactions and a linear term."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 5))
    return X, X[:, 0] * X[:, 1] + 0.7 * X[:, 2] + 0.05 * rng.standard_normal(120)


@pytest.fixture(scope="module")
def all_threads():
    """Every pass uses all allowed threads, even where it is too short to need them."""
    from fastpoly.kernels.runtime import set_thread_seconds

    before = set_thread_seconds(0.0)
    yield
    set_thread_seconds(before)
