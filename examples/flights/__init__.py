"""The demo: a year of real flights through two share groups, with crashes.

    make demo                       all of it, with the packages that it needs
    python -m examples.flights      the same in a checkout; --help shows the options

What a reader may look for:

    dispatch.py, produce.py         a worker application and a producer
    query.py, delays.py             a streaming query of Spark, and its figures
    broker_view.py                  topics, settings, offsets and dead letters with an admin client
    play.py                         the course of the demo: dispatch_run.py, then pipeline_run.py
    accounts.py, checks.py          the counts that must add up after all crashes
"""
