"""Schemas of a schema registry, and the functions that decode values by them.

schemas      those of a process, and their registry     decoding     JSON and Protobuf values
avro_values  Avro values, and what bounds them
"""
