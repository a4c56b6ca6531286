"""Tests of applications: the classes that `App.test` uses and returns."""

from __future__ import annotations

from sharegroup.worker.testing.app_test import AppTest, NeverAtRest, WorkerFailed
from sharegroup.worker.testing.history import HandlerRun, Outcome, SentRecord

__all__ = ["AppTest", "HandlerRun", "NeverAtRest", "Outcome", "SentRecord", "WorkerFailed"]
