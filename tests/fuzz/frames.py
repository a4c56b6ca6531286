"""Frames for the broker: valid requests and what mutation makes of them."""

from __future__ import annotations

import random
import struct
from collections import Counter
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from sharegroup.wire.codec.apis import APIS, Api, request_class
from sharegroup.wire.codec.encoder import encode
from sharegroup.wire.codec.headers import encode_request_header
from tests.faults.tokens import Kind, Token, lies_about, tokens_of, uvarint
from tests.fuzz.classic import ClassicMember
from tests.fuzz.honest import ShareMember, administration, produce_request
from tests.fuzz.messages import Known, message, number
from tests.fuzz.numbers import interesting

VERSIONS = tuple(
    (api, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1)
)
KEPT = 8
"""Requests of one type and version that are kept, to be changed and sent again."""
FRESH_SHARE = 0.1
"""How often a request is made anew instead of taken from those kept."""
FRESH_SHARES = {0: 0.3}
"""The same for Produce, because its records are only made with the whole request."""
SHARES = (0.5, 0.2)
"""Frames with valid values, and frames in which only the values of fields are broken.  The others
are broken anywhere: lengths, counts, tags, headers, cut or spliced."""
WIDE_SHARE = 0.0005
"""Valid frames of which an array is made large."""
WIDE_ELEMENTS = (140, 600, 600, 1_500, 3_000, 31_000)
WIDE_BYTES_MAX = 400_000
LAYOUTS = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
CLIENT_ID = "fuzz"
CLIENT_IDS = (b"\xff\xff", b"\0\0", b"\0\1\xff", b"\x7f\xff", b"\0\2\n\x1b")
LIKELY = {0: 6, 1: 5, 78: 5, 79: 4, 76: 4, 2: 3, 11: 2, 8: 2, 20: 0.05, 57: 0.1, 21: 0.2, 42: 0.2}
"""Weights of request types; the others have one.  Those that delete or switch off are rarer."""
CHANGED_NUMBERS = (0, 1, 1, 2, 3)
MEMBER_SHARE, ADMINISTRATOR_SHARE, PRODUCER_SHARE = 0.5, 0.02, 0.1
"""What is sent through a calm connection, besides other valid frames."""
CLASSIC_SHARE = 0.15
"""The part of `MEMBER_SHARE` that is from members of consumer groups."""
CHANGED_SHARE, BROKEN_SHARE = 0.2, 0.05
"""How many of these are changed, and in how many values are broken."""
MEMBER_ID = "member_id"
TIMES = ("timeout", "max_wait", "retention_time")
"""Ends of the names of fields that would let a whole frame wait for ever."""


class Place(NamedTuple):
    """Where a number or a member id stands in a request."""

    at: int
    size: int
    name: str


class Request(NamedTuple):
    """A valid request as tokens and as bytes."""

    api: Api
    version: int
    tokens: list[Token]
    raws: list[bytes]
    body: bytes
    places: list[Place]
    contents: list[int]
    """The indexes of the tokens that are neither lengths nor times."""


class Frame(NamedTuple):
    """Bytes for a connection, and the answer that may come: None where nobody can know."""

    data: bytes
    answer: tuple[int, int, int] | None
    """Correlation id, API key, version."""
    is_whole: bool = True
    """Whether at most the values of its fields are broken."""
    is_member: bool = False
    """Whether an honest member waits for the answer."""


