"""The requests that are served, beside those of Apache Kafka's broker: the list has no gap.

What is missing is in the last section of docs/differences.md.
"""

from __future__ import annotations

import pytest

from sharegroup.wire.codec.apis import APIS
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)

NOT_THERE_YET = {
    *("CreateDelegationToken", "RenewDelegationToken"),
    *("ExpireDelegationToken", "DescribeDelegationToken"),
    *("StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate"),
}


@pytest.mark.kafka
@pytest.mark.skipif(WHY_NO_JAVA is not None, reason=WHY_NO_JAVA or "")
def test_every_request_of_kafkas_broker_is_served_in_its_stable_versions() -> None:
    printed = printed_by(kafka_peer.kafka_libs(), "BrokerApis")
    theirs = {}
    for line in printed:
        key, name, oldest, newest = line.split("\t")
        theirs[int(key)] = (name, int(oldest), int(newest))
    assert len(theirs) > 70
    ours = {key: (api.name, api.oldest, api.newest) for key, api in APIS.items()}
    missing = {name for key, (name, *_) in theirs.items() if key not in ours}
    assert missing == NOT_THERE_YET
    assert {key: theirs[key] for key in ours} == ours
