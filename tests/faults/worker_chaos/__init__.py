"""A fleet of workers under everything that can happen to it, and the proof that it kept its word.

    records    what is sent to the share group: a record's number says what its handler does
    app        the share group; every run writes its begin and its end into a journal
    names      of what runs beside it in the same processes
    fleet      consumer groups, one of them exactly once; schedules; records that wait for commands;
               and processes that end themselves in the middle of a transaction
    journal    one file for each process, one line for each thing that happens
    stage      broker, producers and worker processes, and who is killed or frozen when
    commands   pauses schedules, quiets, resumes and stops workers, runs and cancels what waits
    topics     what lies in the topics when everything has come to its end

Journals, deaths, answers and topics are held against what was promised:

    verdict            each record of the share group has its end, and the right one
    keyed              each record of a consumer group was finished, none of a key was overtaken,
                       and in transactions each has one output
    commands_verdict   each due run is one record; each command is answered or said to be
                       unanswered, what was done is in force, and what waited has one end

``python -m tests.faults.worker_chaos`` runs the long trial, `test_worker_chaos` a short one.
"""
