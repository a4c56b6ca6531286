"""The whole broker, its clients, their network and its disk, on virtual time, from one seed.

    seed ──▶ swarm (which faults and features) ──▶ world ──▶ broker, clients, chaos
                                                      │
      network (delays, cuts)   loop (time, pauses)    │   disk (lost, torn, failed writes)
              │                                       ▼
              └─ wiretap: every frame as the broker saw it ──▶ checker: L1-L4, S1-S12, V1-V3, M1-M3,
                                                                   Q1-Q3

The broker is the real one, `broker.app.start`, bytes on the wire included.  Nothing in a run
depends on anything but the seed, so a failure replays: `python -m tests.sim --trace SEED`.
"""
