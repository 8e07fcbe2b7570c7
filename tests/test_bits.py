"""The same bits of H, V and history, whatever computes the sums over shards."""

from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import product
from multiprocessing import get_context

import pytest
from killing_workers import cluster
from shard_cases import KINDS, Case, bits

from fastpoly import Shards

PENALTIES = ("l1", "l1/l2", "l1/linf")
ACTIVATIONS = ("squared", "anova")
CASES = list(product(ACTIVATIONS, PENALTIES, KINDS))
HOW = {"alpha": 3.0, "n_components": 2, "block": 1, "max_iter": 6}
N_SHARDS = 7  # more than workers, and no power of two

# Dask's threads may leave resources open; these tests do not check that.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return {
        kind: Case(kind, n=200).write(tmp_path_factory.mktemp(kind), N_SHARDS) for kind in KINDS
    }


@pytest.fixture(scope="module")
def wanted(shards):
    """The digests of runs with one thread."""
    found = {
        (activation, penalty, kind): bits(shards[kind], activation, penalty=penalty, **HOW)
        for activation, penalty, kind in CASES
    }
    assert len(set(found.values())) == len(CASES)  # so a digest sees what was computed
    return found


def check(shards, wanted, place, cases, n_threads=1):
    """Compare runs somewhere, given as a function of shards, with those of one thread."""
    for activation, penalty, kind in cases:
        rows = place(shards[kind])
        found = bits(rows, activation, n_threads=n_threads, penalty=penalty, **HOW)
        assert found == wanted[activation, penalty, kind], (activation, penalty, kind)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads(shards, wanted, n_threads):
    check(shards, wanted, lambda rows: rows, CASES, n_threads)


def test_processes(shards, wanted):
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as executor:
        check(shards, wanted, lambda rows: rows.on(executor), CASES)


@contextmanager
def workers(n_workers):
    """Two workers are processes; the others are threads, which also get messages by sockets."""
    pytest.importorskip("distributed")
    from fastpoly.dask import on_cluster

    how = {} if n_workers == 2 else {"processes": False, "protocol": "tcp"}
    with cluster(n_workers, **how) as client:
        assert len(client.nthreads()) == n_workers
        yield lambda rows: on_cluster(rows, client)


def test_dask(shards, wanted):
    """Every penalty and kind of rows once."""
    cases = [(ACTIVATIONS[(1 + i) % 2], PENALTIES[i], KINDS[(2 + i) % 3]) for i in range(3)]
    with workers(2) as place:
        check(shards, wanted, place, cases)
        # Workers with little memory forget the gradients of rows, and compute them again.
        little = {"codes": Shards(shards["codes"].folder, memory=20e3)}
        check(little, wanted, place, [("anova", "l1/l2", "codes")])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "n_workers"), [*enumerate([1, 2, 3, 5])])
def test_dask_in_all_cases(shards, wanted, number, n_workers):
    """A third of the cases for each number of workers; bench/cluster_bits.py repeats more."""
    pairs = {(PENALTIES[(number + i) % 3], KINDS[i]) for i in range(3)}
    with workers(n_workers) as place:
        check(shards, wanted, place, [case for case in CASES if case[1:] in pairs])
