"""A schema registry in memory, for tests of programs that use Confluent's serializers.

- `server`: the HTTP server, and the context managers that users call;
- `routes`: the table of endpoints;
- `store`: subjects, versions and ids;
- `schema_types`: parsing and comparing schemas; Avro and Protobuf have modules of their own.

Nothing is stored on disk: a registry begins empty and is gone when its context ends.
"""
