"""Dead letters as a worker, a broker or Spark reads them: records that could not be processed.

    story         origin and attempts of a record, in its headers     letter    one dead letter
    queue         reads the letters of a topic                        ledger    the redriven ones
    redrive       sends letters back to their groups                  purge     deletes them

The modules need no application, and also read letters that a broker wrote (KIP-1191).  A worker
writes its letters with `sharegroup.worker.dead_letters`.
"""
