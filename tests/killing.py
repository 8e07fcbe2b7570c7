"""Fits in a separate process that is killed, and the files that it leaves.

`python tests/killing.py --runs 50` does more often what `test_checkpoint.py` does a few times:
kill -9 at random moments, resume until the fit is done, compare with an uninterrupted fit.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fastpoly

KINDS = ("network", "machine", "ordinal")
RESULTS = ("model.npz", "history.npz")


def fit(kind, folder):
    """A fit of a few dozen rounds, each some milliseconds, with a file at every round: most kills
    hit a write or a round. The result is saved to the folder."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 8))
    score = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] + 0.5 * rng.standard_normal(600)
    options = {"alpha": 0.02, "n_components": 25, "block": 1, "random_state": 3, "n_threads": 1}
    options.update(checkpoint=Path(folder) / "checkpoint.npz", checkpoint_every=0)
    if kind == "network":
        model = fastpoly.PolynomialNetworkClassifier(refit="full", max_iter=50, **options)
        model.fit(X, np.digitize(score, [-0.5, 0.5]))
    elif kind == "machine":
        model = fastpoly.FactorizationMachineRegressor(
            refit="output", fit_lower="explicit", **options
        )
        model.fit(X, score)
    else:
        model = fastpoly.FactorizationMachineOrdinalRegressor(
            early_stopping=True, n_iter_no_change=12, **options
        )
        model.fit(X, np.digitize(score, [-1, 0, 1]))
    history = {name: values for name, values in model.history_.items() if name != "seconds"}
    stages = np.stack(list(model.staged_decision_function(X)))
    model.model_.save(Path(folder) / "model.npz")
    np.savez(Path(folder) / "history.npz", stages=stages, n_iter=model.n_iter_, **history)


def start(kind, folder):
    """The same in another process."""
    command = [sys.executable, "-P", "-W", "ignore", __file__, "--fit", kind, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(kind, folder):
    _, err = (process := start(kind, folder)).communicate(timeout=120)
    assert process.returncode == 0, f"exit status {process.returncode}: {err}"


def results(folder):
    """The bytes of all results of a fit."""
    return {name: (Path(folder) / name).read_bytes() for name in RESULTS}


def kill(kind, folder, moment, signum=signal.SIGKILL):
    """Send a signal `moment` seconds after the first checkpoint; return whether it still ran."""
    process = start(kind, folder)
    checkpoint = Path(folder) / "checkpoint.npz"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
            time.sleep(moment)
            break
        time.sleep(0.001)
    process.send_signal(signum)
    process.communicate(timeout=60)
    return process.returncode == -signum


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(*options.fit)
        return
    rng, hits, different = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as place:
        whole = {}
        for kind in KINDS:
            os.mkdir(folder := os.path.join(place, kind))
            finish(kind, folder)
            whole[kind] = results(folder)
        for run in range(options.runs):
            kind = KINDS[run % len(KINDS)]
            with tempfile.TemporaryDirectory() as folder:
                hits += sum(kill(kind, folder, rng.uniform(0, 0.15)) for _ in range(2))
                finish(kind, folder)
                different += results(folder) != whole[kind]
    print(f"runs: {options.runs}, kills before the end: {hits}, different results: {different}")
    sys.exit(different > 0 or hits < options.runs // 2)


if __name__ == "__main__":
    main()
