"""Messages of Apache Kafka 4.4 that kio does not have, declared in kio's style.

A module declares one version of an API, request and response, and is named after both:
``api_versions_v5``.  Names, order, types and tags are those of Kafka's schemas.  `wire.codec.apis`
imports a module when its version is first used.

No ``from __future__ import annotations`` in these modules: the decoder reads the types of fields.
"""
