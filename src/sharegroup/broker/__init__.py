"""The broker: an asyncio shell around `core` and `storage`; `app` builds all of it."""

# Before any module here: it lets kio be imported without what takes half of the time.
import sharegroup.wire  # noqa: F401
