"""The same bits from a real Dask cluster: fits of dense rows, CSR and codes, repeated.

    python bench/cluster_bits.py [--repeats 20] [--clusters 1x2,2x1,3x1]

Each fit has workers in processes of their own, as many as the first number says, with as many
threads as the second. Its model must equal, to the last bit, that of one thread without a cluster,
for shards of 2,000 rows. At 5de635d none of the fits of dense rows did. --quick uses few rows and
two repeats.
"""

import argparse
import sys
import tempfile
import warnings

import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster
from experiment import Options, options, table, write

from fastpoly import FactorizationMachineClassifier, PolyModel, Shards, write_shards
from fastpoly.dask import on_cluster


def make_shards(kind: str, n: int) -> Shards:
    """Rows of three classes that depend on products."""
    rng, folder = np.random.default_rng(0), tempfile.mkdtemp()
    if kind == "codes":
        user, item = rng.integers(300, size=n), rng.integers(100, size=n)
        score = (rng.standard_normal((300, 3))[user] * rng.standard_normal((100, 3))[item]).sum(1)
        table = {"user": user, "item": item, "y": np.digitize(score, [-1, 1])}
        names = {"one_hot": ["user", "item"], "target": "y"}
        return write_shards(folder, table, **names, rows_per_shard=n // 4)
    X = rng.standard_normal((n, 30)) * (kind == "dense" or rng.random((n, 30)) < 0.3)
    y = np.digitize(X[:, 0] * X[:, 1], [-0.5, 0.5])
    X = X if kind == "dense" else sp.csr_array(X)
    return write_shards(folder, [(X, y)], rows_per_shard=n // 4)


def fit(shards: Shards) -> PolyModel:
    """A model of few components; `==` compares the bits of its arrays."""
    how = {"alpha": 10.0, "alpha_linear": 1.0, "n_components": 6, "max_iter": 20}
    model = FactorizationMachineClassifier(**how, n_threads=1, random_state=0)
    return model.fit(shards).model_


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--clusters", default="1x2,2x1,3x1")
    own, rest = parser.parse_known_args(argv)
    with options(__doc__, rest) as where:
        repeats, n = (2, 400) if where.quick else (own.repeats, 8000)
        return report(where, own.clusters.split(","), repeats, n)


def report(where: Options, clusters: list[str], repeats: int, n: int) -> int:
    warnings.simplefilter("ignore")
    rows = {kind: make_shards(kind, n) for kind in ("dense", "csr", "codes")}
    wanted = {kind: fit(shards) for kind, shards in rows.items()}
    found: dict[str, dict[str, int]] = {}
    for shape in clusters:
        n_workers, threads = map(int, shape.split("x"))
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=threads, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            for kind, shards in rows.items():
                fits = (fit(on_cluster(shards, client)) for _ in range(repeats))
                same = sum(model == wanted[kind] for model in fits)
                found.setdefault(shape, {})[kind] = same
                print(f"{shape} {kind:6} {same} of {repeats} have the same bits", flush=True)
    cells = [
        [shape, *(f"{same} of {repeats}" for same in of.values())] for shape, of in found.items()
    ]
    text = table(["workers x threads", *rows], cells)
    write(where, "cluster_bits", {"repeats": repeats, "same": found}, text)
    return int(any(same < repeats for of in found.values() for same in of.values()))


if __name__ == "__main__":
    sys.exit(main())
