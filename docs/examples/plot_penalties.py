"""
Three penalties
===============

The penalty decides how outputs share basis vectors. We fit the same data with each and draw the
output layers: a row is a basis vector, a column an output.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastpoly import PolynomialNetworkClassifier

# %%
# The data are the handwritten digits of scikit-learn, so there are ten outputs, one per digit.
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

# %%
# With ``"l1"`` every digit has its own vectors: there is one weight per row. ``"l1/l2"`` keeps or
# drops a vector for all digits together. ``"l1/linf"`` penalizes only the largest weight of a
# vector, so the other digits may use it as much at no cost, and rows have many weights of the same
# size. The penalties are of different sizes, and so are the alphas.
strengths = {"l1": 3.0, "l1/l2": 3.0, "l1/linf": 12.0}
figure, axes = plt.subplots(1, 3, figsize=(10, 5), layout="constrained")
for ax, (penalty, alpha) in zip(axes, strengths.items(), strict=True):
    model = PolynomialNetworkClassifier(
        penalty=penalty, alpha=alpha, n_components=60, tol=1e-2, random_state=0
    )
    accuracy = model.fit(X_train, y_train).score(X_test, y_test)
    weights = model.output_weights_ * (model.components_**2).sum(axis=1, keepdims=True)
    # Vectors next to each other serve the same digit most.
    weights = weights[np.lexsort([-np.abs(weights).max(axis=1), np.abs(weights).argmax(axis=1)])]
    size = np.abs(weights).max()
    ax.imshow(weights, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto", interpolation="nearest")
    ax.set(title=f"{penalty}: {model.n_components_} vectors", xlabel="digit", xticks=range(10))
    print(f"{penalty:8} {model.n_components_} vectors, test accuracy {accuracy:.3f}")
axes[0].set_ylabel("basis vector")
plt.show()
