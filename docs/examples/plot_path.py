"""
How strong a penalty, and is it the optimum?
============================================

The strength `alpha` of the penalty decides how many basis vectors a model has. A search goes down
a path of alphas and scores the models on it. The certificate of a model shows how far it is from
the optimum.
"""

from itertools import islice

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fastpoly import Design, PathSearchCV, PolynomialNetworkClassifier, conditional_gradient
from fastpoly.plotting import ConvergenceDisplay, PathDisplay

X, y = load_digits(n_class=5, return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)

# %%
# `PathSearchCV` starts at the smallest alpha whose model is empty. Each following alpha starts from
# the model of the one before, so a path takes few rounds. The plot shows the validation score for
# every alpha and every number of basis vectors.
search = PathSearchCV(PolynomialNetworkClassifier(n_components=20, random_state=0), cv=3)
search.fit(X_train, y_train)
PathDisplay.from_estimator(search)
print(f"best alpha {search.best_params_['alpha']:.3g}")
print(f"test accuracy {search.best_estimator_.score(X_test, y_test):.3f}")

# %%
# If the *violation* of a model is at most alpha, no basis vector can improve it: it is optimal.
# With ``tol=1e-3`` training continues until that holds within a thousandth. `history_` keeps the
# objective and the violation of every round.
alpha = search.best_params_["alpha"]
network = PolynomialNetworkClassifier(alpha=alpha, block=2, tol=1e-3, random_state=0)
network.fit(X_train, y_train)
ConvergenceDisplay.from_estimator(network)
print(f"violation / alpha = {network.violation_ / alpha:.4f}")

# %%
# In the constrained form, with a bound `tau` in place of alpha, the certificate is a duality gap:
# the objective is at most that far from its optimum. The functional core gives it after every
# round, here for the first sixty.
design = Design(X_train / 16, fit_lower="augment")
run = conditional_gradient(design, y_train, tau=5.0, penalty="l1", n_components=30, random_state=0)
states = list(islice(run, 60))
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot([state.objective for state in states], ".-", label="objective")
ax.plot([state.gap for state in states], ".-", label="bound on its distance to the optimum")
ax.set_yscale("log")
ax.set(xlabel="round of training", ylabel="sum over the rows")
ax.legend()
plt.show()
