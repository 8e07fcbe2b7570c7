"""
Three penalties
===============

The penalty decides how outputs share basis vectors. We fit the same data with each and draw the
output layers: a row is a basis vector, a column an output.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastpoly import PolynomialNetworkRegressor

# %%
# There are six targets. The first three use one direction of the features with different
# strengths, the next two use another direction, and the last one is noise.
rng = np.random.default_rng(0)
X = rng.standard_normal((400, 15))
first, second = np.linalg.qr(rng.standard_normal((15, 2)))[0].T
signal = np.outer((X @ first) ** 2, [1.0, 0.6, -0.4, 0, 0, 0])
signal += np.outer((X @ second) ** 2, [0, 0, 0, 1.0, 1.0, 0])
Y = signal + 0.5 * rng.standard_normal(signal.shape)

# %%
# With ``"l1"`` every output has its own vectors: five strong ones for the five targets with a
# signal, although two directions would be enough. ``"l1/l2"`` keeps or drops a vector for all
# outputs together, and finds the two directions. ``"l1/linf"`` penalizes only the largest weight of
# a vector, so all outputs use every vector. That is right for outputs that agree, such as the
# levels of a rating, and wasteful here, where they do not.
strengths = {"l1": 100.0, "l1/l2": 150.0, "l1/linf": 300.0}
figure, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained", sharex=True)
for ax, (penalty, alpha) in zip(axes, strengths.items(), strict=True):
    model = PolynomialNetworkRegressor(
        penalty=penalty, alpha=alpha, n_components=20, tol=1e-3, random_state=0
    )
    model.fit(X, Y)
    weights = model.output_weights_ * (model.components_**2).sum(axis=1, keepdims=True)
    weights = weights[np.argsort(-np.linalg.norm(weights, axis=1))]
    size = np.abs(weights).max()
    ax.imshow(weights, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
    ax.set_yticks(range(len(weights)), range(1, len(weights) + 1))
    ax.set_xticks(range(6), range(1, 7))
    ax.set(title=f"{penalty}: {model.n_components_} vectors", xlabel="target")
axes[0].set_ylabel("basis vector")
plt.show()
