"""Small data sets in memory and in shards, shared by the tests of shards, engines and Dask."""

import hashlib
import json

import numpy as np
import scipy.sparse as sp

from fastpoly import Design, Shards, conditional_gradient, write_shards
from fastpoly.rows import ShardDesign
from fastpoly.rows.format import write_array

KINDS = ("dense", "csr", "codes")


class Case:
    """Rows and targets, and how to write them as shards."""

    def __init__(self, kind, n=640, seed=0):
        rng = np.random.default_rng(seed)
        self.kind, self.n = kind, n
        users, items = rng.integers(12, size=n), rng.integers(10, size=n)
        score = 2 * (rng.standard_normal((12, 2))[users] * rng.standard_normal((10, 2))[items])
        if kind == "codes":
            X = np.zeros((n, 24))  # the last column of each field is for levels that do not occur
            X[np.arange(n), users] = X[np.arange(n), 13 + items] = 1
            score = score.sum(axis=1)
        else:
            X = rng.standard_normal((n, 8)) * (1.0 if kind == "dense" else rng.random((n, 8)) < 0.5)
            score = X[:, 0] * X[:, 1] - X[:, 2] ** 2 + X[:, 3]
        self.y = np.digitize(score + 0.3 * rng.logistic(size=n), [-1, 1])
        self.X = X if kind == "dense" else sp.csr_array(X)
        self.table = {"user": users, "item": items, "stars": self.y}

    def design(self, activation, fit_lower="explicit"):
        return Design(self.X, activation, fit_lower=fit_lower, n_threads=1)

    def write(self, folder, sizes):
        """Shards of about equal sizes."""
        how = {"rows_per_shard": -(-self.n // sizes)}
        if self.kind == "codes":
            names = {"one_hot": ["user", "item"], "target": "stars"}
            return write_shards(folder, [self.table], **names, **how)
        return write_shards(folder, [(self.X, self.y)], **how)


def last_state(design, y=None, **options):
    how = {"alpha": 8.0, "n_components": 30, "random_state": 0, "tol": 1e-6, **options}
    *_, state = conditional_gradient(design, y, **how)
    return state


def bits(shards, activation="anova", fit_lower="explicit", n_threads=1, **options):
    """A digest of everything that a run yields."""
    design = ShardDesign(shards, activation, fit_lower=fit_lower, n_threads=n_threads)
    digest = hashlib.sha256()
    how = {"alpha": 8.0, "n_components": 8, "random_state": 0, **options}
    for state in conditional_gradient(design, **how):
        numbers = [state.objective, state.violation, state.violation_bound, state.refit_gap]
        for array in (state.H, state.V, state.intercept, np.array(numbers)):
            digest.update(array.tobytes())
        digest.update(b"" if state.linear is None else state.linear.tobytes())
    assert state.n_components > 0
    return digest.hexdigest()


def cut(shards, sizes):
    """The one shard as shards of these sizes."""
    folder = shards.folder
    content = json.loads((folder / "manifest.json").read_text())
    arrays = dict(shards[0].arrays)
    arrays.pop("places", None)
    content.update(shards=[], sorted=False)
    first = 0
    for number, size in enumerate(sizes):
        rows = slice(first, first + size)
        first += size
        own = {name: a[rows] for name, a in arrays.items()}
        entry = {"rows": size, "files": {}}
        if "indptr" in arrays:
            indptr = arrays["indptr"][rows.start : rows.stop + 1]
            entries = slice(indptr[0], indptr[-1])
            own.update({name: arrays[name][entries] for name in ("indices", "data")})
            own["indptr"] = indptr - indptr[0]
            entry["entries"] = len(own["indices"])
        for name, a in own.items():
            file = f"{number:06d}-{name}.fastpoly-{0:016x}.npy"
            entry["files"][name] = {"name": file, "digest": write_array(folder / file, a)}
        content["shards"].append(entry)
    (folder / "manifest.json").write_text(json.dumps(content))
    return Shards(folder, verify=True)
