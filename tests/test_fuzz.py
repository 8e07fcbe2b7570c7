"""Malformed inputs; `python tests/fuzzing.py` tries any number of them."""

import fuzzing
import pytest
from hypothesis import seed

INPUTS = {"fit": 300, "core": 250, "search": 20}


@pytest.mark.parametrize("name", fuzzing.ENTRIES)
def test_a_correct_result_or_a_clear_error(name):
    seed(0)(fuzzing.test_of(name, INPUTS.get(name, 300)))()