class FrameMaker:
    """Makes frames from a seed."""

    def __init__(
        self, dice: random.Random, known: Known, *, shares: tuple[float, float] = SHARES
    ) -> None:
        self._dice = dice
        self._valid_max, self._whole_max = shares[0], sum(shares)
        self._known = known
        self._kept: dict[tuple[int, int], list[Request]] = {}
        weights = [LIKELY.get(api.key, 1) / (api.newest - api.oldest + 1) for api, _ in VERSIONS]
        self._weights = list(accumulate(weights))
        self._correlation_id = 0
        self._members: dict[int, tuple[ShareMember, ClassicMember]] = {}
        self._administration = administration()
        self.versions: Counter[tuple[int, int]] = Counter()
        """Frames by API key and version."""

    def calm(self, number: int) -> Frame:
        """A frame of an honest member, an administrator's, or another valid one."""
        dice = self._dice
        kind = dice.random()
        made, member = None, None
        if kind < MEMBER_SHARE:
            if number not in self._members:
                self._members[number] = ShareMember(dice), ClassicMember(dice)
            member = self._members[number][kind < CLASSIC_SHARE]
            made = member.request(self._known.topic_ids)
        elif kind < MEMBER_SHARE + ADMINISTRATOR_SHARE:
            made = dice.choice(self._administration)
        elif kind < MEMBER_SHARE + ADMINISTRATOR_SHARE + PRODUCER_SHARE:
            made = produce_request(dice)
        if made is None:
            request = self._request()
            return self._frame(request, self._changed(request))
        request = _taken_apart(APIS[made.__api_key__], made.__version__, made)
        kind = dice.random()
        body = request.body
        if kind < CHANGED_SHARE:
            body = self._changed(request)
        elif kind < CHANGED_SHARE + BROKEN_SHARE:
            body = self._broken(request, is_whole=True)
        frame = self._frame(request, body)
        if member is not None:
            self._known.asking[self._correlation_id] = member
            return frame._replace(is_member=True)
        return frame

    def next(self) -> Frame:
        """A valid frame or a broken one."""
        dice = self._dice
        request = self._request()
        kind = dice.random()
        if kind < WIDE_SHARE and (wide := self._widened(request)):
            return self._frame(request, wide)
        if kind < self._valid_max:
            return self._frame(request, self._changed(request))
        if kind < self._whole_max:
            return self._frame(request, self._broken(request, is_whole=True))
        self._count(request)
        body = self._broken(request, is_whole=False)
        if dice.random() < 0.15:
            body = self._cut_or_splice(body)
        head, answer = self._header(request)
        size = len(head) + len(body)
        if dice.random() < 0.01:
            size, answer = interesting(32, dice), None
        return Frame(struct.pack(">i", size) + head + body, answer, is_whole=False)

    def _frame(self, request: Request, body: bytes) -> Frame:
        self._count(request)
        api, version = request.api, request.version
        head = encode_request_header(api.key, version, self._correlation_id, CLIENT_ID)
        data = struct.pack(">i", len(head) + len(body)) + head + body
        return Frame(data, (self._correlation_id, api.key, version))

    def _count(self, request: Request) -> None:
        self.versions[request.api.key, request.version] += 1
        self._correlation_id = (self._correlation_id + 1) % 2**31

    def _request(self) -> Request:
        dice = self._dice
        (api, version) = dice.choices(VERSIONS, cum_weights=self._weights)[0]
        kept = self._kept.setdefault((api.key, version), [])
        share = FRESH_SHARES.get(api.key, FRESH_SHARE)
        if kept and dice.random() > max(share, 0.5 / len(kept) if len(kept) < KEPT else 0.0):
            return kept[int(dice.random() * len(kept))]
        request = _taken_apart(
            api, version, message(request_class(api.key, version), dice, self._known)
        )
        if len(kept) < KEPT:
            kept.append(request)
        else:
            kept[dice.randrange(KEPT)] = request
        return request

    def _changed(self, request: Request) -> bytes:
        """The request with other numbers and ids, as valid as before."""
        dice, places = self._dice, request.places
        count = dice.choice(CHANGED_NUMBERS) if places else 0
        if not count:
            return request.body
        body = bytearray(request.body)
        for _ in range(count):
            at, size, name = places[int(dice.random() * len(places))]
            if name == MEMBER_ID:
                fitting = [text for text in self._known.members if len(text) == size]
                if fitting:
                    body[at : at + size] = dice.choice(fitting).encode()
            else:
                value = number(name, f"int{8 * size}", dice, self._known)
                struct.pack_into(LAYOUTS[size], body, at, value)
        return bytes(body)

    def _widened(self, request: Request) -> bytes | None:
        """The request with one of its arrays repeated to thousands of elements, some changed."""
        dice, tokens, raws = self._dice, request.tokens, request.raws
        arrays = [
            at
            for at, (token, after) in enumerate(pairwise(tokens))
            if token.kind in (Kind.LONG, Kind.COMPACT) and after.path.startswith(token.path + "[]")
        ]
        if not arrays:
            return None
        first = dice.choice(arrays)
        path, end = tokens[first].path + "[]", first + 1
        while end < len(tokens) and tokens[end].path.startswith(path):
            end += 1
        elements = b"".join(raws[first + 1 : end])
        count = _array_length(tokens[first])
        times = min(dice.choice(WIDE_ELEMENTS) // count, WIDE_BYTES_MAX // len(elements) + 1)
        wide = bytearray(elements * times)
        for _ in range(dice.choice((0, 0, 5, 100))):
            at = dice.randrange(len(wide))
            wide[at] = dice.choice((0, 1, 2, 255, dice.randrange(256)))
        length = uvarint(count * times + 1)
        if tokens[first].kind is Kind.LONG:
            length = struct.pack(">i", count * times)
        body = b"".join([*raws[:first], length, wide, *raws[end:]])
        return body if dice.random() < 0.9 else body[: dice.randrange(len(body))]

    def _broken(self, request: Request, *, is_whole: bool) -> bytes:
        """The request with some tokens broken, only such that are no lengths if it stays whole."""
        dice, tokens = self._dice, request.tokens
        allowed = request.contents if is_whole else range(len(tokens))
        if not allowed:
            return request.body
        raws = request.raws.copy()
        for _ in range(dice.choice((1, 1, 2, 3))):
            at = allowed[int(dice.random() * len(allowed))]
            if is_whole:
                self._change_content(tokens[at], raws, at)
            else:
                self._mutate(tokens[at], raws, at)
        return b"".join(raws)

    def _mutate(self, token: Token, raws: list[bytes], at: int) -> None:
        dice = self._dice
        kind = dice.random()
        if kind < 0.05:
            raws[at] = b""
        elif kind < 0.1:
            raws[at] += raws[at]
        elif token.kind is Kind.CONTENT:
            self._change_content(token, raws, at)
        elif kind < 0.5:
            left = min(2**15 - 2, sum(map(len, raws[at + 1 :])))
            lies = list(lies_about(token, left))
            raws[at] = dice.choice(lies)[1]
        else:  # A length that is wrong and may be possible.
            raws[at] = self._nearly(token)

    def _change_content(self, token: Token, raws: list[bytes], at: int) -> None:
        """Another value of the same size."""
        dice = self._dice
        if len(token.raw) in LAYOUTS and dice.random() < 0.8:
            bits = 8 * len(token.raw)
            raws[at] = struct.pack(LAYOUTS[len(token.raw)], interesting(bits, dice))
        elif token.raw:
            place = dice.randrange(len(token.raw))
            byte = bytes([dice.randrange(256)])
            raws[at] = token.raw[:place] + byte + token.raw[place + 1 :]

    def _nearly(self, token: Token) -> bytes:
        match token.kind:
            case Kind.SHORT:
                return struct.pack(">h", interesting(16, self._dice))
            case Kind.LONG:
                return struct.pack(">i", interesting(32, self._dice))
        return uvarint(self._dice.choice((0, 1, 2, 3, 5, 127, 128, 30_000, 30_001, 2**31)))

    def _cut_or_splice(self, body: bytes) -> bytes:
        dice = self._dice
        at = dice.randrange(len(body) + 1)
        match dice.randrange(4):
            case 0:
                return body[:at]
            case 1:
                return body + dice.randbytes(dice.randrange(1, 40))
            case 2:
                other = self._request().body
                return body[:at] + other[dice.randrange(len(other) + 1) :]
        return body[:at] + body[dice.randrange(len(body) + 1) :]

    def _header(self, request: Request) -> tuple[bytes, tuple[int, int, int] | None]:
        dice, api, version = self._dice, request.api, request.version
        correlation_id = self._correlation_id
        answer = (correlation_id, api.key, version)
        if dice.random() < 0.93:
            return encode_request_header(api.key, version, correlation_id, CLIENT_ID), answer
        match dice.randrange(4):
            case 0:  # The header of another version in front of this message.
                version = dice.randrange(api.oldest, api.newest + 1)
                head = encode_request_header(api.key, version, correlation_id, CLIENT_ID)
                return head, (correlation_id, api.key, version)
            case 1:
                head = struct.pack(">hhih", interesting(16, dice), version, correlation_id, -1)
                return head, None
            case 2:
                client = dice.choice(CLIENT_IDS)
                tags = dice.choice((b"", b"\0", b"\1\0\0", b"\x7f"))
                head = struct.pack(">hhi", api.key, version, correlation_id) + client + tags
                return head, answer
        head = struct.pack(">hhih", api.key, interesting(16, dice), correlation_id, -1)
        return head, None


def _array_length(token: Token) -> int:
    if token.kind is Kind.LONG:
        return int.from_bytes(token.raw)
    return sum((byte & 127) << 7 * at for at, byte in enumerate(token.raw)) - 1


def _taken_apart(api: Api, version: int, made: Any) -> Request:
    tokens = tokens_of(made)
    raws = [token.raw for token in tokens]
    places, at, length_path = [], 0, ""
    for token in tokens:
        name = token.path.rpartition(".")[2].rstrip("[]")
        if token.kind is Kind.CONTENT:
            is_text = length_path == token.path  # Or bytes.
            is_number = not is_text and len(token.raw) in (2, 4, 8) and not name.endswith(TIMES)
            if is_number or (is_text and name == MEMBER_ID):
                places.append(Place(at, len(token.raw), name))
        length_path = "" if token.kind is Kind.CONTENT else token.path
        at += len(token.raw)
    contents = [
        at
        for at, token in enumerate(tokens)
        if token.kind is Kind.CONTENT and not token.path.endswith(TIMES)
    ]
    return Request(api, version, tokens, raws, b"".join(raws), places, contents)


def valid_frame(request: Any, correlation_id: int = 1) -> bytes:
    """The frame of a message as an honest client sends it."""
    head = encode_request_header(
        request.__api_key__, request.__version__, correlation_id, CLIENT_ID
    )
    body = encode(request)
    return struct.pack(">i", len(head) + len(body)) + head + body
