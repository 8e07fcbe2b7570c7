"""Whole fits against the last release and other methods, interleaved, on one thread.

    FASTPOLY_DATA=folder python bench/fit.py [--old PYTHON] [--rows 1,3] [--quick]

PYTHON is the interpreter of the last release, 5de635d: install a git worktree at 5de635d into a
separate environment, with scikit-learn and tqdm. Without it, its columns stay empty. Both releases
run in worker processes (`fit_worker.py`), and their runs are interleaved. Seconds are CPU seconds,
on two threads elapsed seconds. Figures are medians of --repetitions runs, or of two if one takes
longer than 10 seconds ("theirs of 2"); a ratio against the release is our time over its time. The
table goes to stdout and, with all numbers, to fit.md and fit.json of the results; rows that were
not requested do not change. Rows whose data are missing are left out. --quick uses tiny data and
writes nothing.
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from experiment import RESULTS, commit, replace, table
from fit_lines import (
    CAP,
    ENOUGH,
    MANY,
    NO_AIM,
    TO_GET_THERE,
    Aim,
    Line,
    Setting,
    Worker,
    at_least,
    at_most,
    below,
    compared,
    time_of,
    time_to,
)

RELEASE = "5de635d"
AS_FAST = at_most(1.05, "ratio")  # as the release
CAP_RATINGS = 90.0
# The lowest objectives known, at alpha 1; l1/l2, half of the rows
BEST = {"digits": 36.7248, "vowel": 162.3203, "segment": 124.7153, "satimage": 421.8757}
BEST_ANOVA = {"digits": 64.8825, "segment": 180.7628}
LETTER = 2440.0
KNOWN = {
    ("digits", "l1/l2"): 36.7260,
    ("digits", "l1"): 39.9270,
    ("vowel", "l1/l2"): 162.33,
    ("vowel", "l1"): 201.54,
    ("segment", "l1/l2"): 124.74,
    ("satimage", "l1/l2"): 421.95,
}
RATINGS = {"ml-100k": (4.0, 73493.0), "ml-1m": (6.0, 700471.0)}  # alpha, objective of 30 vectors
MACHINE = {"activation": "anova", "lower": "explicit", "alpha_linear": 1.0, "n_components": 30}
PAPER = {"block": 1, "refit": "output"}


# ---- rows ---------------------------------------------------------------------------------------


def to_the_best(on: Setting, row: int) -> Iterator[Line]:
    """Seconds to within 1 % and 0.1 % of the best objective known; for letter, to a given one."""
    for data, known in BEST.items():
        best = on.ends_at(data, known)
        options = {"target": 1.001 * best, "cap": CAP}
        found = on.runs(old=on.fit(on.old, data, **options), new=on.fit(on.new, data, **options))
        for part in (0.01, 0.001):
            times = [time_to(found[who], below((1 + part) * best)) for who in ("old", "new")]
            what = f"{data} to {100 * part:g} %"
            yield compared(row, what, RELEASE, *times, AS_FAST, share=True)
    target = on.ends_at("letter", LETTER)
    options = {"target": target, "cap": CAP}
    found = on.runs(
        old=on.fit(on.old, "letter", **options), new=on.fit(on.new, "letter", **options)
    )
    times = [time_to(found[who], below(target)) for who in ("old", "new")]
    yield compared(row, f"letter to {target:g}", RELEASE, *times, AS_FAST, share=True)


def beside_logistic_regression(on: Setting, row: int) -> Iterator[Line]:
    """A whole fit to within 1 %, against scikit-learn's logistic regression on all products."""
    for data in ("digits", "satimage", "segment"):
        target = 1.01 * on.ends_at(data, BEST[data])
        found = on.runs(
            lr=lambda data=data: on.new.ask("logistic_regression", data=data, quick=on.quick),
            new=on.fit(on.new, data, target=target, cap=CAP),
        )
        times = time_of(found["lr"]), time_to(found["new"], below(target))
        aim = at_most(0.5, "ratio")
        yield compared(row, f"{data} to 1 %", "products + LR", *times, aim, share=True)


def optimum(on: Setting, row: int) -> Iterator[Line]:
    """Basis vectors, certificate and objective at the end of a fit with tol 1e-3."""
    vectors = {"digits": 18, "satimage": 50}
    for (data, penalty), known in KNOWN.items():
        counted = penalty == "l1/l2" and data in vectors
        options = {"penalty": penalty, "cap": CAP}
        old = on.fit(on.old, data, **options)() if counted and on.old else None
        found = on.runs(new=on.fit(on.new, data, **options))["new"]
        last = found[-1]["history"][-1]
        stop, at = last["stop"] or "cut off", f"{last['violation']:.4f} alpha"
        runs, case = (int(old is not None), len(found)), f"{data}, {penalty}"
        if counted:
            before = old and old["history"][-1]["units"]
            yield Line(
                row, f"{case}: basis vectors at the end", RELEASE, before,
                last["units"], "vectors", at_most(vectors[data]), runs=runs,
            )  # fmt: skip
        certified = time_to(found, lambda entry: entry["stop"] == "optimal")
        yield Line(
            row, f"{case}: certificate at 1e-3", "", None, certified.value, "s", TO_GET_THERE,
            note=f"{stop} at {at}", new_missed=certified.missed, runs=(0, len(found)),
        )  # fmt: skip
        yield Line(
            row, f"{case}: objective", "", None, last["objective"], "",
            at_most(on.ends_at(data, known, penalty=penalty)), runs=(0, len(found)),
        )  # fmt: skip


