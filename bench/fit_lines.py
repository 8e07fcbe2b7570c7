"""The parts of `fit.py`: workers whose runs are interleaved, medians, and rows of the table."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from experiment import ONE_THREAD

LONG, LONG_REPETITIONS = 10.0, 2  # runs longer than this (seconds) are repeated only this often
ENOUGH = 5  # runs for a median; smaller numbers are mentioned
CAP = 30.0  # seconds after which a fit is cut off
MANY = 400  # basis vectors, which means no limit


# ---- running ------------------------------------------------------------------------------------


class Worker:
    """A process of one of the interpreters; tasks go in, results come out."""

    def __init__(self, python: str) -> None:
        self.python = python
        env = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        if python != sys.executable:  # it has a fastpoly of its own
            env.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("fit_worker.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()

    def ask(self, task: str, **arguments: Any) -> Any:
        print(json.dumps({"task": task, **arguments}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker failed at {task} {arguments}; its message is above")
        return json.loads(answer)

    def alone(self, task: str, **arguments: Any) -> Any:
        """The same in a fresh process, whose peak memory is that of the task."""
        with Worker(self.python) as fresh:
            return fresh.ask(task, **arguments)


@dataclass
class Setting:
    """Which workers run, and how often."""

    new: Worker
    old: Worker | None
    repetitions: int
    quick: bool

    def fit(self, worker: Worker | None, data: str, **options: Any) -> Callable[[], dict] | None:
        """A fit to be repeated; None if there is no such worker."""
        options = {"alpha": 1.0, "n_components": MANY, "quick": self.quick, **options}
        return None if worker is None else lambda: worker.ask("fit", data=data, **options)

    def ends_at(self, data: str, known: float, **options: Any) -> float:
        """The known objective; for tiny data, the one at which a fit ends."""
        if not self.quick:
            return known
        return self.fit(self.new, data, cap=CAP, **options)()["history"][-1]["objective"]

    def runs(self, **tasks: Callable[[], dict] | None) -> dict[str, list[dict]]:
        """The results of the tasks, with interleaved runs."""
        found: dict[str, list[dict]] = {name: [] for name, task in tasks.items() if task}
        for turn in range(self.repetitions):
            for name, results in found.items():
                long = turn >= LONG_REPETITIONS and duration(results[0]) > LONG
                if not long:
                    results.append(tasks[name]())
        return {name: found.get(name, []) for name in tasks}


def duration(result: dict) -> float:
    return result["seconds"] if "seconds" in result else result["history"][-1]["seconds"]


class Time(NamedTuple):
    """A median of seconds, and the number of runs; `missed`: most ended before the target."""

    value: float
    runs: int
    missed: bool = False


def time_of(results: list[dict]) -> Time | None:
    """Seconds of whole tasks."""
    return Time(median(map(duration, results)), len(results)) if results else None


def time_to(results: list[dict], reached: Callable[[dict], bool]) -> Time | None:
    """Seconds until an entry of the history meets the condition."""
    if not results:
        return None
    found = [next((e for e in r["history"] if reached(e)), None) for r in results]
    seconds = [
        duration(result) if entry is None else entry["seconds"]
        for result, entry in zip(results, found, strict=True)
    ]
    return Time(median(seconds), len(results), 2 * found.count(None) > len(results))


def below(objective: float, or_at_the_end: bool = False) -> Callable[[dict], bool]:
    """Whether an entry has an objective this low, or the fit ended there by itself."""
    return lambda entry: (
        entry["objective"] <= objective or (or_at_the_end and entry["stop"] is not None)
    )


# ---- rows of the table --------------------------------------------------------------------------


class Aim(NamedTuple):
    """A bound on the ratio or on the new figure; without a bound, the aim is to have a figure."""

    of: str
    least: bool = False
    bound: float | None = None

    def reached(self, value: float) -> bool:
        if self.bound is None:
            return True
        return value >= self.bound if self.least else value <= self.bound


NO_AIM = Aim("")
TO_GET_THERE = Aim("new")


def at_least(bound: float) -> Aim:
    """An aim for the ratio."""
    return Aim("ratio", True, bound)


def at_most(bound: float, of: str = "new") -> Aim:
    """An aim for the new figure, or for the ratio."""
    return Aim(of, False, bound)


@dataclass
class Line:
    """A figure, and the figure that it is compared with."""

    row: int
    what: str
    against: str
    old: float | None
    new: float | None
    unit: str
    aim: Aim
    ratio: float | None = None
    note: str = ""
    old_missed: bool = False
    new_missed: bool = False
    runs: tuple[int, int] = (0, 0)  # runs of the old figure and of the new one
    commit: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None if there is no aim, or nothing to compare with."""
        value = {"ratio": self.ratio, "new": self.new, "": None}[self.aim.of]
        if self.aim.of and self.new_missed:
            return False
        return None if value is None else self.aim.reached(value)

    def cells(self) -> list[str]:
        """The cells of the table."""
        ratio = f"{self.ratio:.3g}x" if self.ratio is not None else ""
        few = [
            f"{whose} of {n}"
            for whose, n in zip(("theirs", "ours"), self.runs, strict=True)
            if 0 < n < ENOUGH
        ]
        notes = (self.note, ", ".join(few))
        return [
            "; ".join([self.what, *filter(None, notes)]),
            self.against,
            self.figure(self.old, self.old_missed),
            self.figure(self.new, self.new_missed),
            f"> {ratio}" if ratio and self.old_missed else ratio,
            self.wanted(),
            {True: "yes", False: "**no**", None: ""}[self.reached],
        ]

    def figure(self, value: float | None, missed: bool) -> str:
        if value is None:
            return ""
        text = f"{value:.3g} {self.unit}" if self.unit else f"{value:.4f}"
        return f"never in {text}" if missed else text

    def wanted(self) -> str:
        if self.aim.bound is None:
            return "optimal" if self.aim == TO_GET_THERE else ""
        unit = "x" if self.aim.of == "ratio" else f" {self.unit}".rstrip()
        return f"{'≥' if self.aim.least else '≤'} {self.aim.bound:g}{unit}"


def compared(
    row: int,
    what: str,
    against: str,
    old: Time | None,
    new: Time,
    aim: Aim,
    *,
    share: bool = False,
    note: str = "",
) -> Line:
    """A row of two times; the ratio is the speedup, or new / old with `share`."""
    ratio = None
    if old is not None and not new.missed:
        ratio = new.value / old.value if share else old.value / new.value
    return Line(
        row, what, against, old and old.value, new.value, "s", aim, ratio, note,
        bool(old and old.missed), new.missed, (old.runs if old else 0, new.runs),
    )  # fmt: skip
