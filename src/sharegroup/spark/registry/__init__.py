"""Values with a schema in a schema registry as columns: `from_registry`.

columns      the column function           schemas     schemas of a process, and their registry
decoding     Avro, JSON and Protobuf values
"""
