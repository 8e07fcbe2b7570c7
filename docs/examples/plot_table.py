"""
A table as it is: text, numbers, ordered levels
===============================================

Estimators take a data frame as it is. Text and categories become fields of levels, numbers keep
their meaning, and missing values have a level of their own. A factorization machine then finds the
pairs that belong together, although most pairs of levels occur too rarely to have their own weight.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from statsmodels.datasets import anes96

from fastpoly import FactorizationMachineOrdinalRegressor

# %%
# The American National Election Studies of 1996 asked 944 people where they stand between the
# parties, in seven ordered levels, and where they place themselves and the candidates between left
# (1) and right (7).
data = anes96.load_pandas().data
SCHOOLS = ["grades 1-8", "some high school", "high school", "some college", "associate", "BA", "MA"]
table = pd.DataFrame(
    {
        "education": [SCHOOLS[int(number) - 1] for number in data["educ"]],
        "age": data["age"],
        "income": data["income"],
        "self": data["selfLR"],
        "Clinton": data["ClinLR"],
        "Dole": data["DoleLR"],
        "TV news": data["TVnews"],
    }
)
LEVELS = ["strong Dem", "weak Dem", "near Dem", "independent", "near Rep", "weak Rep", "strong Rep"]
party = pd.Categorical.from_codes(data["PID"].astype(int), LEVELS, ordered=True)
table.head()

# %%
# There is nothing to encode, to scale or to tune. A linear classifier needs a ColumnTransformer.
X_train, X_test, y_train, y_test = train_test_split(table, party, test_size=0.5, random_state=0)
machine = FactorizationMachineOrdinalRegressor(random_state=0).fit(X_train, y_train)
encoder = make_column_transformer((OneHotEncoder(), ["education"]), remainder=StandardScaler())
linear = make_pipeline(encoder, LogisticRegression(max_iter=1000)).fit(X_train, y_train)
for name, model in [("ordinal machine", machine), ("linear classifier", linear)]:
    P = pd.DataFrame(model.predict_proba(X_test), columns=model.classes_)
    P = P.sort_index(axis=1)  # the order that log_loss wants
    print(f"{name:18} log-loss {log_loss(np.asarray(y_test), P, labels=list(P.columns)):.3f}")

# %%
# What the machine has learned, asked with rows of our own: a frame again. Someone whose place
# between left and right changes, and who sees Clinton on the left (1) or in the middle (4).
places = np.arange(1, 8)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
colors = plt.colormaps["RdBu_r"](np.linspace(0, 1, len(LEVELS)))
for ax, clinton in zip(axes, (1.0, 4.0), strict=True):
    middle = table.median(numeric_only=True).to_dict()
    rows = pd.DataFrame([middle | {"self": place, "Clinton": clinton} for place in places])
    rows["education"] = "high school"
    ax.stackplot(places, machine.predict_proba(rows).T, colors=colors, labels=LEVELS)
    ax.set(xlabel="own place, left to right", title=f"Clinton at {clinton:.0f}", xlim=(1, 7))
axes[0].set_ylabel("probability")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", reverse=True)
plt.show()
