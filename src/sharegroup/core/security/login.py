"""The refusal of a login, and what it may tell whom."""

from __future__ import annotations

from sharegroup.errors import SaslAuthenticationFailed


class LoginRefused(Exception):
    """A login that failed: a reason for the broker's log, and a text for the client.

    Neither may contain a password, a token or a proof.  The text for the client must not tell
    whether a user exists; without one, the client gets a text that is the same for every reason.
    """

    def __init__(self, reason: str, *, answer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer

    def for_client(self, mechanism: str, *, again: bool) -> SaslAuthenticationFailed:
        """Return the error that the client gets; ``again`` says that it was logged in before."""
        if self.answer is not None:
            return SaslAuthenticationFailed(self.answer)
        process = "re-authentication" if again else "authentication"
        return SaslAuthenticationFailed(
            f"Authentication failed during {process} due to invalid credentials with SASL "
            f"mechanism {mechanism}"
        )


class UnknownKey(Exception):
    """No key fits the token; a newer key set may have it."""
