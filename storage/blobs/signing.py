"""Signed links to one blob, one method, one deadline: the disk store's presigned URLs. Pure."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlencode

from storage.blobs.names import check_key
from storage.errors import BadSignature

_METHODS = frozenset({"GET", "PUT"})


def sign(key: str, method: str, expires_at: int, secret: str) -> str:
    """HMAC-SHA256, hex, over method, key and deadline (Unix seconds).

    Raises: BadBlobKey.
    """
    assert method in _METHODS, "a signed link is for GET or PUT"
    assert secret, "an empty secret signs nothing"
    message = f"candela-blob-1\n{method}\n{check_key(key)}\n{expires_at}".encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def verify(key: str, method: str, expires_at: int, signature: str, secret: str, now: float) -> None:
    """Accept a link that `sign` made and that has not expired.

    Raises: BadSignature, BadBlobKey.
    """
    if method not in _METHODS:
        raise BadSignature(f"a signed link is for GET or PUT, not {method!r:.20}")
    expected = sign(key, method, expires_at, secret)
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        raise BadSignature("the link's signature does not match; ask for a new link")
    if now >= expires_at:
        raise BadSignature("the link has expired; ask for a new one", code="link_expired")


def signed_query(key: str, method: str, expires_at: int, secret: str) -> str:
    """`expires=...&signature=...`, to be appended to the URL that names the blob."""
    return urlencode({"expires": expires_at, "signature": sign(key, method, expires_at, secret)})
