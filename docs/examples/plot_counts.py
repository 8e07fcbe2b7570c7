"""
Counts: visits to the doctor
============================

Counts are not normal: most are small, none is negative, and large ones vary more. With
``loss="poisson"`` a regressor predicts rates, and the effects of its features multiply.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from statsmodels.datasets import randhie

from fastpoly import FactorizationMachineRegressor

# %%
# The RAND health insurance experiment drew lots who would pay which share of the costs of
# treatment, and counted visits to doctors: 20,190 years of people.
data = randhie.load_pandas().data
states = [data[name] == 1 for name in ("hlthp", "hlthf", "hlthg")]
health = np.select(states, ["poor", "fair", "good"], "excellent")
table = pd.DataFrame(
    {
        "own share": np.expm1(data["lncoins"]).round(),  # percent
        "deductible": data["idp"] == 1,
        "limited": data["physlm"],
        "diseases": data["disea"],
        "health": health,
    }
)
visits = data["mdvis"]
X_train, X_test, y_train, y_test = train_test_split(table, visits, test_size=0.5, random_state=0)
table.head()

# %%
# The deviance of a prediction that is always the mean is there for comparison.
machine = FactorizationMachineRegressor(loss="poisson", random_state=0).fit(X_train, y_train)
encoder = make_column_transformer(
    (OneHotEncoder(drop="if_binary"), ["deductible", "health"]), remainder=StandardScaler()
)
linear = make_pipeline(encoder, PoissonRegressor(alpha=0)).fit(X_train, y_train)
rates = {
    f"machine, {machine.n_components_} vectors": machine.predict(X_test),
    "Poisson regression": linear.predict(X_test),
    "mean": np.full(len(y_test), y_train.mean()),
}
for name, rate in rates.items():
    print(f"{name:20} test deviance {mean_poisson_deviance(y_test, rate):.3f}")

# %%
# What would everybody's visits be, on average over the test rows, in another state of health, with
# another share of the costs, or with another number of chronic diseases? The number works in steps,
# which the machine has chosen. Few people are in poor health, and only 20 of them pay half of the
# costs: that corner is a guess.
scales = {"own share": [0, 25, 50, 95], "diseases": np.arange(0, 26)}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, (name, values) in zip(axes, scales.items(), strict=True):
    for state in ("excellent", "good", "fair", "poor"):
        changed = (X_test.assign(**{name: value, "health": state}) for value in values)
        ax.plot(values, [machine.predict(rows).mean() for rows in changed], label=state)
axes[0].set(xlabel="percent of the costs that are paid by oneself", ylabel="visits per year")
axes[1].set(xlabel="number of chronic diseases")
axes[1].legend(title="health")
plt.show()
