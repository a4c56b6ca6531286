"""Our error codes beside those of Kafka's Java client: the same codes, the same retriable flags."""

from __future__ import annotations

import pytest

from sharegroup.errors import BY_CODE, NONE
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)


@pytest.mark.kafka
@pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA))
def test_codes_and_retriable_flags_agree_with_the_java_client() -> None:
    printed = printed_by(kafka_peer.kafka_libs(), "ErrorTable")
    rows = [line.split() for line in printed]
    theirs = {int(code): retriable == "true" for code, _, retriable in rows if int(code) != NONE}
    # A newer client of Java may have more codes; those that it has must be known here.
    assert {code: error.retriable for code, error in BY_CODE.items() if code in theirs} == theirs
