"""Internal topics as rows: the format ``kafka-share-state``.

source       the data source
records      a row for each record of ``__share_group_state``, ``__consumer_offsets`` or
             ``__transaction_state``
live_runs    a row for each run of a share partition in its present state
"""
