"""Who is told what became of acknowledgements, and how often: once."""

import pytest

from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share.consumer.acknowledgement_results import AcknowledgementResults
from sharegroup.errors import InvalidRecordState, KafkaError, NetworkException

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSED, DOUBT = InvalidRecordState("over"), NetworkException("cut")


def result(where: TopicPartition, error: KafkaError | None = None) -> AcknowledgementResult:
    return AcknowledgementResult(where, (7,), error)


def outcomes() -> AcknowledgementResults:
    return AcknowledgementResults("g", "m")


def test_callback_gets_every_result_and_a_commit_only_the_results_of_its_request() -> None:
    told = outcomes()
    heard: list[AcknowledgementResult] = []
    told.callback = heard.append
    told.add([result(ONE, REFUSED), result(ONE)])
    told.run_callback()
    told.run_callback()
    assert heard == [result(ONE, REFUSED), result(ONE)]
    assert told.for_commit([result(OTHER, DOUBT)]) == {OTHER: DOUBT}


def test_exception_of_the_callback_is_raised_and_the_other_results_are_kept() -> None:
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


def test_without_a_callback_the_next_commit_returns_an_error_before_a_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = outcomes()
    told.add([result(ONE), result(ONE, REFUSED), result(ONE), result(OTHER)])
    told.run_callback()
    assert told.for_commit([]) == {ONE: REFUSED, OTHER: None}
    assert told.for_commit([]) == {}
    assert caplog.records == []


def test_older_failure_is_logged_and_not_returned_by_a_later_commit(
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


def test_failure_of_a_commit_is_returned_once_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same result is reported by the node and by the commit's request."""
    told = outcomes()
    told.add([result(ONE, REFUSED)])
    told.run_callback()
    assert told.for_commit([result(ONE, REFUSED)]) == {ONE: REFUSED}
    told.close()
    assert caplog.records == []


def test_unreported_failure_is_logged_once_on_close(caplog: pytest.LogCaptureFixture) -> None:
    told = outcomes()
    told.add([result(ONE, REFUSED), result(OTHER)])
    told.run_callback()
    told.close()
    told.close()
    assert len(caplog.records) == 1
