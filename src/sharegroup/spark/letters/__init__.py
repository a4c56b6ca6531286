"""Dead letters as rows: the format ``kafka-share-letters``, and `redrive`.

source      the data source           redrive    sends letters back to their groups
rows        their columns, and the rows of a task
"""
