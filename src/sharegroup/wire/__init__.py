"""Bytes: frames, headers, messages, record batches.  Pure: no clock, no I/O, no await."""

from sharegroup.wire.light_imports import defer_aiokafka, defer_crc32c, import_kio

# Before any module here imports them; see there for why.
import_kio()
defer_aiokafka()
defer_crc32c()