def defaults(on: Setting, row: int) -> Iterator[Line]:
    """The classifier with its default settings on small standardized sets."""
    for data in ("iris", "wine", "breast_cancer"):
        workers = {"old": on.old, "new": on.new}
        for worker in filter(None, workers.values()):
            worker.ask("estimator", data="iris")  # imports
        found = on.runs(
            **{
                name: (lambda worker=worker, data=data: worker.ask("estimator", data=data))
                if worker
                else None
                for name, worker in workers.items()
            }
        )
        what, times = f"default fit of {data}", (time_of(found["old"]), time_of(found["new"]))
        yield compared(row, what, RELEASE, *times, at_most(0.15), share=True)


def ratings(on: Setting, row: int) -> Iterator[Line]:
    """Ordinal machines with linear terms, to an objective near that of 30 basis vectors."""
    for data, (alpha, known) in RATINGS.items():
        options = {**MACHINE, "alpha": alpha}
        target = on.ends_at(data, known, **options)
        options |= {"data": data, "target": target, "cap": CAP_RATINGS, "quick": on.quick}
        found = on.runs(
            old=on.old and (lambda options=options: on.old.alone("fit", **options)),
            new=lambda options=options: on.new.alone("fit", **options),
        )
        times = [time_to(found[who], below(target, or_at_the_end=True)) for who in ("old", "new")]
        ends = [f"{r[-1]['history'][-1]['objective']:.0f}" for r in found.values() if r]
        note = f"ends at {' and '.join(ends)}"
        what = f"{data} to {target:.0f}"
        yield compared(row, what, RELEASE, *times, AS_FAST, share=True, note=note)
        peaks = [max((r["peak_gb"] for r in found[who]), default=None) for who in ("old", "new")]
        if data == "ml-1m":
            yield Line(
                row, f"{data}: peak memory of the process, data included", RELEASE, *peaks, "GB",
                at_most(0.7), runs=tuple(len(found[who]) for who in ("old", "new")),
            )  # fmt: skip


def fused_passes(on: Setting, row: int) -> Iterator[Line]:
    """One pass of value and gradients against its matrix products, and on two threads."""
    rounds = 2 if on.quick else 25
    for found in on.new.ask("passes", quick=on.quick, rounds=rounds):
        one, threads = 1e3 * found["seconds"], [1e3 * seconds for seconds in found["threads"]]
        runs, shape = (rounds, rounds), found["shape"]
        if found["products"] is None:
            yield Line(row, f"pass, {shape}", "", None, one, "ms", at_most(25), runs=runs)
        else:
            aim = at_most(1.1, "ratio") if found["size"] > 1e5 else NO_AIM
            products = 1e3 * found["products"]
            yield Line(
                row, f"pass, {shape}", "its 5 gemms", products, one, "ms", aim, found["ratio"],
                runs=runs,
            )  # fmt: skip
        aim = at_least(1.5 if one > 5 else 0.95)
        yield Line(
            row, f"pass on two threads, {shape}", "one thread", *threads, "ms", aim, found["gain"],
            runs=runs,
        )  # fmt: skip


def signs(on: Setting, row: int) -> Iterator[Line]:
    """l1/linf until enumerating all signs shows that the violation is at most 1.01 alpha."""
    for data in ("vowel", "digits"):
        options = {"penalty": "l1/linf", "tol": 1e-2, "exact": 1.01, "cap": CAP}
        found = on.runs(old=on.fit(on.old, data, **options), new=on.fit(on.new, data, **options))
        times = [
            time_to(found[who], lambda e: e.get("exact", float("inf")) <= 1.01)
            for who in ("old", "new")
        ]
        what = f"{data}, l1/linf to 1.01 alpha"
        yield compared(row, what, RELEASE, *times, AS_FAST, share=True)


def dense_machines(on: Setting, row: int) -> Iterator[Line]:
    """Factorization machines of dense rows to within 1 %."""
    for data in ("digits", "segment"):
        options = {"activation": "anova", "cap": CAP}
        target = 1.01 * on.ends_at(data, BEST_ANOVA[data], activation="anova")
        options["target"] = target
        found = on.runs(old=on.fit(on.old, data, **options), new=on.fit(on.new, data, **options))
        times = [time_to(found[who], below(target)) for who in ("old", "new")]
        yield compared(row, f"{data}, ANOVA, to 1 %", RELEASE, *times, AS_FAST, share=True)


