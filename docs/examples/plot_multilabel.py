"""
Several labels at once: what sharing gains
==========================================

With a label indicator as `y`, one classifier learns all labels, and they share the basis vectors.
If the labels have something in common, each of them then needs fewer examples than a separate
model would.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.multioutput import MultiOutputClassifier

from fastpoly import PolynomialNetworkClassifier

# %%
# There are eight labels and 20 features. All labels depend on three hidden directions: whether a
# label holds depends on a mixture of the squares of the three. A linear model cannot see this.
rng = np.random.default_rng(0)
n_features, n_labels, n_test = 20, 8, 4000
directions = np.linalg.qr(rng.standard_normal((n_features, 3)))[0]
mixture = rng.standard_normal((3, n_labels))


def draw(n_rows):
    X = rng.standard_normal((n_rows, n_features))
    score = 2 * ((X @ directions) ** 2 - 1) @ mixture + rng.logistic(size=(n_rows, n_labels))
    return X, (score > 0).astype(int)


X_test, Y_test = draw(n_test)

# %%
# We train with more and more rows: one network for all labels, one network per label, and one
# linear model per label.
network = PolynomialNetworkClassifier(n_components=20, random_state=0)
models = {
    "one network, shared basis": network,
    "one network per label": MultiOutputClassifier(network),
    "linear": MultiOutputClassifier(LogisticRegression()),
}


def probabilities(model):
    """The probabilities of label 1, (n, 8)."""
    found = model.predict_proba(X_test)
    return np.column_stack([each[:, 1] for each in found]) if isinstance(found, list) else found


sizes = [100, 200, 400, 800, 1600]
scores = {name: [] for name in models}
for size in sizes:
    X, Y = draw(size)
    for name, model in models.items():
        scores[name].append(roc_auc_score(Y_test, probabilities(model.fit(X, Y))))

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), color in zip(scores.items(), ["tab:red", "tab:blue", "0.6"], strict=True):
    ax.plot(sizes, values, "o-", color=color, label=name)
ax.set_xscale("log")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.set(xlabel="training rows", ylabel="mean area under the ROC curve on test rows")
ax.legend()

# %%
# The shared network has found the three directions. Three of its basis vectors have large weights,
# and these lie in the space that the hidden directions span. The color is the length of a vector's
# projection into that space, for vectors of length 1.
vectors = network.components_
lengths = np.linalg.norm(vectors, axis=1)
inside = np.linalg.norm(vectors @ directions, axis=1) / lengths
weight = np.linalg.norm(network.output_weights_, axis=1) * lengths**2
order = np.argsort(-weight)

figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.bar(range(len(order)), weight[order], color=plt.colormaps["viridis"](inside[order]))
ax.set(xlabel="basis vector", ylabel="weight over all labels", xticks=[])
scale = plt.cm.ScalarMappable(plt.Normalize(0, 1), "viridis")
figure.colorbar(scale, ax=ax, label="share in the hidden space")
plt.show()
