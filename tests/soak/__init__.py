"""The soak: honest clients beside ten attackers, for half an hour.

    python -m tests.soak --minutes 30        (`make soak MINUTES=30`; 2 is a smoke test)

`honest` is a process with a producer, two members of a share group, a reader by plain Fetch and an
administrator; it reports every 10 s what it got done.  First it runs undisturbed, for reference.
Then ten `attacker` processes at nice 19 repeat an attack of `tests.attacks.catalog` every 5 s each.
`verdict` judges; the report is in `build/soak`.
"""
