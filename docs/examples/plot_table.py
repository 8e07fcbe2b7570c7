"""
A table with text columns: which combinations matter
====================================================

Many tables consist of categories. One-hot encoding turns each category into a column of 0 and 1,
and a factorization machine then finds the pairs of categories that belong together, although most
pairs occur too rarely to have their own weight. The pairs come back with the names of the table.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fastpoly import FactorizationMachineRegressor
from fastpoly.plotting import InteractionDisplay

# %%
# A made-up table of 3000 hours at a bicycle rental. Commuters ride on workdays in the morning and
# in the evening, everyone else at noon on weekends, and not in the rain. So the weekday decides
# what the time of day means: an interaction.
rng = np.random.default_rng(0)
n = 3000
table = pd.DataFrame(
    {
        "day": rng.choice(["workday", "weekend"], n, p=[5 / 7, 2 / 7]),
        "time": rng.choice(["night", "morning", "noon", "evening"], n),
        "sky": rng.choice(["clear", "clouds", "rain"], n, p=[0.5, 0.3, 0.2]),
        "station": rng.choice(["harbor", "park", "office", "campus", "suburb"], n),
        "degrees": rng.normal(18, 6, n).round(1),
    }
)
workday, clear = table["day"] == "workday", table["sky"] == "clear"
bikes = (
    40
    + 30 * (workday & table["time"].isin(["morning", "evening"]))
    + 35 * (~workday & (table["time"] == "noon"))
    + 20 * ((table["station"] == "park") & clear)
    - 15 * (table["sky"] == "rain")
    + 1.0 * (table["degrees"] - 18)
    + 8 * rng.standard_normal(n)
)
table.head()

# %%
# The encoder passes on the names, and the machine keeps them. The numbers need no scaling.
encoder = make_column_transformer(
    (OneHotEncoder(sparse_output=False), ["day", "time", "sky", "station"]),
    remainder="passthrough",
    verbose_feature_names_out=False,
).set_output(transform="pandas")
machine = make_pipeline(encoder, FactorizationMachineRegressor(random_state=0))
linear = make_pipeline(encoder, Ridge())
for name, model in [("machine", machine), ("linear", linear)]:
    scores = cross_val_score(model, table, bikes, cv=5)
    print(f"{name}: R2 {scores.mean():.3f}")

# %%
# These are the strongest pairs, with features and target in standard units so that frequent and
# rare categories can be compared. A positive weight means more bicycles than the two categories
# would bring on their own.
machine.fit(table, bikes)
for first, second, weight in machine[-1].top_interactions(k=8):
    print(f"{weight:+6.2f}  {first} and {second}")

# %%
# The plot shows all pairs. The day decides what the time means, a clear sky brings people to the
# park, and the other pairs stay near zero.
InteractionDisplay.from_estimator(machine)
plt.show()
