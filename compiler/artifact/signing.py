"""Signatures: ed25519 over the manifest's bytes, which hold a digest of every other file.

Needs the package `cryptography` (the extra "signing"), and only when something is signed or checked.
Keys are PEM files, as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them.
"""

from __future__ import annotations

import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.artifact.errors import ArtifactError
from compiler.artifact.manifest import MANIFEST_FILE
from compiler.errors import CompilerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE_FILE = "signature.json"
"""Beside the manifest, and not among the files that it lists."""
_FORMAT, _VERSION = "candela-signature", 1
_MAX_BYTES = 4096


class BadKey(CompilerError):
    """A key file that cannot be used, or no package to use it with."""

    code = "invalid_key"


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key that artifacts must be signed with. `name` says where it came from."""

    name: str
    key: Ed25519PublicKey

    @classmethod
    def read(cls, path: Path) -> TrustedKey:
        """Raises: `BadKey` where the file holds no ed25519 public key in PEM."""
        ed25519, serialization = _library()
        try:
            key = serialization.load_pem_public_key(path.read_bytes())
        except ValueError as error:
            raise BadKey(f"{path.name} is no public key in PEM: {error}") from error
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise BadKey(f"{path.name} holds another kind of key; expected ed25519")
        return cls(path.name, key)


def sign(root: Path, private_key: Path) -> None:
    """Sign the artifact in `root`.

    Raises:
        BadKey: the file holds no ed25519 private key in PEM without a password.
    """
    key = _private_key(private_key)
    _, serialization = _library()
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "algorithm": "ed25519",
        "public_key": raw.hex(),
        "signature": key.sign((root / MANIFEST_FILE).read_bytes()).hex(),
    }
    (root / SIGNATURE_FILE).write_text(json.dumps(document, indent=1) + "\n")


def check_signature(root: Path, trusted: TrustedKey) -> str:
    """A sentence on who signed the artifact in `root`.

    Raises:
        ArtifactError: it is not signed, or not with this key, or was changed since.
    """
    from cryptography.exceptions import InvalidSignature

    signature = _read(root / SIGNATURE_FILE)
    try:
        trusted.key.verify(signature, (root / MANIFEST_FILE).read_bytes())
    except InvalidSignature:
        raise ArtifactError(
            f"not signed with {trusted.name}, or changed since it was", where=SIGNATURE_FILE
        ) from None
    return f"signed with {trusted.name}"


def _read(place: Path) -> bytes:
    if not place.is_file() or place.is_symlink():
        raise ArtifactError("the artifact is not signed", where=SIGNATURE_FILE)
    with place.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    try:
        document = json.loads(data)
        is_ours = (document["format"], document["version"], document["algorithm"]) == (
            _FORMAT,
            _VERSION,
            "ed25519",
        )
        signature = binascii.unhexlify(document["signature"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError("no signature that we can read", where=SIGNATURE_FILE) from error
    if not is_ours or len(data) > _MAX_BYTES:
        raise ArtifactError(f"not a {_FORMAT} of version {_VERSION}", where=SIGNATURE_FILE)
    return signature


def _private_key(path: Path) -> Ed25519PrivateKey:
    ed25519, serialization = _library()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise BadKey(f"{path.name} is no private key in PEM without a password: {error}") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise BadKey(f"{path.name} holds another kind of key; expected ed25519")
    return cast("Ed25519PrivateKey", key)


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise BadKey("signatures need the package cryptography: pip install 'candela[signing]'") from error
    return ed25519, serialization
