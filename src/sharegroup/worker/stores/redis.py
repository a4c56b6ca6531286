"""A store in Redis, for all processes that reach the server.  Needs redis-py.

Each name is a key with an expiry, whose value is a letter, the token's length, the token and the
value.  Scripts make each call atomic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sharegroup.worker.stores.store import (
    Confirmed,
    Held,
    Reservation,
    Reserved,
    StoreUnavailable,
    check_installed,
    check_name,
    check_value,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis

CALL_SECONDS = 10.0
"""How long a call may take, by default."""
PREFIX = "sharegroup:"
LEASE, KEPT = b"L", b"K"

RESERVE = """
local kept = redis.call('GET', KEYS[1])
if kept and kept ~= ARGV[1] then return {kept, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {}
"""
CONFIRM = """
local kept = redis.call('GET', KEYS[1])
if kept and string.sub(kept, 2, 1 + string.len(ARGV[1])) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""


class RedisStore:
    """A store in Redis, for all processes that reach the server.

    ``url`` is one of redis-py, such as ``redis://host:6379/0``.  Keys begin with ``prefix``.  Names
    are kept as long as the server keeps them: one that evicts keys, or restarts without its
    append-only file, forgets them.  A call fails after ``call_seconds``.
    """

    __slots__ = ("_call_seconds", "_client", "_prefix", "_url")

    def __init__(
        self, url: str, *, prefix: str = PREFIX, call_seconds: float = CALL_SECONDS
    ) -> None:
        check_installed("redis", "redis", "RedisStore")
        self._call_seconds = call_seconds
        self._url = url
        self._prefix = prefix
        self._client: Redis | None = None

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        """Reserve a name for a time; for the same token again, extend its lease."""
        kept = await self._run(RESERVE, name, LEASE + _marked(token), _ms(lease_seconds))
        if not kept:
            return Reserved()
        content, ms_left = kept
        if content[:1] == LEASE:
            return Held(max(0, ms_left) / 1000)
        return Confirmed(_value(content))

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        """Confirm a reservation for a time; False if another token has the name by now."""
        check_value(name, value)
        mark = _marked(token)
        return bool(await self._run(CONFIRM, name, mark, KEPT + mark + value, _ms(keep_seconds)))

    async def release(self, name: str, token: str) -> None:
        """Free a name that this token has reserved."""
        await self._run(RELEASE, name, LEASE + _marked(token))

    async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
        """Keep a value by its name for a time, in place of an earlier one."""
        check_name(name)
        check_value(name, value)
        content = KEPT + _marked("") + value
        await self._called("SET", self._key(name), content, "PX", _ms(keep_seconds))

    async def get(self, name: str) -> bytes | None:
        """Return the value that was put or confirmed; None if there is none, or no longer."""
        check_name(name)
        content = await self._called("GET", self._key(name))
        return _value(content) if content is not None and content[:1] == KEPT else None

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _key(self, name: str) -> str:
        return self._prefix + name

    async def _run(self, script: str, name: str, *arguments: bytes | int) -> Any:
        check_name(name)
        return await self._called("EVAL", script, 1, self._key(name), *arguments)

    async def _called(self, *command: str | bytes | int) -> Any:
        # Imported here, because only applications with this store need it.
        from redis.asyncio import Redis
        from redis.exceptions import RedisError

        try:
            if self._client is None:
                self._client = Redis.from_url(self._url)
            async with asyncio.timeout(self._call_seconds):
                return await self._client.execute_command(*command)
        except (RedisError, OSError) as error:
            what = str(error) or f"no answer within {self._call_seconds:g} s"
            raise StoreUnavailable(
                f"RedisStore, keys {self._prefix}*: {what}; expected a server that this process "
                f"reaches, and a user that may run EVAL, GET and SET there"
            ) from error


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _marked(token: str) -> bytes:
    """The token behind its length, so that no other token begins with it."""
    content = token.encode()
    assert len(content) < 256, "a token is short"
    return bytes([len(content)]) + content


def _value(content: bytes) -> bytes:
    return content[2 + content[1] :]
