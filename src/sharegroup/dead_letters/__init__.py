"""Dead letters: records that could not be processed, in a topic that people and tools read.

Their home: what a letter is, and how it is read, sent back and deleted.

    story         origin and attempts of a record, in its headers     letter    one dead letter
    queue         reads the letters of a topic                        ledger    the redriven ones
    redrive       sends letters back to their groups                  purge     deletes them
    letter_documents    letters as JSON

Each part of the product adds what only it can do:

    broker.share.dead_letters    writes a letter when a record is archived (KIP-1191), with the
                                 rights and the quota of the user who set the topic
    worker.dead_letters          writes a letter when a handler gives up, with the record's story
    cli.dead_letters             `sharegroup dlq`: list, show, redrive, purge and export
    spark.letters                letters as a table, and redrive from a query

The modules of this package need no application, and read the letters of Apache Kafka, too.
"""
