"""For the tests of applications: what `App.test` gives, and what it shows."""

from __future__ import annotations

from sharegroup.worker.testing.app_test import AppTest, WorkerFailed
from sharegroup.worker.testing.history import Outcome, Run
from sharegroup.worker.testing.rest import NeverAtRest
from sharegroup.worker.testing.sent_record import SentRecord

__all__ = ["AppTest", "NeverAtRest", "Outcome", "Run", "SentRecord", "WorkerFailed"]
