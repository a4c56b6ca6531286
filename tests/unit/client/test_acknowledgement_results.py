"""Who is told what became of acknowledgements, and how often: once."""

import pytest

from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share.acknowledgement_results import AcknowledgementResults
from sharegroup.errors import InvalidRecordState, KafkaError, NetworkException

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED, DOUBT = InvalidRecordState("over"), NetworkException("cut")


def result(where: TopicPartition, error: KafkaError | None = None) -> AcknowledgementResult:
    return AcknowledgementResult(where, (7,), error)


def outcomes() -> AcknowledgementResults:
    return AcknowledgementResults("g", "m")


def test_a_callback_hears_of_each_and_a_commit_only_of_its_own() -> None:
    told = outcomes()
    heard: list[AcknowledgementResult] = []
    told.callback = heard.append
    told.add([result(ONE, REFUSED), result(ONE)])
    told.run_callback()
    told.run_callback()
    assert heard == [result(ONE, REFUSED), result(ONE)]
    assert told.for_commit([result(OTHER, DOUBT)]) == {OTHER: DOUBT}


def test_what_a_callback_raises_comes_out_and_the_rest_is_told_later() -> None:
    told = outcomes()
    heard: list[AcknowledgementResult] = []

    def fail_once(result: AcknowledgementResult) -> None:
        heard.append(result)
        if len(heard) == 1:
            raise ZeroDivisionError

    told.callback = fail_once
    told.add([result(ONE), result(OTHER)])
    with pytest.raises(ZeroDivisionError):
        told.run_callback()
    told.run_callback()
    assert heard == [result(ONE), result(OTHER)]


def test_without_a_callback_the_next_commit_tells_errors_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = outcomes()
    told.add([result(ONE), result(ONE, REFUSED), result(ONE), result(OTHER)])
    told.run_callback()
    assert told.for_commit([]) == {ONE: REFUSED, OTHER: None}
    assert told.for_commit([]) == {}
    assert caplog.records == []


def test_an_older_failure_is_not_taken_for_the_commits_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = outcomes()
    told.add([result(ONE, REFUSED)])
    told.run_callback()
    assert told.for_commit([result(ONE)]) == {ONE: None}
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "event=acknowledgement.failed group=g member=m topic=t partition=0 error=InvalidRecordState"
    )


def test_a_commits_own_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The same result comes by way of the node and by way of the commit's ticket."""
    told = outcomes()
    told.add([result(ONE, REFUSED)])
    told.run_callback()
    assert told.for_commit([result(ONE, REFUSED)]) == {ONE: REFUSED}
    told.close()
    assert caplog.records == []


def test_what_nobody_was_told_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    told = outcomes()
    told.add([result(ONE, REFUSED), result(OTHER)])
    told.run_callback()
    told.close()
    told.close()
    assert len(caplog.records) == 1
