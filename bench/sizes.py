"""Default fits of growing tables, against logistic regression on all products of features.

Clusters of `make_classification`: 40 features, 3 classes, and 10,000 other rows to test with. Both
methods have default parameters and one thread, and take turns. Seconds are CPU seconds of fitting.
"""

from statistics import median
from time import process_time

from default_methods import METHODS
from default_sets import Table
from experiment import options, table, write
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

OURS, RIVAL = "network", "products + linear"
SIZES = (1_000, 10_000, 50_000)
TEST_ROWS = 10_000
REPETITIONS = {1_000: 5, 10_000: 3, 50_000: 1}  # turns; the rival takes most of a minute on 50,000


def clusters(n: int, n_test: int) -> tuple[Table, Table]:
    """Rows to train on and rows to test with."""
    X, y = make_classification(
        n + n_test, 40, n_informative=10, n_classes=3, flip_y=0.05, random_state=0
    )
    return tuple(Table(X[part], y[part], "classes") for part in (slice(n), slice(n, None)))


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        summary, rows = {}, []
        for n in (100, 200) if where.quick else SIZES:
            train, test = clusters(n, 100 if where.quick else TEST_ROWS)
            seconds, loss = {OURS: [], RIVAL: []}, {}
            for _ in range(REPETITIONS.get(n, 1)):
                for name, found in seconds.items():
                    model = METHODS[name](train)
                    begun = process_time()
                    model.fit(train.X, train.y)
                    found.append(process_time() - begun)
                    loss[name] = log_loss(test.y, model.predict_proba(test.X))
            took = {name: median(found) for name, found in seconds.items()}
            summary[str(n)] = {"seconds": took, "loss": loss}
            for name in seconds:
                ratio = took[OURS] / took[RIVAL]
                rows.append(
                    [f"{n:,} x 40, {name}", f"{took[name]:.3f}",
                     f"{ratio:.2f}x" if name == OURS else "1.00x", f"{loss[name]:.4f}"]
                )  # fmt: skip
        write(where, "sizes", summary, table(["", "seconds", "time ratio", "log-loss"], rows))


if __name__ == "__main__":
    main()
