"""The map of runs against a dictionary of offsets."""

from __future__ import annotations

import os
from itertools import pairwise

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sharegroup.core.delivery import offset_runs
from sharegroup.core.delivery.offset_runs import OffsetRuns, Run

EXAMPLES = os.environ.get("MODEL_EXAMPLES")
VALUES = st.sampled_from("abc")


class OffsetRunsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runs: OffsetRuns[str] = OffsetRuns(5)
        self.values: dict[int, str] = {}
        self.end = 5

    @property
    def start(self) -> int:
        return min(self.values, default=self.end)

    @rule(count=st.integers(0, 6), value=VALUES)
    def append(self, count: int, value: str) -> None:
        self.runs.append(self.end + count, value)
        self.values.update(dict.fromkeys(range(self.end, self.end + count), value))
        self.end += count

    @rule(data=st.data())
    def overlay(self, data: st.DataObject) -> None:
        """Any ascending ranges, adjoining or not; more of them than are spliced one by one."""
        if not self.values:
            return
        borders = data.draw(
            st.lists(st.integers(self.start, self.end), min_size=2, max_size=10, unique=True)
        )
        borders.sort()
        laid = [
            Run(first, end, data.draw(VALUES))
            for first, end in pairwise(borders)
            if data.draw(st.booleans())
        ]
        self.runs.overlay(laid)
        for first, end, value in laid:
            self.values.update(dict.fromkeys(range(first, end), value))

    @rule(first=st.integers(-3, 60), count=st.integers(0, 20))
    def update(self, first: int, count: int) -> None:
        following = {"a": "b", "b": "c", "c": "a"}
        self.runs.update(first, first + count, following.__getitem__)
        for offset in range(first, first + count):
            if offset in self.values:
                self.values[offset] = following[self.values[offset]]

    @rule(count=st.integers(-2, 8))
    def drop_before(self, count: int) -> None:
        offset = min(self.start + count, self.end)
        self.runs.drop_before(offset)
        self.values = {kept: value for kept, value in self.values.items() if kept >= offset}

    @rule(first=st.integers(-3, 60), count=st.integers(0, 20))
    def look(self, first: int, count: int) -> None:
        seen = {
            offset: run.value
            for run in self.runs.between(first, first + count)
            for offset in range(run.first, run.end)
        }
        assert seen == {
            offset: value
            for offset, value in self.values.items()
            if first <= offset < first + count
        }
        if first in self.values:
            run = self.runs.at(first)
            assert run.first <= first < run.end
            assert run in list(self.runs)

    @invariant()
    def runs_are_the_dictionary(self) -> None:
        self.runs.check()
        assert (self.runs.start, self.runs.end) == (self.start, self.end)
        assert self.values == {
            offset: run.value for run in self.runs for offset in range(run.first, run.end)
        }


class FewSplicesMachine(OffsetRunsMachine):
    """The same with the one-pass way of many changes, which takes 513 of them otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.splices_max, offset_runs.SPLICES_MAX = offset_runs.SPLICES_MAX, 1

    def teardown(self) -> None:
        offset_runs.SPLICES_MAX = self.splices_max


SETTINGS = settings(
    max_examples=int(EXAMPLES or 75),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
)
TestOffsetRuns = OffsetRunsMachine.TestCase
TestOffsetRuns.settings = SETTINGS
TestFewSplices = FewSplicesMachine.TestCase
TestFewSplices.settings = SETTINGS
