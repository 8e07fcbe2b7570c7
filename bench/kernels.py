"""The kernels against the two-line SciPy and NumPy forms: `python bench/kernels.py`.

All runs of a row are interleaved in one process. Every ratio is the median over the rounds of rival
time / kernel time within a round. On one thread, BLAS is also limited to one thread. On two
threads, the rivals' BLAS uses both. `share` is the part of the roofline that the kernel reaches on
one thread: the time that it needs to move its data (at the bandwidth measured for that amount of
data) or for its arithmetic (at the rate of a large dgemm), whichever is longer, over the time that
it takes.

On a shared machine, `--busy` counts the CPU seconds of one thread instead of the elapsed time, and
leaves out the two-thread columns.

FASTPOLY_DATA=folder with ml-100k.npz (arrays user, item, rating) makes the ML-100k rows real.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from time import perf_counter, sleep, thread_time

import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before threadpoolctl looks for it)
from kernel_cases import Case, features, gamma, joint, losses, penalties
from threadpoolctl import threadpool_limits

from fastpoly.kernels.runtime import effective_n_threads, simd_level

LEAST_SECONDS = 2e-3  # a timing shorter than this is repeated within the round


clock = perf_counter


def seconds(run: Callable[[], object], times: int) -> float:
    sleep(1e-3)  # until the workers of BLAS stop spinning
    begun = clock()
    for _ in range(times):
        run()
    return (clock() - begun) / times


def rounds_of(runs: list[Callable[[], object]], rounds: int, blas_threads: int) -> np.ndarray:
    """Seconds (rounds, runs) of interleaved runs, after one warm-up run of each."""
    with threadpool_limits(blas_threads, user_api="blas"):
        once = [seconds(run, 1) for run in runs]
        times = [max(1, int(LEAST_SECONDS / t)) for t in once]
        pairs = list(zip(runs, times, strict=True))
        return np.array([[seconds(run, t) for run, t in pairs] for _ in range(rounds)])


@lru_cache
def bandwidth(kilobytes: int) -> float:
    """Bytes per second of reading (a dot product) or copying, the better one, on one thread."""
    a, b = np.ones((2, max(64, 512 * kilobytes // 8)))
    times = rounds_of([lambda: a @ b, lambda: np.copyto(a, b)], 5, 1)
    return 2 * a.nbytes / times.min()


@lru_cache
def gemm_rate(size: int) -> float:
    """Floating-point operations per second of a large dgemm on one thread."""
    A = np.ones((size, size))
    out = np.empty_like(A)
    return 2 * size**3 / rounds_of([lambda: np.matmul(A, A, out=out)], 5, 1).min()


def roofline(case: Case, gemm_size: int) -> tuple[float, str]:
    """The least seconds of the case on one thread, and what limits it."""
    kilobytes = 2 ** round(np.log2(max(16.0, case.bytes / 1024)))
    limits = {
        "memory": case.bytes / bandwidth(int(kilobytes)),
        "arithmetic": case.flops / gemm_rate(gemm_size),
    }
    limit = max(limits, key=limits.get)
    return limits[limit], limit


def agree(case: Case) -> None:
    """Raise unless kernel and rivals compute the same."""
    if case.rtol is None:
        return
    for n_threads in (1, 2) if case.threaded else (1,):
        mine = np.asarray(case.run(n_threads))
        for label, rival in case.against.items():
            other = np.asarray(rival())
            error = np.abs(mine - other).max() / np.abs(other).max()
            assert error <= case.rtol, f"{case.name}, {case.shape}: {label} differs by {error:.1e}"


def measure(case: Case, rounds: int, gemm_size: int, judge: bool) -> Iterator[dict]:
    """One row per rival; targets count for the full shapes only."""
    agree(case)
    threaded = case.threaded and clock is perf_counter
    rivals = list(case.against.values())
    one = rounds_of([lambda: case.run(1), *rivals], rounds, 1)
    limit_seconds, limit = roofline(case, gemm_size)
    row = {
        "kernel": case.name,
        "shape": case.shape,
        "seconds": float(np.median(one[:, 0])),
        "share": limit_seconds / float(np.median(one[:, 0])),
        "limit": limit,
        "gain": None,
    }
    if threaded:
        gains = rounds_of([lambda: case.run(1), lambda: case.run(2)], rounds, 1)
        row["gain"] = float(np.median(gains[:, 0] / gains[:, 1]))
        two = rounds_of([lambda: case.run(2), *rivals], rounds, 2)
    for i, label in enumerate(case.against, 1):
        yield row | {
            "against": label,
            "ratio": float(np.median(one[:, i] / one[:, 0])),
            "target": case.target.get(label) if judge else None,
            "ratio_two": float(np.median(two[:, i] / two[:, 0])) if threaded else None,
        }


HEADER = (
    f"{'kernel':<29}{'shape':<40}{'ms':>8}  {'against':<24}{'ratio':>7}{'target':>7}     "
    f"{'2 threads':>9}{'gain':>6}{'share':>7} of"
)


def formatted(row: dict) -> str:
    missed = row["target"] and row["ratio"] < row["target"]
    target = f"{row['target']:.1f}x" if row["target"] else ""
    two = f"{row['ratio_two']:.1f}x" if row["ratio_two"] else ""
    gain = f"{row['gain']:.2f}" if row["gain"] else ""
    return (
        f"{row['kernel']:<29}{row['shape']:<40}{1e3 * row['seconds']:>8.3f}  "
        f"{row['against']:<24}{row['ratio']:>6.1f}x{target:>7} {'MISS' if missed else '':<4}"
        f"{two:>9}{gain:>6}{row['share']:>7.0%} {row['limit']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to see that all runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="cases with this text in kernel or shape")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--busy", action="store_true", help="CPU seconds, one thread only")
    options = parser.parse_args()
    if options.busy:
        global clock
        clock = thread_time
    rounds, gemm_size = (2, 256) if options.quick else (options.rounds, 1200)

    rows, notes = [], []
    print(HEADER)
    for module in (gamma, features, joint, losses, penalties):
        for case in module.cases(options.quick):
            if options.only not in f"{case.name} {case.shape}":
                continue
            for row in measure(case, rounds, gemm_size, not options.quick):
                rows.append(row)
                print(formatted(row), flush=True)
            if case.note:
                notes.append(case.note())
    machine = {
        "simd": simd_level(),
        "threads": effective_n_threads(),
        "gemm_gflops": gemm_rate(gemm_size) / 1e9,
        "bandwidth_gb_per_s": {f"{2**i} KB": bandwidth(2**i) / 1e9 for i in (6, 10, 14, 18)},
    }
    print(*notes, sep="\n")
    rates = ", ".join(f"{v:.0f} at {k}" for k, v in machine["bandwidth_gb_per_s"].items())
    print(
        f"inner loops {machine['simd']}; dgemm {machine['gemm_gflops']:.0f} GFLOP/s; "
        f"bandwidth in GB/s: {rates}"
    )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine, "rows": rows, "notes": notes}, file, indent=1)


if __name__ == "__main__":
    main()
