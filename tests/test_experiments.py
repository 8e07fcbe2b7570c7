"""What the experiments of bench/ compare, without running them."""

import importlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Import a module of bench/, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCH)):
            del sys.modules[name]


def test_every_split_has_the_same_grid(bench, tmp_path):
    multiclass, experiment = bench("multiclass"), bench("experiment")
    where = experiment.Options(quick=False, wide=False, made_up=True, processes=1, results=tmp_path)
    strengths = defaultdict(lambda: defaultdict(set))
    for task in multiclass.all_tasks(where):
        kind = tuple(task.get(key) for key in ("set", "method", "penalty", "activation"))
        strengths[kind][task["seed"]].add(task.get("alpha", task.get("C", task.get("ridge"))))
    assert len(strengths) > 50
    for kind, of_seeds in strengths.items():
        assert len({frozenset(grid) for grid in of_seeds.values()}) == 1, kind


def test_figures_of_the_pages_are_those_of_the_results(bench):
    figures = bench("figures")
    for page, rows in figures.PAGES.items():
        text = page.read_text()
        assert figures.with_table(text, rows()) == text, "run `python bench/figures.py`"


def test_the_ablation_switches_off_what_is_there(bench):
    for label, changes in bench("ablation").VARIANTS.items():
        for owner, name, _ in changes:
            assert hasattr(owner, name), (label, name)


def test_the_profile_times_what_is_there(bench):
    sources = {path.name: path.read_text() for path in (BENCH.parent / "fastpoly").rglob("*.py")}
    for file, name in bench("fit_profile").PARTS.values():
        assert f"def {name}(" in sources[file], (file, name)


def test_best_method_has_rank_one(bench):
    """A high score and a low loss are good; ties share their ranks."""
    defaults = bench("defaults")
    first = {"score": 0.9, "loss": 0.3}, {"score": 0.8, "loss": 0.2}, {"score": 0.8, "loss": 0.4}
    methods = ["a", "b", "c"]
    summary = {"table": dict(zip(methods, first, strict=True))}
    ranks = defaults.mean_ranks(summary, ["table"], "score", methods)
    assert ranks == {"a": 1.0, "b": 2.5, "c": 2.5}
    ranks = defaults.mean_ranks(summary, ["table"], "loss", methods)
    assert ranks == {"a": 2.0, "b": 1.0, "c": 3.0}


def test_tables_of_the_defaults(bench):
    """Rows and targets of a kind that fit each other, on both sides of the choice."""
    tables = bench("default_sets").TABLES
    kinds = {True: set(), False: set()}
    for name in ("iris", "clicks", "linnerud", "diabetes levels", "labels 1000 x 20, 5", "moons",
                 "friedman2", "product levels", "digits labels"):  # fmt: skip
        data = tables[name].make()
        assert data.X.shape[0] == len(data.y) == len(data.X if data.codes is None else data.codes)
        if data.kind in ("classes", "levels"):
            assert data.y.ndim == 1
            assert len(set(data.y)) < len(data.y) / 10
        kinds[tables[name].chosen_on].add(data.kind)
    assert kinds[True] == kinds[False] == {"classes", "levels", "numbers", "labels"}
