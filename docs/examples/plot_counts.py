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
# Visits by health, where treatment is free and where it is not. The number of chronic diseases
# works in steps, which the machine has chosen.
diseases = np.linspace(0, table["diseases"].quantile(0.99), 80)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, share in zip(axes, (0.0, 95.0), strict=True):
    for state in ("excellent", "good", "fair", "poor"):
        columns = {"own share": share, "deductible": False, "limited": 0.0, "diseases": diseases}
        rows = pd.DataFrame({**columns, "health": state})
        ax.plot(diseases, machine.predict(rows), label=state)
    ax.set(xlabel="number of chronic diseases", title=f"{share:.0f} % of the costs paid by oneself")
axes[0].set_ylabel("visits per year")
axes[1].legend(title="health")
plt.show()
