"""How the gateway and its prompt children talk: a JSON object behind four bytes of length. Pure."""

from __future__ import annotations

import json
import struct
from typing import Any

HEADER = struct.Struct(">I")


def pack(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(text)) + text


def unpack(text: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(text.decode("utf-8", "surrogatepass"))
    return body
