"""The SCRAM credentials of the catalog: changes, the journal, and decoys for unknown users."""

import json

from sharegroup.broker.cluster.scram_credentials import Removal, ScramCredentials, Upsertion
from sharegroup.core.security.scram import ScramCredential
from sharegroup.protocol_enums import ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = ScramCredential(b"salt of alice", b"stored", b"server", 4096)
BOB = ScramCredential(b"salt", b"stored too", b"server too", 8192)
KEY = b"k" * 32


def with_alice_and_bob() -> ScramCredentials:
    credentials = ScramCredentials()
    upserted = [Upsertion("alice", SHA_256, ALICE), Upsertion("bob", SHA_512, BOB)]
    credentials.replay(credentials.changed(upserted, [], decoy_key=KEY))
    return credentials


def restarted(credentials: ScramCredentials) -> ScramCredentials:
    """Return the credentials that the shortest journal leads to."""
    again = ScramCredentials()
    for event in credentials.events():
        again.replay(json.loads(json.dumps(event)))
    return again


def test_credentials_are_found_by_user_and_mechanism_also_after_a_restart() -> None:
    for credentials in (with_alice_and_bob(), restarted(with_alice_and_bob())):
        assert credentials.find(SHA_256, "alice") == (ALICE, True)
        assert credentials.find(SHA_512, "bob") == (BOB, True)
        assert credentials.count == 2
        assert list(credentials.users) == ["alice", "bob"]
        assert len(list(credentials.events())) == len(credentials) == 3


def test_removed_and_replaced_credentials_are_gone() -> None:
    credentials = with_alice_and_bob()
    event = credentials.changed(
        [Upsertion("alice", SHA_256, BOB)], [Removal("bob", SHA_512)], decoy_key=b"other"
    )
    credentials.replay(event)
    assert credentials.find(SHA_256, "alice") == (BOB, True)
    assert credentials.find(SHA_512, "bob")[1] is False
    assert credentials.count == 1
    assert restarted(credentials).find(SHA_256, "alice") == (BOB, True)


def test_an_unknown_user_has_the_same_decoy_each_time() -> None:
    credentials = with_alice_and_bob()
    decoy, is_known = credentials.find(SHA_256, "carol")
    assert not is_known
    assert (len(decoy.salt), decoy.iterations) == (13, 4096)  # As alice's, the only ones.
    assert restarted(credentials).find(SHA_256, "carol")[0] == decoy
    assert credentials.find(SHA_256, "dave")[0].salt != decoy.salt
    # Another broker has another key.
    other = ScramCredentials()
    other.replay(other.changed([Upsertion("alice", SHA_256, ALICE)], [], decoy_key=b"other"))
    assert other.find(SHA_256, "carol")[0].salt != decoy.salt


def test_decoys_follow_the_shapes_of_the_credentials_that_are_left() -> None:
    credentials = with_alice_and_bob()
    credentials.replay(
        credentials.changed([Upsertion("alice", SHA_256, BOB)], [], decoy_key=b"other")
    )
    decoy, _ = credentials.find(SHA_256, "carol")
    assert (len(decoy.salt), decoy.iterations) == (4, 8192)
