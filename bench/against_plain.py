"""The paper's algorithm against the same in plain NumPy and SciPy (`plain.py`), on one thread.

    FASTPOLY_DATA=folder python bench/against_plain.py [case ...] [--cap 300] [--quick]

Every fit runs in a separate process, so that the peak memory is its own. The baseline may be cut
off at `--cap` seconds or `--baseline-bases` basis vectors. Fits are then compared at the last
number of basis vectors that both reached, and the table says so. "ratio" is the baseline's time
over ours, where ours is the time until the objective is as good as the baseline's at that point.
Without the folder, made-up data of the same shapes are used (`--quick`: tiny).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import datasets
import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before it is held to one thread)
import scipy.sparse as sp
from threadpoolctl import threadpool_limits


class Case(NamedTuple):
    """A problem: data, and how it is fitted."""

    data: str
    activation: str
    lower: str
    alpha: float
    n_components: int


CASES = {
    "letter": Case("letter", "squared", "augment", 1.0, 100),
    "satimage": Case("satimage", "squared", "augment", 1.0, 50),
    "ml-100k": Case("ml-100k", "anova", "augment", 10.0, 30),
    "ml-1m": Case("ml-1m", "anova", "explicit", 1.0, 30),
}
# n, d, m of the classes; n, users, items of the ratings
SHAPES = {
    "letter": (7500, 16, 26),
    "satimage": (4435, 36, 6),
    "ml-100k": (100_000, 943, 1682),
    "ml-1m": (1_000_209, 6040, 3706),
}
QUICK = {
    "letter": (400, 8, 5),
    "satimage": (300, 12, 4),
    "ml-100k": (2000, 60, 80),
    "ml-1m": (3000, 80, 90),
}
QUICK_BASES = 5
TARGET, MEMORY_GB = 8.0, 4.0


def load(name: str, quick: bool) -> tuple[Any, np.ndarray, int]:
    """X, the targets in the form of the loss, and the number of outputs."""
    data = None if quick else datasets.find(name)
    shape = (QUICK if quick else SHAPES)[name]
    data = data or datasets.stand_in(name, shape)
    if isinstance(data, datasets.Ratings):
        return data.one_hot(), np.where(data.rating[:, None] <= np.arange(1, 5), 1, -1), 4
    return data.X[: shape[0]], data.y[: shape[0]], data.m


def our_fit(case: Case, X: Any, y: np.ndarray, m: int) -> Iterator[dict]:
    from fastpoly import Design, conditional_gradient

    begun = perf_counter()
    design = Design(X, case.activation, fit_lower=case.lower, n_threads=1)
    options = {"alpha": case.alpha, "n_components": case.n_components, "n_outputs": m}
    options |= {"block": 1, "refit": "output"}
    for state in conditional_gradient(design, y, penalty="l1/l2", random_state=0, **options):
        yield {
            "k": state.n_components,
            "seconds": perf_counter() - begun,
            "objective": state.objective,
            "parts": state.timings,
            "stop": state.stop,
        }


def plain_fit(case: Case, X: Any, y: np.ndarray, m: int) -> Iterator[dict]:
    import plain

    X = X.tocsr() if sp.issparse(X) else X
    steps = plain.fit(
        X, y, m,
        loss=plain.multiclass_logistic if y.ndim == 1 else plain.binary_logistic,
        anova=case.activation == "anova", lower=case.lower, alpha=case.alpha,
        n_components=case.n_components,
    )  # fmt: skip
    for step in steps:
        yield {
            "k": step.n_components,
            "seconds": step.seconds,
            "objective": step.objective,
            "parts": {"selection": step.selection, "refit": step.refit},
        }


FITS = {"fastpoly": our_fit, "plain": plain_fit}


def child(name: str, which: str, quick: bool, cap: float, bases: int | None) -> dict:
    """One fit in this process: its history and its cost."""
    case = CASES[name]
    n_components = QUICK_BASES if quick else case.n_components
    if bases is not None:
        n_components = min(n_components, bases)
    X, y, m = load(case.data, quick)
    history = []
    with threadpool_limits(1):
        for entry in FITS[which](case._replace(n_components=n_components), X, y, m):
            history.append(entry)
            if entry["seconds"] > cap:
                break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return {"shape": list(X.shape), "outputs": m, "history": history, "peak_gb": peak * unit / 1e9}


def run_child(name: str, which: str, args: argparse.Namespace, cap: float) -> dict:
    command = [sys.executable, __file__, name, "--child", which, "--cap", str(cap)]
    command += ["--quick"] if args.quick else []
    if which == "plain" and args.baseline_bases:
        command += ["--baseline-bases", str(args.baseline_bases)]
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, **one})
    return json.loads(answer.stdout.splitlines()[-1])


def compare(ours: dict, plain: dict) -> dict:
    """Times at the last number of basis vectors that both reached, at equal or better objective."""
    k = min(max(e["k"] for e in ours["history"]), max(e["k"] for e in plain["history"]))
    there = next(e for e in plain["history"] if e["k"] >= k)
    at_k = next(e for e in ours["history"] if e["k"] >= k)
    good = (e for e in ours["history"] if e["objective"] <= there["objective"] * (1 + 1e-6))
    reached = next(good, None)
    ratio = None
    if reached is not None:
        ratio = there["seconds"] / max(at_k["seconds"], reached["seconds"])
    return {"k": k, "ours": at_k, "plain": there, "reached": reached, "ratio": ratio}


def report(name: str, ours: dict, plain: dict | None) -> dict:
    case, last = CASES[name], ours["history"][-1]
    shape = f"n={ours['shape'][0]} d={ours['shape'][1]} m={ours['outputs']}"
    print(f"\n{name}: {shape}, {case.activation}, {case.lower}, l1/l2, alpha={case.alpha:g}")
    parts = last["parts"]
    rest = last["seconds"] - sum(parts.values())
    shares = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
    print(
        f"  fastpoly  {last['k']:4d} bases  {last['seconds']:8.2f} s  objective "
        f"{last['objective']:.2f}  peak {ours['peak_gb']:.2f} GB  stop: {last['stop']}"
    )
    print(f"            seconds: {shares}, other {rest:.2f}")
    answer = {"case": name, "fastpoly": ours, "plain": plain}
    if plain is None:
        return answer
    result = compare(ours, plain)
    last = plain["history"][-1]
    cut = "" if last["k"] >= ours["history"][-1]["k"] else "  (cut)"
    shares = ", ".join(f"{part} {seconds:.2f}" for part, seconds in last["parts"].items())
    print(
        f"  plain     {last['k']:4d} bases  {last['seconds']:8.2f} s  objective "
        f"{last['objective']:.2f}  peak {plain['peak_gb']:.2f} GB{cut}"
    )
    print(f"            seconds: {shares}")
    at_k, there = result["ours"], result["plain"]
    print(
        f"  at {result['k']} bases: {at_k['seconds']:.2f} s and {at_k['objective']:.2f} against "
        f"{there['seconds']:.2f} s and {there['objective']:.2f}"
    )
    if result["ratio"] is None:
        print("  ratio: none, our objective stays above the baseline's")
    else:
        reached = result["reached"]
        print(
            f"  ratio {result['ratio']:.1f}x (wanted {TARGET:g}x); the baseline's objective was "
            f"reached with {reached['k']} bases after {reached['seconds']:.2f} s"
        )
    return {**answer, "comparison": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], default=[], metavar="case")
    parser.add_argument("--quick", action="store_true", help="tiny made-up data")
    parser.add_argument("--cap", type=float, default=300.0, help="seconds the baseline may take")
    parser.add_argument("--baseline-bases", type=int, help="basis vectors of the baseline at most")
    parser.add_argument("--no-baseline", action="store_true")
    parser.add_argument("--json", type=Path, help="write all histories to this file")
    parser.add_argument("--child", choices=[*FITS], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        bases = args.baseline_bases if args.child == "plain" else None
        print(json.dumps(child(args.cases[0], args.child, args.quick, args.cap, bases)))
        return
    print("whole fits, one thread")
    results = []
    for name in args.cases or CASES:
        ours = run_child(name, "fastpoly", args, float("inf"))
        plain = None if args.no_baseline else run_child(name, "plain", args, args.cap)
        results.append(report(name, ours, plain))
        if name == "ml-1m" and not args.quick:
            print(f"  memory: {ours['peak_gb']:.2f} GB (wanted below {MEMORY_GB:g} GB)")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
