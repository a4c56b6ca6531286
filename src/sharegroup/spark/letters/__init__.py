"""Dead letters as rows: the format ``kafka-share-letters``, and `redrive`.

source      the data source           rows       columns of a letter
reading     the rows of a task        redrive    sends letters back to their groups
"""
