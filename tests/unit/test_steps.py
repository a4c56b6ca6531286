"""Computations over many elements, in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.steps import STEP_ELEMENTS, Steps, counted, of_each, run_to_end


def negated(elements: list[int]) -> Steps[tuple[int, ...]]:
    return of_each(lambda element: -element, elements)


def test_results() -> None:
    assert run_to_end(negated([1, 2, 1])) == (-1, -2, -1)
    assert run_to_end(counted([1, 2, 1])) == {1: 2, 2: 1}


@pytest.mark.parametrize("make", [negated, counted])
def test_a_step_is_made_for_every_64_elements(make: Callable[[list[int]], Steps[Any]]) -> None:
    assert len(list(make([7] * (10 * STEP_ELEMENTS)))) == 10
    assert not list(make([7]))
