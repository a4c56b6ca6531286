"""Schedules of an application: due runs, the records that keep them, and commands for them.

    timing               when a schedule is due: an interval, or a cron expression in a time zone
    schedule             a schedule as an application declares it, and as its owner stores it
    due_runs             decides which runs are due, and what commands change (pure)
    schedule_records     the records of the topic ``<app>.schedules``
    schedule_log         reads them from a cluster
    schedule_client      `Schedules`: lists, pauses, resumes and runs schedules from any program

The owner of a schedule, which writes the runs, is in `sharegroup.worker.scheduling`.
"""
