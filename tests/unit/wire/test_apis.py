"""The written-out API table agrees with kio's index of Kafka's own schemas."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map

from sharegroup.wire.codec import apis
from sharegroup.wire.codec.apis import APIS, DECLARED_HERE, PEER_APIS

EVERY = [
    (api.key, version)
    for api in (*APIS.values(), *PEER_APIS.values())
    for version in range(api.oldest, api.newest + 1)
]


def test_table_has_the_apis_of_the_design():
    assert sorted(APIS) == [
        0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 55, 57,
        60, 61, 64, 65, 66,
        68, 69, 71, 72, 74, 75, 76, 77, 78, 79, 80, 81, 83, 84, 85, 86, 87, 90, 91, 92, 94,
    ]  # fmt: skip


def test_every_api_that_our_client_uses_is_served():
    assert set(PEER_APIS) <= set(APIS)


def test_our_clients_name_topics_where_newer_versions_have_their_ids():
    fewer = {key: (api.oldest, api.newest) for key, api in PEER_APIS.items() if key in APIS}
    assert fewer == {8: (8, 9), 9: (8, 9), 24: (0, 3), 28: (0, 5)}
    assert apis.spoken_api(8).newest == 9
    assert apis.spoken_api(3) is APIS[3]
    assert apis.spoken_api(69).name == "ConsumerGroupDescribe"


UNSTABLE = {(22, 6)}
"""Versions that Kafka 4.4 does not advertise."""


def test_api_versions_agree_with_those_of_kio_and_those_declared_here():
    for api in APIS.values():
        names = api_key_map.get(api.key)
        versions = set(schema_name_map[names]) if names else set()
        declared = {version for key, version in DECLARED_HERE if key == api.key}
        assert not declared & versions, f"{api.name}: kio has it now; remove ours"
        versions -= {version for key, version in UNSTABLE if key == api.key}
        assert sorted(versions | declared) == list(range(api.oldest, api.newest + 1)), api.name


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_classes_and_header_versions_agree_with_kio(key, version):
    request = apis.request_class(key, version)
    response = apis.response_class(key, version)
    assert (request.__api_key__, request.__version__) == (key, version)
    assert (response.__api_key__, response.__version__) == (key, version)
    assert request.__flexible__ == apis.is_flexible(key, version)
    assert response.__header_schema__.__version__ == apis.response_header_version(key, version)


def test_only_produce_advertises_versions_that_are_not_served():
    differing = {api.name for api in APIS.values() if api.oldest_advertised != api.oldest}
    assert differing == {"Produce"}
    assert APIS[0].oldest_advertised == 0
