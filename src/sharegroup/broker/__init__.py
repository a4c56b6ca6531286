"""The asyncio shell: requests in, decisions of core made durable, replies out."""

import sharegroup.wire  # noqa: F401  Before any module here imports kio: see `wire.light_imports`.
