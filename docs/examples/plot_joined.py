"""
New users: tables of users and movies, joined with the ratings
==============================================================

Ratings say little about a user who has given few of them. A table that says who the users are, and
what the movies are like, says more. `Joined` puts the tables beside the ratings, and
`PosteriorAverage` takes them as what to expect of a user or a movie before its first rating. Every
prediction comes with its deviation.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fastpoly import FactorizationMachineRegressor, Joined, PosteriorAverage
from fastpoly.metrics import rmse

# %%
# We make up 6,000 ratings of 200 movies by 400 users. Taste depends on the age group of a user and
# on the genres of a movie, and both have something of their own. The last 100 users are new: each
# has rated at most five movies.
rng = np.random.default_rng(0)
n_users, n_movies, n_new = 400, 200, 100
ages, genres = ["teen", "adult", "senior"], ["action", "drama", "comedy", "war"]
age = rng.integers(len(ages), size=n_users)
has = rng.random((n_movies, len(genres))) < 0.4
liked = rng.standard_normal((len(ages), len(genres)))
taste = liked[age] + 0.4 * rng.standard_normal((n_users, len(genres)))
users = pd.DataFrame({"user": np.arange(n_users), "age": np.array(ages)[age]})
movies = pd.DataFrame({
    "movie": np.arange(n_movies),
    "genres": [list(np.array(genres)[row]) for row in has],
})  # fmt: skip

old = rng.integers(n_users - n_new, size=6000)
new = np.repeat(np.arange(n_users - n_new, n_users), rng.integers(6, size=n_new))
user = np.concatenate([old, new])
movie = rng.integers(n_movies, size=len(user))


def stars(user, movie):
    """What a user thinks of a movie, without noise."""
    return 3 + (taste[user] * has[movie]).sum(axis=1)


rating = stars(user, movie) + 0.7 * rng.standard_normal(len(user))

# %%
# The rows hold keys. The same model with ids alone knows nothing about a user without ratings.
X = Joined({"user": user, "movie": movie}, user=users, movie=movies)
ids = Joined({"user": user, "movie": movie}, user=users[["user"]], movie=movies[["movie"]])
machine = FactorizationMachineRegressor(random_state=0)
models = {
    "ids alone": (PosteriorAverage(machine, random_state=0).fit(ids, rating), ids),
    "joined tables": (PosteriorAverage(machine, random_state=0).fit(X, rating), X),
}

# %%
# We predict every movie for every new user, and look at the error by the number of ratings that the
# user has given.
pairs = {
    "user": np.repeat(np.arange(n_users - n_new, n_users), n_movies),
    "movie": np.tile(np.arange(n_movies), n_new),
}
truth = stars(pairs["user"], pairs["movie"])
count = np.bincount(user, minlength=n_users)[pairs["user"]]
errors, deviations = {}, {}
for name, (model, rows) in models.items():
    mean, deviations[name] = model.predict(rows.with_rows(pairs), return_std=True)
    errors[name] = [rmse(truth[count == n], mean[count == n]) for n in range(6)]
    print(f"{name:14} RMSE", " ".join(f"{error:.2f}" for error in errors[name]))

# %%
# With tables, a user's first ratings matter less, because the table has said most of it. The
# deviations know this: they fall with the number of ratings, and more slowly with tables.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharex=True)
for name in models:
    left.plot(range(6), errors[name], "o-", label=name)
    right.plot(range(6), [deviations[name][count == n].mean() for n in range(6)], "o-", label=name)
left.set(xlabel="ratings of the user", ylabel="RMSE of the prediction")
right.set(xlabel="ratings of the user", ylabel="mean deviation of a new rating")
left.legend()

# %%
# A teenager with the taste of a senior signs up after the fit. A newer table joins the new key,
# which is predicted by its age alone. After forty ratings, `fold_in` gives it a vector of its own,
# and all else stays as it was.
model = models["joined tables"][0]
stranger = pd.DataFrame({"user": [n_users], "age": ["teen"]})
seen = rng.permutation(n_movies)
signed_up = X.with_rows({"user": np.full(n_movies, n_users), "movie": seen}, user=stranger)
own = 3 + has[seen] @ liked[ages.index("senior")]
wider = model.fold_in(signed_up[:40], own[:40] + 0.7 * rng.standard_normal(40))
for name, each in {"by age": model, "with ratings": wider}.items():
    print(f"{name:14} RMSE {rmse(own[40:], each.predict(signed_up[40:])):.2f}")

# %%
# The mean is an ordinary model over all columns. It says which movies a stranger of some age would
# like.
for pair in model.top_interactions(k=4):
    print(pair)
plt.show()
