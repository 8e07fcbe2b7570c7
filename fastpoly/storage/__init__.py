"""Files: arrays that are not trusted, and the states of a run."""
