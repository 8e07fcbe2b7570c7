"""Files: arrays that are not trusted, models, and the states of a run."""
