"""What the experiments of bench/ compare, without running them."""

import importlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def multiclass(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("multiclass")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCH)):
            del sys.modules[name]


def test_every_split_has_the_same_grid(multiclass, tmp_path):
    from experiment import Options

    where = Options(quick=False, wide=False, made_up=True, processes=1, results=tmp_path)
    strengths = defaultdict(lambda: defaultdict(set))
    for task in multiclass.all_tasks(where):
        kind = tuple(task.get(key) for key in ("set", "method", "penalty", "loss", "refit"))
        strengths[kind][task["seed"]].add(task.get("alpha", task.get("C")))
    assert len(strengths) > 50
    for kind, of_seeds in strengths.items():
        assert len({frozenset(grid) for grid in of_seeds.values()}) == 1, kind
