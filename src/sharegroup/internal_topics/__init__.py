"""The records of internal topics, as the broker, the command line and Spark read them.

coordinator_json     any record of the three topics as JSON
share_state_codec    records of ``__share_group_state`` as core's classes
"""
