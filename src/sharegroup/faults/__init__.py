"""Faults that a test injects into a broker: failed requests, slow disks, jumps of time.

    script           which requests fail, wait or lose their connection; freezing the broker
    faulty_handlers  puts a script in front of the broker's handlers, and into their partitions
    faulty_broker    a broker with a script, a clock and a disk
    faulty_files     a disk that is slow, full or fails to sync
    running_clock    a clock that runs and can be advanced
    fault_port       the same faults over HTTP, for tests in other processes and languages

`sharegroup.testing` and ``sharegroup serve --test-port`` use it.  A broker that serves anyone else
does not import it.
"""
