"""A worker application under everything that can happen to it, and the proof that it kept its word.

    records    what is sent: each record's number says what its handler does with it
    app        the application; every run writes its begin and its end into a journal
    journal    one file for each process, one line for each thing that happens
    stage      broker, producer and worker processes, and who is killed when
    topics     what lies in the topics when everything has come to its end
    verdict    journals, deaths and topics against what was promised

``python -m tests.faults.worker_chaos`` runs the long trial, `test_worker_chaos` a short one.
"""
