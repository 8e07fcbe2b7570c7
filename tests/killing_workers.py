"""Fits on a Dask cluster whose workers or driver are killed or stopped at random moments.

    PYTHONPATH=tests python -P tests/killing_workers.py --runs 50 --out bench/results/faults.md

A run starts a cluster of two workers on this machine and fits a model. Meanwhile a thread kills
(kill -9) or stops (SIGSTOP) a random worker from time to time; nannies replace killed workers. In
other runs the process that fits, the driver, is killed, and another one continues from its
checkpoint with another number of workers. All must end with the bits of an undisturbed fit.
"""

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from shard_cases import Case, bits

# Seconds after which Dask gives up a worker that is silent, the least that it allows.
GIVEN_UP = 5.0
# Seconds for each thing that is waited for; a run may take three times as long. It takes about 30,
# or some minutes on a busy machine.
DEADLINE = 240.0


@contextlib.contextmanager
def cluster(n_workers, **options):
    """A client of a cluster on this machine."""
    import dask
    import distributed

    how = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 60, **options}
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": GIVEN_UP}),
        distributed.LocalCluster(n_workers=n_workers, **how) as made,
        distributed.Client(made) as client,
    ):
        yield client


def wait_until(condition, what):
    """Wait, at most until the timeout."""
    last = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > last:
            raise TimeoutError(f"{what} took more than {DEADLINE:g} s")
        time.sleep(0.01)


def scale(client, n_workers):
    """Another number of workers."""
    client.cluster.scale(n_workers)
    wait_until(lambda: len(client.nthreads()) == n_workers, f"scaling to {n_workers} workers")


def worker_pids(client):
    """The processes of the workers, without asking them: a stopped worker does not answer."""
    nannies = list(client.cluster.workers.values())
    return sorted(nanny.pid for nanny in nannies if nanny.pid)


def hunted(shards, want, seed, most=3, signals=(signal.SIGKILL,), fit=bits):
    """Fit while workers are killed; return how many were hit, and whether the bits are right."""
    from fastpoly.dask import on_cluster

    rng = random.Random(seed)
    hit, stop = [], threading.Event()
    with cluster(2) as client:

        def hunter():
            while not stop.wait(rng.uniform(0.3, 1.5)) and len(hit) < most:
                with contextlib.suppress(IndexError, ProcessLookupError):  # between two workers
                    pid = rng.choice(worker_pids(client))
                    os.kill(pid, rng.choice(signals))
                    hit.append(pid)

        thread = threading.Thread(target=hunter)
        thread.start()
        try:
            found, last = set(), time.monotonic() + DEADLINE
            while not found or (not hit and time.monotonic() < last):
                found.add(fit(on_cluster(shards, client)))
        finally:
            stop.set()
            for pid in hit:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            thread.join()
    return len(hit), found == {want}


# --- the driver ---


def checkpointed(shards, checkpoint=None):
    """A fit of a dozen rounds, with a file at every round; its bits."""
    from fastpoly import FactorizationMachineOrdinalRegressor

    model = FactorizationMachineOrdinalRegressor(
        alpha=0.3, n_components=12, block=1, random_state=0, checkpoint=checkpoint,
        checkpoint_every=0,
    ).fit(shards)  # fmt: skip
    history = [values for name, values in sorted(model.history_.items()) if name != "seconds"]
    fitted = model.model_
    arrays = fitted.H, fitted.V, fitted.intercept, fitted.linear, *history
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def drive(address, shards, folder):
    """The same in a separate process, on a cluster; the bits go to a file."""
    import distributed

    from fastpoly import Shards
    from fastpoly.dask import on_cluster

    with distributed.Client(address) as client:
        rows = on_cluster(Shards(shards), client)
        (folder / "bits").write_bytes(checkpointed(rows, folder / "checkpoint.npz"))


def driver_killed(shards, want, seed, numbers=(2, 1, 3)):
    """Kill the driver with every number of workers but the last; return how
    often that was, and whether the bits are right."""
    rng, hits = random.Random(seed), 0
    with cluster(numbers[0]) as client, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-P", "-W", "ignore", __file__, "--drive"]
        command += [client.scheduler.address, str(shards.folder), place]
        places = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        for n_workers in numbers:
            scale(client, n_workers)
            driver = subprocess.Popen(command, env=here)
            try:
                if n_workers == numbers[-1]:
                    right = driver.wait(DEADLINE) == 0
                    return hits, right and (folder / "bits").read_bytes() == want
                before = _written(folder)
                wait_until(
                    lambda d=driver, b=before: d.poll() is not None or _written(folder) != b,
                    "a checkpoint",
                )
                time.sleep(rng.uniform(0, 0.3))
            finally:
                driver.kill()
                hits += driver.wait() == -signal.SIGKILL
    raise AssertionError("unreachable")


def _written(folder):
    checkpoint = folder / "checkpoint.npz"
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0


# --- many runs ---


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="in which workers are hit")
    parser.add_argument("--drivers", type=int, default=5, help="runs in which the driver is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write a table of the results to this file")
    parser.add_argument("--drive", nargs=3, metavar=("ADDRESS", "SHARDS", "FOLDER"),
                        help=argparse.SUPPRESS)  # fmt: skip
    options = parser.parse_args()
    if options.drive:
        address, shards, folder = options.drive
        drive(address, shards, Path(folder))
        return
    rows = {"kill -9 of workers": [], "SIGSTOP of a worker": [], "kill -9 of the driver": []}
    with tempfile.TemporaryDirectory() as place:
        shards = Case("codes").write(place, 7)
        want, want_checkpointed = bits(shards), checkpointed(shards)
        for seed in range(options.seed, options.seed + options.runs + options.drivers):
            begun = time.monotonic()
            # A run that hangs ends this process, with a traceback.
            faulthandler.dump_traceback_later(3 * DEADLINE, exit=True)
            if seed >= options.seed + options.runs:
                what = "kill -9 of the driver"
                hits, right = driver_killed(shards, want_checkpointed, seed)
            elif seed % 5 == 4:
                what = "SIGSTOP of a worker"
                hits, right = hunted(shards, want, seed, 1, (signal.SIGSTOP,))
            else:
                what = "kill -9 of workers"
                hits, right = hunted(shards, want, seed)
            faulthandler.cancel_dump_traceback_later()
            seconds = time.monotonic() - begun
            rows[what].append((hits, right, seconds))
            verdict = "same bits" if right else "OTHER BITS"
            print(f"run {seed}, {what}: {hits} hit, {verdict}, {seconds:.1f} s", flush=True)
    table = report(rows, options.seed)
    print(table)
    if options.out:
        options.out.write_text(table)
    raise SystemExit(any(not right for runs in rows.values() for _, right, _ in runs))


def report(rows, seed):
    """The results as a table in Markdown."""
    lines = [
        "# Faults on a loopback cluster",
        "",
        f"`tests/killing_workers.py --seed {seed}`, Python {sys.version.split()[0]}. A run starts "
        "a cluster, fits an",
        "ordinal factorization machine on 7 shards, and ends the cluster; it must have the bits of",
        f"threads. A stopped worker is given up after {GIVEN_UP:g} s. A killed driver goes on from "
        "its checkpoint",
        "with 1 worker instead of 2, and then with 3.",
        "",
        "| fault | runs | hits | other bits | worst time of a run (s) |",
        "|---|---|---|---|---|",
    ]
    for what, runs in rows.items():
        if runs:
            hits, right, seconds = zip(*runs, strict=True)
            other, worst = right.count(False), max(seconds)
            lines.append(f"| {what} | {len(runs)} | {sum(hits)} | {other} | {worst:.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
