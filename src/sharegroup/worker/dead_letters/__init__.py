"""The dead letters of a worker: the records that its handlers could not process.

    burier       writes them                 headers    their headers
    topics       the topics that they need

Reading, redriving and purging need no application: `sharegroup.dead_letters`.
"""
