"""A broker's refusal as an exception whose text names what was refused, once.

Most brokers name it themselves ("topic 'orders' exists already"), some answer with a bare code
or a sentence without a name; so the names are put in front only where they are missing.
"""

from __future__ import annotations

from sharegroup.errors import BY_CODE, KafkaError, UnknownServerError, error_for


def refused(code: int, message: str | None, **about: str | int) -> KafkaError:
    """The error of a code other than 0; ``about`` is what was asked about, by kind.

    >>> refused(36, "Topic 'a' already exists.", topic="a")
    TopicAlreadyExists("Topic 'a' already exists.")
    >>> refused(3, None, topic="a", partition=7)
    UnknownTopicOrPartition("topic 'a' partition 7: there is no such topic or partition here")
    """
    text = message or meaning(code)
    if all(_names(text, kind, name) for kind, name in about.items()):
        return error_for(code, text)
    where = " ".join(f"{kind} {name!r}" for kind, name in about.items())
    return error_for(code, f"{where}: {text}")


def may_pass(error: KafkaError) -> bool:
    """Whether trying again may help; a broker's own surprises (code -1) pass, too."""
    return error.retriable or isinstance(error, UnknownServerError)


def meaning(code: int) -> str:
    """What the code says where the broker adds no words of its own."""
    text = (BY_CODE[code].__doc__ if code in BY_CODE else None) or "Refused."
    return text[0].lower() + text[1:].rstrip(".")


def _names(text: str, kind: str, name: str | int) -> bool:
    return f"{kind} {name!r}" in text or f"{kind.capitalize()} {name!r}" in text
