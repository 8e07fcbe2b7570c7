"""
Users' ratings of items: an ordinal recommender
===============================================

Stars are ordered levels: four stars are more than three, but it is not known by how much. The
ordinal factorization machine predicts the probability of every level. The probabilities give the
expected number of stars, which ranks the items, and show how certain the prediction is.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array, eye_array
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

from fastpoly import FactorizationMachineOrdinalRegressor, recommend
from fastpoly.metrics import ndcg, rmse

# %%
# We generate 20,000 ratings. How much a user likes an item depends on the user's habits, on the
# item's quality, and on taste: the products of two hidden traits of each. We also add noise.
rng = np.random.default_rng(0)
n_users, n_items, n_ratings = 300, 200, 20_000
users, items = rng.standard_normal((n_users, 3)), rng.standard_normal((n_items, 3))
pairs = np.column_stack(
    [rng.integers(n_users, size=n_ratings), rng.integers(n_items, size=n_ratings)]
)
user, item = users[pairs[:, 0]], items[pairs[:, 1]]
liking = user[:, 0] + item[:, 0] + (user[:, 1:] * item[:, 1:]).sum(axis=1)
liking += rng.standard_normal(n_ratings)
stars = 1 + np.searchsorted(np.quantile(liking, [0.06, 0.17, 0.44, 0.79]), liking)

# %%
# A row says who rated what. It has one column per user and one per item; two of them are 1.
encoder = OneHotEncoder()
X = encoder.fit_transform(pairs)
X_train, X_test, y_train, y_test, _, pairs_test = train_test_split(
    X, stars, pairs, test_size=0.25, random_state=0
)
machine = FactorizationMachineOrdinalRegressor(n_components=10, random_state=0)
machine.fit(X_train, y_train)
ridge = Ridge().fit(X_train, y_train)

# %%
# The ridge regression can learn habits and quality, but not taste. The machine can learn all three.
for name, model in [("ordinal machine", machine), ("ridge", ridge)]:
    predicted = model.predict(X_test)
    ranking = ndcg(y_test, predicted, pairs_test[:, 0], k=5)
    print(f"{name:16} RMSE {rmse(y_test, predicted):.3f}  nDCG@5 {ranking:.3f}")

# %%
# These are recommendations for one user: the probability of every level for twelve items, the best
# first. The dots mark the expected number of stars. Items with the same expectation may differ in
# how certain the prediction is.
chosen = np.column_stack([np.full(n_items, 7), np.arange(n_items)])
rows = encoder.transform(chosen)
expected, probabilities = machine.predict(rows), machine.predict_proba(rows)
shown = np.argsort(-expected)[np.linspace(0, n_items - 1, 12).astype(int)]

figure, ax = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
colors = plt.colormaps["viridis"](np.linspace(0, 1, 5))
left = np.zeros(len(shown))
for level, share, color in zip(machine.classes_, probabilities[shown].T, colors, strict=True):
    ax.barh(range(len(shown)), share, left=left, color=color, label=f"{level}")
    left += share
ax.set_yticks(range(len(shown)), [f"item {number}" for number in shown])
ax.invert_yaxis()
ax.set(xlabel="probability", xlim=(0, 1), title="Stars that user 7 would give")
above = ax.twiny()
above.plot(
    expected[shown], range(len(shown)), "o", color="black", markeredgecolor="white", markersize=7
)
above.set(xlabel="expected stars (dots)", xlim=(1, 5))
figure.legend(*ax.get_legend_handles_labels(), title="stars", loc="outside right upper")

# %%
# `recommend` ranks all items for many users at once, here without those that a user has rated.
rated = csr_array((np.ones(n_ratings), pairs.T), shape=(n_users, n_items))
found = recommend(machine, eye_array(n_users, X.shape[1], format="csr"), 5, exclude=rated)
for each in range(3):
    best = zip(found.items[each], found.scores[each], strict=True)
    print(f"user {each}:", ", ".join(f"item {item} ({score:.1f})" for item, score in best))

# %%
# Are the probabilities right? Among the test ratings, each level should occur as often as
# predicted.
predicted = machine.predict_proba(X_test)
figure, ax = plt.subplots(figsize=(5.5, 4.4), layout="constrained")
for column, (level, color) in enumerate(zip(machine.classes_, colors, strict=True)):
    order = np.array_split(np.argsort(predicted[:, column]), 8)
    ax.plot(
        [predicted[part, column].mean() for part in order],
        [(y_test[part] == level).mean() for part in order],
        "o-",
        color=color,
        label=f"{level}",
    )
ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1)
ax.set(xlabel="predicted probability", ylabel="share of the test ratings", title="Calibration")
ax.legend(title="stars")
plt.show()
