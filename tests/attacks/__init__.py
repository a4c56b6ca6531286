"""Attacks on a `sharegroup serve` process from outside, and what must hold under each of them.

An attack is a function that works with plain sockets (`catalog` lists all of them).  `harness`
starts the broker, an honest probe and the attack, and measures: the longest time that the probe
waited, the peak of resident memory, the time of a restart, and whether honest clients still can
produce, consume and acknowledge.

    python -m tests.attacks --list
    python -m tests.attacks half-frames fetches-unread
    python -m tests.attacks --source /path/to/older/src half-frames
"""
