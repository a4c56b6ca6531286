"""One module for each subject, with an entry in its ``SERVED`` for each request type.

`broker.handler_contract` says what the functions of a module get and may return, and
`broker.server.handler_table` which module serves each API.
"""
