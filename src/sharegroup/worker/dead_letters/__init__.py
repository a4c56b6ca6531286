"""Records that could not be done: written, looked at, sent back, and given up.

    burier       a worker writes them        queue      they are read, in bulk
    redrive      they go back                purge      they are deleted

What writes and what reads them meet only in the headers (`headers`, `letter`): the reading half
also takes the letters that a broker wrote (KIP-1191), and needs no application to be loaded.
"""
