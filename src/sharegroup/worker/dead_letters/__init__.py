"""Dead letters: records that could not be processed.

    burier       writes them in a worker     queue      reads them in bulk
    redrive      sends them back             purge      deletes them

The writing and the reading modules share only the format of the headers (`headers`, `letter`).
The reading modules need no application, and also read letters that a broker wrote (KIP-1191).
"""
