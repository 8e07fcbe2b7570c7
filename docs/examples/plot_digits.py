"""
Handwritten digits: basis vectors as images
===========================================

A polynomial network squares a few weighted sums of the pixels and mixes the squares. The weights
of a sum have the shape of an image, so we can look at what the network has learned.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from fastpoly import PolynomialNetworkClassifier

# %%
# The data are 1797 images of 8 x 8 pixels. The network has its default parameters: it chooses the
# strength of the penalty on rows held out, and the number of basis vectors by training.
images, digits = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    images, digits, test_size=0.5, random_state=0, stratify=digits
)
network = PolynomialNetworkClassifier(random_state=0).fit(X_train, y_train)
linear = LogisticRegression(max_iter=5000).fit(X_train / 16, y_train)
print(f"network with {network.n_components_} basis vectors: {network.score(X_test, y_test):.3f}")
print(f"logistic regression: {linear.score(X_test / 16, y_test):.3f}")

# %%
# Ten outputs share these basis vectors. A vector responds to an image that looks like it, and just
# as much to the negative of that image, because its activation is a square. We draw the vectors
# that matter most, in units of the standard deviation of each pixel so that pixels can be compared.
spread = X_train.std(axis=0)
vectors = network.components_ * spread
weights = network.output_weights_ * (vectors**2).sum(axis=1, keepdims=True)
strongest = np.argsort(-np.linalg.norm(weights, axis=1))[:16]

figure, axes = plt.subplots(2, 8, figsize=(10, 2.9), layout="constrained")
for rank, (ax, vector) in enumerate(zip(axes.flat, vectors[strongest], strict=True), start=1):
    size = np.abs(vector).max()
    ax.imshow(vector.reshape(8, 8), cmap="RdBu_r", vmin=-size, vmax=size)
    ax.set_title(rank, fontsize="small")
    ax.set_axis_off()
figure.suptitle("The 16 strongest basis vectors")

# %%
# The output layer shows which digit uses which vector. A red cell is evidence for the digit, a blue
# one against it. Most vectors are evidence for one or two digits, and many also against the eight.
largest = np.abs(weights[strongest]).max()
figure, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
image = ax.imshow(weights[strongest].T, cmap="RdBu_r", vmin=-largest, vmax=largest)
ax.set_xticks(range(16), range(1, 17))
ax.set_yticks(range(10))
ax.set(xlabel="basis vector", ylabel="digit", title="Output layer")
figure.colorbar(image, label="weight", shrink=0.8)
plt.show()
