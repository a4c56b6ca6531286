"""The workers of an application in the whole cluster: what they announce, and commands for them.

Each process of an application with ``announce=True`` writes a heartbeat to ``<app>.workers`` every
10 seconds, and at once when its phase changes.  It reads commands from ``<app>.control``, carries
out those that are for it, and answers in its next heartbeat.  So who may command workers is decided
by one right, to write to ``<app>.control``, and workers need it not.

    fleet_topics    names and settings of the two topics
    heartbeats      heartbeats, as JSON            commands     commands, as JSON
    fleet           reads the workers, and gives them commands

The processes announce themselves in ``worker.lifecycle.announcer``.
"""
