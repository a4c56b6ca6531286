"""All that we make on a real three-broker cluster whose nodes and network fail at random.

    plan       which fault comes when, from a seed
    faults     carries the plan out on a `tests.support.kafka_cluster.KafkaCluster`
    producing  a process with numbered records: our producer, or confluent's
    consuming  a process with members of a share group: asyncio's or the blocking client's
    worker     the application of `tests.faults.worker_chaos`, which retries and writes letters
    stage      starts and stops all of it; its Spark query is `tests.integration.spark.kills.query`
    judge      the journals against what is promised
    report     the figures, as JSON and as text

Every process writes what it does into a journal (`tests.faults.worker_chaos.journal`), with one
``write`` for each line, so that the statements of a killed process count.

``python -m tests.cluster_chaos --seconds 600 --seed 7`` runs a trial.  Exit code 1: a promise
was broken.
"""
