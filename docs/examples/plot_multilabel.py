"""
Several labels at once: what sharing gains
==========================================

With a label indicator as `y`, one classifier learns all labels, and they share the basis vectors.
If the labels have something in common, each of them then needs fewer examples than a separate
model would.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastpoly import PolynomialNetworkClassifier

# %%
# The rows are the handwritten digits of scikit-learn. The labels say which of the seven segments of
# a pocket calculator would have to light up to show the digit that was written.
SEGMENTS = ["top", "upper left", "upper right", "middle", "lower left", "lower right", "bottom"]
LIT = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010"]
LIT = np.array([list(map(int, digit)) for digit in [*LIT, "1111111", "1111011"]])
images, digits = load_digits(return_X_y=True)
X, X_test, Y, Y_test = train_test_split(
    images, LIT[digits], test_size=0.5, random_state=0, stratify=digits
)
print(dict(zip(SEGMENTS, Y.mean(axis=0).round(2).tolist(), strict=True)))

# %%
# We train with more and more rows: one network for all labels, one network per label, and one
# linear model per label. The score is the log-loss on the test rows, a mean over the labels.
network = PolynomialNetworkClassifier(n_components=12, random_state=0)
linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
models = {
    "one network, shared basis": network,
    "one network per label": MultiOutputClassifier(network),
    "linear": MultiOutputClassifier(linear),
}


def probabilities(model):
    """The probabilities of label 1, (n, 7)."""
    found = model.predict_proba(X_test)
    return np.column_stack([each[:, 1] for each in found]) if isinstance(found, list) else found


sizes = [100, 200, 400]
scores = {name: [] for name in models}
for size in sizes:
    for name, model in models.items():
        P = probabilities(model.fit(X[:size], Y[:size]))
        scores[name].append(np.mean([log_loss(Y_test[:, c], P[:, c]) for c in range(7)]))

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), color in zip(scores.items(), ["tab:red", "tab:blue", "0.6"], strict=True):
    ax.plot(sizes, values, "o-", color=color, label=name)
    print(f"{name:26}", *(f"{value:.3f}" for value in values))
ax.set_xscale("log")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.set(xlabel="training rows", ylabel="log-loss on test rows, mean over the labels")
ax.legend()

# %%
# The weights of the shared network. A row is a basis vector, a column a segment: the vectors with
# the largest weights serve several segments.
weights = network.output_weights_ * (network.components_**2).sum(axis=1, keepdims=True)
weights = weights[np.argsort(-np.linalg.norm(weights, axis=1))]
figure, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
size = np.abs(weights).max()
drawn = ax.imshow(weights, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
ax.set_xticks(range(7), SEGMENTS, rotation=30, ha="right")
ax.set(ylabel="basis vector", yticks=[])
figure.colorbar(drawn, ax=ax, label="weight")
plt.show()