def paper_mode(on: Setting, row: int) -> Iterator[Line]:
    """The algorithm of the paper, with the same number of iterations."""
    n = 3 if on.quick else 20
    cases = {"satimage": {}, "vowel": {}, "ml-100k": {**MACHINE, "alpha": RATINGS["ml-100k"][0]}}
    for data, options in cases.items():
        options = {**options, **PAPER, "iterations": n, "n_components": MANY}
        found = on.runs(old=on.fit(on.old, data, **options), new=on.fit(on.new, data, **options))
        ends = [found[who] and found[who][0]["history"][-1]["objective"] for who in ("old", "new")]
        note = f"objectives {ends[0]:.6g} and {ends[1]:.6g}" if on.old else ""
        times = time_of(found["old"]), time_of(found["new"])
        what = f"{data}, {n} iterations of the paper's algorithm"
        yield compared(row, what, RELEASE, *times, AS_FAST, share=True, note=note)


def two_threads(on: Setting, row: int) -> Iterator[Line]:
    """Whole fits on two threads against one; rounding differs, and so may the path of a fit."""
    for data in ("satimage", "ml-1m"):
        if data in RATINGS:
            alpha, known = RATINGS[data]
            options = {**MACHINE, "alpha": alpha}
            target = on.ends_at(data, known, **options)
        else:
            options, target = {}, 1.001 * on.ends_at(data, BEST[data])
        options |= {"target": target, "cap": CAP_RATINGS}
        found = on.runs(
            one=on.fit(on.new, data, **options), two=on.fit(on.new, data, n_threads=2, **options)
        )
        times = [time_to(found[who], below(target)) for who in ("one", "two")]
        what = f"{data} to {target:.6g} on two threads"
        yield compared(row, what, "one thread", *times, at_least(0.95))


# number: (lines, data)
ROWS = {
    1: (to_the_best, (*BEST, "letter")),
    2: (beside_logistic_regression, ("digits", "satimage", "segment")),
    3: (optimum, tuple(BEST)),
    4: (defaults, ()),
    5: (ratings, tuple(RATINGS)),
    6: (fused_passes, ()),
    7: (signs, ("digits", "vowel")),
    8: (dense_machines, ("digits", "segment")),
    9: (paper_mode, ("satimage", "vowel", "ml-100k")),
    10: (two_threads, ("satimage", "ml-1m")),
}


# ---- reporting ----------------------------------------------------------------------------------


def markdown(lines: list[dict]) -> str:
    known = [
        Line(**{**line, "aim": Aim(*line["aim"]), "runs": tuple(line["runs"])}) for line in lines
    ]
    header = ["what", "against", "theirs", "ours", "ratio", "aim", "reached"]
    commits = ", ".join(dict.fromkeys(line.commit for line in known))
    return table(header, [line.cells() for line in known]) + f"\nMeasured at {commits}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", metavar="PYTHON", help=f"interpreter that has {RELEASE} installed")
    parser.add_argument("--rows", help="numbers of rows, as 1,3 (default: all)")
    parser.add_argument("--repetitions", type=int, default=ENOUGH)
    parser.add_argument("--quick", action="store_true", help="tiny data, once, nothing is written")
    parser.add_argument("--results", type=Path, help="folder of the results (bench/results)")
    args = parser.parse_args()
    numbers = [int(number) for number in args.rows.split(",")] if args.rows else list(ROWS)
    results = args.results or (None if args.quick else RESULTS)
    path = results and results / "fit.json"
    lines = json.loads(path.read_text())["lines"] if path and path.exists() else []
    with ExitStack() as stack:
        new = stack.enter_context(Worker(sys.executable))
        old = stack.enter_context(Worker(args.old)) if args.old else None
        on = Setting(new, old, 1 if args.quick else args.repetitions, args.quick)
        for number in numbers:
            make, data = ROWS[number]
            missing = [] if args.quick else [name for name in data if not new.ask("has", name=name)]
            if missing:
                print(f"row {number} is left out: no {', '.join(missing)}", file=sys.stderr)
                continue
            fresh = []
            for line in make(on, number):
                line.commit = commit()
                fresh.append(asdict(line))
                print(" | ".join(line.cells()), file=sys.stderr, flush=True)
            lines = [line for line in lines if line["row"] != number] + fresh
            lines.sort(key=lambda line: line["row"])
            if path:
                machine = f"{platform.machine()}, Python {platform.python_version()}"
                summary = {"release": RELEASE, "machine": machine, "lines": lines}
                replace(path, json.dumps(summary, indent=1) + "\n")
                replace(path.with_suffix(".md"), markdown(lines))
    print(markdown(lines))


if __name__ == "__main__":
    main()
