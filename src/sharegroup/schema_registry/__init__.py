"""Schemas of a schema registry, and the functions that decode values by them.

schemas      those of a process, and their registry     decoding     Avro, JSON and Protobuf values
"""
