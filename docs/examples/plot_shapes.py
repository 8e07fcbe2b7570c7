"""
Numbers have shapes
===================

The effect of a number is seldom a straight line. With a frame, a factorization machine can bend it
at hinges, or let it jump at steps; rows held out choose, by default.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from statsmodels.datasets import fair

from fastpoly import FactorizationMachineClassifier

# %%
# In 1974 a magazine asked 6366 married women about their marriage, and whether they had affairs.
data = fair.load_pandas().data
WORK = ["student", "farming, unskilled", "white collar", "teaching", "business", "professional"]
table = pd.DataFrame(
    {
        "age": data["age"],
        "years married": data["yrs_married"],
        "children": data["children"],
        "education": data["educ"],
        "happiness": data["rate_marriage"],
        "religious": data["religious"],
        "work": [WORK[int(number) - 1] for number in data["occupation"]],
        "husband's work": [WORK[int(number) - 1] for number in data["occupation_husb"]],
    }
).astype({"work": "category", "husband's work": "category"})
affair = np.where(data["affairs"] > 0, "yes", "no")
X_train, X_test, y_train, y_test = train_test_split(table, affair, test_size=0.5, random_state=0)

# %%
# Straight lines, hinges, steps, and what the machine chooses by itself. Gradient boosting has steps
# only.
models = {
    f"shapes={shapes!r}": FactorizationMachineClassifier(alpha=100, shapes=shapes, random_state=0)
    for shapes in (None, "hinges", "steps", "auto")
}
models["gradient boosting"] = HistGradientBoostingClassifier(random_state=0)
for name, model in models.items():
    loss = log_loss(y_test, model.fit(X_train, y_train).predict_proba(X_test))
    chosen = f", chosen: {model.shapes_!r}" if "auto" in name else ""
    print(f"{name:18} test log-loss {loss:.3f}{chosen}")

# %%
# The effect of two numbers, all other columns as in one of the rows.
row = X_test.iloc[[0]]
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, name in zip(axes, ("years married", "happiness"), strict=True):
    values = np.linspace(table[name].min(), table[name].max(), 60)
    rows = pd.concat([row] * len(values), ignore_index=True).assign(**{name: values})
    for label, color in zip(models, ["0.6", "tab:red", "tab:blue", None, "0.3"], strict=True):
        if color:
            style = ":" if "boosting" in label else "-"
            p = models[label].predict_proba(rows)[:, 1]
            ax.plot(values, p, style, color=color, label=label)
    ax.set(xlabel=name)
axes[0].set_ylabel("probability of an affair")
axes[1].legend()
plt.show()
