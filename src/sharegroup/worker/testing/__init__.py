"""Tests of applications: the classes that `App.test` uses and returns."""

from __future__ import annotations

from sharegroup.worker.testing.app_test import AppTest, WorkerFailed
from sharegroup.worker.testing.history import HandlerRun, Outcome, SentRecord
from sharegroup.worker.testing.rest import NeverAtRest

__all__ = ["AppTest", "HandlerRun", "NeverAtRest", "Outcome", "SentRecord", "WorkerFailed"]
