"""The parts that the experiments share: splits, finished runs, processes, tables and plots.

An experiment is a list of tasks (flat dicts) and a function from a task to a result. Both can be
stored as JSON. Finished tasks are kept in a file, so that an interrupted run continues where it
stopped, and experiments that need the same fit share it. Every process computes on one thread.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import datasets
import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before it is held to one thread)
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits
from tqdm import tqdm

Task = dict
Result = dict

RESULTS = Path(__file__).parent / "results"
EARLIER = "a commit before these were noted"
REPORTED: set[str] = set()  # commits of the stored results that were read since the last `write`
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
QUICK_SHAPES = {
    "segment": (240, 6, 3),
    "vowel": (240, 5, 4),
    "satimage": (240, 7, 3),
    "letter": (320, 6, 5),
    "digits": (240, 6, 4),
    "ml-100k": (1500, 40, 50),
    "ml-1m": (2000, 40, 60),
}


class Options(NamedTuple):
    """How to run an experiment."""

    quick: bool
    wide: bool
    made_up: bool
    processes: int
    results: Path

    @property
    def data(self) -> str:
        """Where the data come from; part of every task."""
        return "quick" if self.quick else "made up" if self.made_up else "real"


@contextmanager
def options(doc: str, argv: list[str] | None = None) -> Iterator[Options]:
    """The options of the command line. A quick run keeps no results, unless --results is given."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny made-up data, for a trial")
    parser.add_argument("--wide", action="store_true", help="Figures 2 and 5: more vectors")
    parser.add_argument("--made-up", action="store_true", help="made-up data of the same shapes")
    parser.add_argument("--processes", type=int, default=2, help="one thread each (default: 2)")
    parser.add_argument("--results", type=Path, help="folder of the results (bench/results)")
    args = parser.parse_args(argv)
    for name in ONE_THREAD:  # inherited by the processes of the pool
        os.environ[name] = "1"
    with tempfile.TemporaryDirectory() as place, threadpool_limits(1):
        results = args.results or (Path(place) if args.quick else RESULTS)
        processes = 1 if args.quick else args.processes
        results.mkdir(parents=True, exist_ok=True)
        yield Options(args.quick, args.wide, args.made_up, processes, results)


# ---- data ---------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def load(name: str, data: str) -> datasets.Classes | datasets.Ratings:
    """The set, made-up data of the same shape, or a tiny set."""
    if name == "digits" and data != "quick":  # it comes with scikit-learn
        X, y = load_digits(return_X_y=True)
        return datasets.Classes(X / 16, y, 10, "scikit-learn")
    if data == "real":
        return datasets.load(name)
    if name == "digits":
        return datasets.made_up_classes(*QUICK_SHAPES[name])
    return datasets.stand_in(name, QUICK_SHAPES[name] if data == "quick" else None)


class Split(NamedTuple):
    """Row numbers of the three parts."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(n: int, seed: int) -> Split:
    """50% / 25% / 25% of the rows at random; the same for every method."""
    rows = np.random.default_rng(seed).permutation(n)
    return Split(*np.split(rows, [n // 2, n // 2 + n // 4]))


# ---- running ------------------------------------------------------------------------------------


class Store:
    """Finished tasks and their results, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[str, tuple[Result, str]] = {}
        if path.exists():
            entries = json.loads(path.read_text())
            for entry in entries:
                self.runs[key(entry["task"])] = entry["result"], entry.get("commit", EARLIER)

    def __contains__(self, task: Task) -> bool:
        return key(task) in self.runs

    def __getitem__(self, task: Task) -> Result:
        result, at = self.runs[key(task)]
        REPORTED.add(at)
        return result

    def __setitem__(self, task: Task, result: Result) -> None:
        """Keep the result; the file is replaced in one step."""
        self.runs[key(task)] = result, commit()
        lines = (
            f'{{"task": {name}, "result": {json.dumps(found)}, "commit": "{at}"}}'
            for name, (found, at) in sorted(self.runs.items())
        )
        replace(self.path, "[\n" + ",\n".join(lines) + "\n]\n")


def key(task: Task) -> str:
    return json.dumps(task, sort_keys=True)


def replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)


def run_tasks(
    run: Callable[[Task], Result], tasks: Iterable[Task], store: Store, processes: int, title: str
) -> list[tuple[Task, Result]]:
    """Run the tasks that are not in the store; return all results, in the order of the tasks."""
    tasks = list(tasks)
    left = [task for task in tasks if task not in store]
    bar = tqdm(total=len(tasks), initial=len(tasks) - len(left), desc=title)
    with bar:
        for task, result in results_of(run, left, processes):
            store[task] = result
            bar.update()
    return [(task, store[task]) for task in tasks]


def results_of(
    run: Callable[[Task], Result], tasks: list[Task], processes: int
) -> Iterator[tuple[Task, Result]]:
    if processes == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, run(task)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


# ---- reporting ----------------------------------------------------------------------------------


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Mean +- standard deviation."""
    values = list(values)
    text = f"{mean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {stdev(values):.{digits}f}"


def table(header: list[str], rows: Iterable[list[object]]) -> str:
    """A Markdown table; the first column is left-aligned, the others right-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def figure(n_rows: int, n_columns: int, width: float = 4.2, height: float = 3.2):
    """A matplotlib figure and its axes (n_rows, n_columns)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (width * n_columns, height * n_rows)
    return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit of this tree, with a + if files of the package differ from it."""

    def git(*words: str) -> str:
        answer = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        return answer.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../fastpoly")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def write(where: Options, name: str, summary: object, text: str, picture=None) -> None:
    """Write `name`.json, `name`.md and `name`.png, and print the text."""
    text += f"\nMeasured at {', '.join(sorted(REPORTED)) or commit()}.\n"
    REPORTED.clear()
    replace(where.results / f"{name}.json", json.dumps(summary, indent=1) + "\n")
    replace(where.results / f"{name}.md", text)
    if picture is not None:
        picture.savefig(where.results / f"{name}.png", dpi=120)
    print(text)
