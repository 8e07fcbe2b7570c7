"""
Rows that stay on disk
======================

Training needs sums over the rows, never all rows at once. So the rows may stay in files. They are
written once as shards, in bounded memory, and every fit reads them from there. The result is the
model of all rows, not of a sample.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fastpoly import FactorizationMachineOrdinalRegressor, Shards, write_shards

# %%
# The rows come in batches: here from a random generator, in practice from parquet or CSV files or
# from a database. Only one batch is in memory at a time.
rng = np.random.default_rng(0)
n_users, n_items = 1000, 300
taste, style = rng.standard_normal((n_users, 2)), rng.standard_normal((n_items, 2))


def batches(n_batches=10, rows=10_000):
    for _ in range(n_batches):
        user, item = rng.integers(n_users, size=rows), rng.integers(n_items, size=rows)
        liking = (taste[user] * style[item]).sum(axis=1) + 0.7 * rng.standard_normal(rows)
        yield {"user": user, "item": item, "stars": 1 + np.digitize(liking, [-2, -0.5, 0.5, 2])}


# %%
# `write_shards` encodes the users and items and writes a folder of plain files. Two one-hot fields
# take 13 bytes per row: codes, the target, and the place of the row in the table.
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "ratings"
write_shards(path, batches(), one_hot=["user", "item"], target="stars", rows_per_shard=10_000)
shards = Shards(path)
size = sum(file.stat().st_size for file in path.rglob("*.npy"))
print(f"{len(shards)} shards, {shards.n_samples} rows, {shards.n_features} columns")
print(f"{size / 1e6:.1f} MB")

# %%
# Estimators take shards in place of X and y. A part of the rows is held out at random.
train, test = shards.split(0.8, 0.2, seed=0)
machine = FactorizationMachineOrdinalRegressor(n_components=8, random_state=0).fit(train)
stars, predicted = test.targets(), machine.predict(test)
print(f"{machine.n_components_} basis vectors, test R2 {machine.score(test, stars):.3f}")

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
levels = machine.classes_
ax.violinplot([predicted[stars == level] for level in levels], levels, showmedians=True)
ax.plot(levels, levels, "k--", linewidth=1)
ax.set(xlabel="stars given", ylabel="stars predicted", title="Test ratings", xticks=levels)

# %%
# The result does not depend on what computes it. A fit with two threads has the same bits as one
# with a single thread, and so does a fit by processes or by the workers of a Dask cluster.
again = machine.set_params(n_threads=2).fit(train)
print("same predictions:", np.array_equal(again.predict(test), predicted))

# %%
# The shards hold the encoding of the table, and so does the model: it predicts tables. A user that
# was never seen contributes nothing.
print(machine.predict({"user": [0, 1, 2], "item": [10, 10, 299]}).round(2))
folder.cleanup()
plt.show()
