"""The tests of this folder on a Python that Django 6 runs on, where this one is older."""

from __future__ import annotations

import pytest

from tests.integration.django import environment
from tests.integration.django.conftest import HAS_TASKS


@pytest.mark.slow
@pytest.mark.skipif(HAS_TASKS, reason="they run here")
def test_tests_pass_on_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # The wheel is tested.
    interpreter = environment.newer_python()
    if interpreter is None:
        pytest.skip("Django 6 needs Python 3.12; there is none on PATH or in pyenv")
    environment.run(interpreter)
