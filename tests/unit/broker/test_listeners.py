"""Listeners: where they accept connections, what they advertise, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.listeners import (
    Listener,
    is_loopback,
    metrics_host,
    parse_listeners,
)
from sharegroup.errors import InvalidConfig

LOCAL = "PLAINTEXT://127.0.0.1:9092"


def listeners(insecure: bool = False, **values: str) -> tuple[Listener, ...]:
    names = {name.replace("_", "."): value for name, value in values.items()}
    return parse_listeners(Config.parse(names), insecure=insecure)


def advertised(found: Listener) -> tuple[str, int]:
    return found.advertised_host, found.advertised_port


def test_listener_advertises_its_own_address() -> None:
    [found] = listeners(listeners=LOCAL)
    assert (found.name, found.host, found.port) == ("PLAINTEXT", "127.0.0.1", 9092)
    assert advertised(found) == ("127.0.0.1", 0)
    assert not found.is_narrowed


def test_advertised_listener_replaces_host_and_port() -> None:
    [found] = listeners(listeners=LOCAL, advertised_listeners="PLAINTEXT://queue.local:19092")
    assert advertised(found) == ("queue.local", 19092)


def test_older_key_gives_the_host_alone() -> None:
    [found] = listeners(listeners=LOCAL, sharegroup_advertised_host="queue.local")
    assert advertised(found) == ("queue.local", 0)


def test_stock_file_listens_on_loopback_for_clients_of_this_machine() -> None:
    values = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised_listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller_listener_names": "CONTROLLER",
    }
    [found] = listeners(**values)
    assert (found.host, found.port, found.is_narrowed) == ("127.0.0.1", 9092, True)
    assert advertised(found) == ("localhost", 9092)
    [opened] = listeners(insecure=True, **values)
    assert (opened.host, opened.is_narrowed) == ("0.0.0.0", False)


def test_listeners_of_a_compose_file_are_all_opened() -> None:
    found = listeners(
        insecure=True,
        listeners="CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
        advertised_listeners="PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
        listener_security_protocol_map=(
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
        ),
        controller_listener_names="CONTROLLER",
    )
    assert [(opened.name, opened.port, *advertised(opened)) for opened in found] == [
        ("PLAINTEXT_HOST", 9092, "localhost", 9092),
        ("PLAINTEXT", 19092, "broker", 19092),
    ]


def test_controllers_may_have_any_name() -> None:
    [found] = listeners(
        listeners=f"RAFT://127.0.0.1:9093,{LOCAL}", controller_listener_names="RAFT"
    )
    assert found.name == "PLAINTEXT"


def test_names_are_not_case_sensitive() -> None:
    [found] = listeners(listeners="plaintext://[::1]:9092", advertised_listeners=LOCAL)
    assert (found.name, found.host) == ("PLAINTEXT", "::1")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:http"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "must be NAME://host:port"),
        ({"listeners": "127.0.0.1:9092"}, "must be NAME://host:port"),
        ({"listeners": ""}, "no listener for clients"),
        ({"listeners": "CONTROLLER://127.0.0.1:9093"}, "no listener for clients"),
        ({"listeners": f"{LOCAL},{LOCAL}9"}, "must be NAME"),
        ({"listeners": f"{LOCAL},PLAINTEXT://127.0.0.1:9093"}, "two listeners named PLAINTEXT"),
        ({"listeners": "EXTERNAL://127.0.0.1:9093"}, "must say which protocol the listener EXTERN"),
        (
            {"listeners": LOCAL, "listener.security.protocol.map": "PLAINTEXT:TLS"},
            "must say which protocol the listener PLAINTEXT has, one of PLAINTEXT, SSL",
        ),
        ({"listeners": LOCAL, "listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"listeners": LOCAL, "advertised.listeners": "OTHER://a:1"}, "names OTHER, but"),
        ({"listeners": LOCAL, "advertised.listeners": "localhost:1"}, "advertised.listeners must"),
        ({"listeners": LOCAL, "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "every address"),
        ({"listeners": LOCAL, "advertised.listeners": "PLAINTEXT://:1"}, "every address"),
        ({"listeners": "PLAINTEXT://:9092"}, "--insecure"),
        ({"listeners": "PLAINTEXT://192.0.2.1:9092"}, "--insecure"),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://queue:9092"},
            "--insecure",
        ),
    ],
)
def test_listeners_that_cannot_be_served_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_listeners(Config.parse(values), insecure=False)


def test_two_listeners_on_one_port_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="same port"):
        listeners(
            listeners=f"{LOCAL},INTERNAL://127.0.0.1:9092",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        )


def test_listener_on_every_address_needs_an_advertised_host() -> None:
    with pytest.raises(InvalidConfig, match=r"advertised\.listeners=PLAINTEXT://HOST:9092"):
        listeners(insecure=True, listeners="PLAINTEXT://0.0.0.0:9092")


def _is_near(host: str) -> bool:
    """Count 127.0.0.2 as an address that other machines reach."""
    return is_loopback(host) and host != "127.0.0.2"


AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def protected(protocol: str, insecure: bool = False, **values: str) -> tuple[Listener, ...]:
    """The listeners on an address that other machines reach."""
    names = {name.replace("_", "."): value for name, value in values.items()}
    config = Config.parse({"listeners": f"{protocol}://127.0.0.2:9092", **names})
    # The authorizer is another part of the broker, so its key is not parsed here.
    config = replace(config, given={**config.given, **(AUTHORIZER if not insecure else {})})
    return parse_listeners(config, insecure=insecure, is_local=_is_near)


def test_client_certificates_and_an_authorizer_open_a_listener_to_other_machines() -> None:
    [found] = protected("SSL", ssl_client_auth="required")
    assert (found.host, found.protocol, found.uses_tls) == ("127.0.0.2", "SSL", True)
    assert found.needs_certificates
    assert not protected("SSL", insecure=True, ssl_client_auth="required")[0].needs_certificates
    [found] = protected("SSL", **{"listener.name.ssl.ssl.client.auth": "required"})
    assert found.host == "127.0.0.2"


@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_tls_without_client_certificates_is_not_enough_for_other_machines(
    client_auth: str,
) -> None:
    with pytest.raises(InvalidConfig, match=rf"ssl\.client\.auth={client_auth}; set listener\.nam"):
        protected("SSL", ssl_client_auth=client_auth)
    assert protected("SSL", insecure=True, ssl_client_auth=client_auth)


def test_listener_for_other_machines_needs_an_authorizer() -> None:
    values = {"listeners": "SSL://127.0.0.2:9092", "ssl.client.auth": "required"}
    with pytest.raises(InvalidConfig, match=r"every user may do everything; set authorizer\.class"):
        parse_listeners(Config.parse(values), insecure=False, is_local=_is_near)
    assert parse_listeners(Config.parse(values), insecure=True, is_local=_is_near)


def test_unprotected_listener_for_other_machines_needs_insecure() -> None:
    with pytest.raises(InvalidConfig, match=r"without TLS or a password.*--insecure"):
        protected("PLAINTEXT")
    assert protected("PLAINTEXT", insecure=True)


def test_tls_listener_on_every_address_is_not_narrowed() -> None:
    values = {
        "listeners": "SSL://0.0.0.0:9092",
        "advertised.listeners": "SSL://localhost:9092",
        "ssl.client.auth": "required",
    }
    with pytest.raises(InvalidConfig, match="every user may do everything"):
        parse_listeners(Config.parse(values), insecure=False)
    [found] = parse_listeners(Config.parse(values), insecure=True)
    assert (found.host, found.is_narrowed) == ("0.0.0.0", False)


def test_protocols_of_listeners_come_from_their_names_or_from_the_map() -> None:
    found = listeners(
        listeners="SSL://127.0.0.1:1,EXTERNAL://127.0.0.1:2,PLAINTEXT://127.0.0.1:3",
        listener_security_protocol_map="EXTERNAL:SSL",
    )
    assert [listener.protocol for listener in found] == ["SSL", "SSL", "PLAINTEXT"]


@pytest.mark.parametrize(
    ("host", "insecure", "given", "expected"),
    [
        ("127.0.0.5", False, "", "127.0.0.5"),
        ("::1", False, "", "::1"),
        ("0.0.0.0", False, "", "127.0.0.1"),
        ("192.0.2.1", False, "", "127.0.0.1"),
        ("0.0.0.0", True, "", "0.0.0.0"),
        ("0.0.0.0", False, "10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", True, "10.0.0.1", "10.0.0.1"),
    ],
)
def test_metrics_are_open_to_other_machines_by_choice_alone(
    host: str, insecure: bool, given: str, expected: str
) -> None:
    server = Config.parse({"sharegroup.metrics.host": given}).server
    listener = Listener("CLIENTS", host, 9092, "queue.local", 9092, False, "SASL_SSL")
    assert metrics_host(server, listener, insecure=insecure) == expected
