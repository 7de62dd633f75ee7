"""HMAC signatures for dashboard sessions (part URLs are signed by `storage.blobs`). Pure.

Each purpose signs under its own label, so that a signature made for one thing is never good for another.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Session:
    """A dashboard sign-in: which key opened it, and until when."""

    tenant_id: str
    key_id: str
    expires_at: int


class Signer:
    """Signs with one secret; every check is timing-safe."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def seal(self, session: Session) -> str:
        """A cookie's value: readable by anyone, made only by us."""
        fields = [session.tenant_id, session.key_id, session.expires_at]
        body = (
            base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
        )
        return f"{body}.{self._sign('session', body)}"

    def open(self, cookie: str, now: float) -> Session | None:
        """The session, or None when the value was altered or is too old."""
        body, _, signature = cookie.rpartition(".")
        if not body or not _equal(self._sign("session", body), signature):
            return None
        tenant_id, key_id, expires_at = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return Session(tenant_id, key_id, expires_at) if now < expires_at else None

    def csrf_token(self, session: Session) -> str:
        """What a page of this session must send back with every change it asks for."""
        return self._sign("csrf", f"{session.key_id}\n{session.expires_at}")

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\n{text}".encode(), hashlib.sha256).hexdigest()


def same_secret(a: str, b: str) -> bool:
    """Compare in constant time."""
    return _equal(a, b)


def _equal(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())
