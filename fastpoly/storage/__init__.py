"""Files: arrays from strangers, and the states of a run."""
