"""Fits on a Dask cluster whose workers are killed or stopped at random moments: the same bits.

    PYTHONPATH=tests python -P tests/killing_workers.py --runs 50

Each run starts a cluster of two workers. While a model is fitted, a thread kills (kill -9) or stops
(SIGSTOP, for good) one of them now and then; nannies start new ones in place of the killed.
"""

import argparse
import contextlib
import os
import random
import signal
import tempfile
import threading
import time

from shard_cases import Case, bits


@contextlib.contextmanager
def cluster(n_workers, **options):
    """A client of a cluster on this machine."""
    import distributed

    how = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 60, **options}
    with (
        distributed.LocalCluster(n_workers=n_workers, **how) as made,
        distributed.Client(made) as client,
    ):
        yield client


def hunted(shards, want, seed, most=3, signals=(signal.SIGKILL,), timeout=60.0):
    """Fit while workers are hunted until one was hit; how many were, and whether all is well."""
    from fastpoly.dask import on_cluster

    rng = random.Random(seed)
    hit, stop = [], threading.Event()
    with cluster(2) as client:

        def hunter():
            while not stop.wait(rng.uniform(0.3, 1.5)) and len(hit) < most:
                with contextlib.suppress(Exception):
                    pid = rng.choice(sorted(client.run(os.getpid).values()))
                    os.kill(pid, rng.choice(signals))
                    hit.append(pid)

        thread = threading.Thread(target=hunter)
        thread.start()
        try:
            found = {bits(on_cluster(shards, client, timeout=timeout))}
            while not hit:
                found.add(bits(on_cluster(shards, client, timeout=timeout)))
        finally:
            stop.set()
            for pid in hit:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            thread.join()
    return len(hit), found == {want}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shards = Case("codes").write(folder, 7)
        want = bits(shards)
        total, wrong, longest = 0, 0, 0.0
        for seed in range(options.seed, options.seed + options.runs):
            begun = time.monotonic()
            # A stopped worker is given up after the timeout: one of them in a run.
            stops = seed % 5 == 4
            signals = (signal.SIGSTOP,) if stops else (signal.SIGKILL,)
            most, timeout = (1, 5.0) if stops else (3, 60.0)
            hits, right = hunted(shards, want, seed, most, signals, timeout)
            total, wrong = total + hits, wrong + (not right)
            longest = max(longest, time.monotonic() - begun)
            print(f"run {seed}: {hits} hit, {'same bits' if right else 'OTHER BITS'}", flush=True)
        print(
            f"{options.runs} runs, {total} hits, {wrong} with other bits, longest {longest:.0f} s"
        )
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
