"""A prompt child: `python -m api.prompt.child SECONDS`. Reads calls on stdin, answers on stdout, ends with
its parent.

It runs templates and tokenizers that tenants uploaded, so it has no secrets, a memory limit, and an alarm
that ends it should its parent not be there to do so.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import OrderedDict
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from api.prompt.framing import HEADER, pack, unpack
from api.prompt.pool import LOADED_TOKENIZERS
from batching.prompt.profile import PromptProfile
from common.errors import InvalidInput, PlatformError

MEMORY_LIMIT_BYTES = 4 << 30
_ALARM_FACTOR = 4.0
_LOAD_ALARM_S = 120.0


class Child:
    """Answers calls; keeps the tokenizers it used last."""

    def __init__(self) -> None:
        self._profiles: OrderedDict[str, PromptProfile] = OrderedDict()

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        """Raises: PlatformError."""
        profile = self._profile(call["dir"])
        match call["op"]:
            case "load":
                profile.encode_prompt("warm")
                return {}
            case "chat":
                prompt = profile.encode_chat(
                    call["messages"], now=datetime.now().astimezone(), variables=call["variables"]
                )
                return {"ids": prompt.ids}
            case "text":
                return {"ids": profile.encode_prompt(call["text"])}
            case "decode":
                ids = call["ids"]
                tokenizer = profile.tokenizer
                return {"text": tokenizer.decode(ids), "first": tokenizer.token_text(ids[0]) if ids else ""}
            case other:
                raise PlatformError(f"no such operation: {other!r}")

    def _profile(self, directory: str) -> PromptProfile:
        profile = self._profiles.pop(directory, None)
        if profile is None:
            profile = PromptProfile.load(Path(directory))
        self._profiles[directory] = profile
        while len(self._profiles) > LOADED_TOKENIZERS:
            self._profiles.popitem(last=False)
        return profile


def main() -> None:
    time_limit_s = float(sys.argv[1])
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core a child; the pool is what runs in parallel
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    child = Child()
    while (call := _read(calls)) is not None:
        limit_s = _LOAD_ALARM_S if call["op"] == "load" else time_limit_s * _ALARM_FACTOR
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        answers.write(pack(_answer(child, call)))
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _answer(child: Child, call: dict[str, Any]) -> dict[str, Any]:
    try:
        return child.answer(call)
    except PlatformError as error:
        # A tokenizer that can't be loaded is no fault of the prompt's.
        return _refusal(error, isinstance(error, InvalidInput) and call["op"] != "load")
    except MemoryError:
        return _refusal(PlatformError("this prompt needs too much memory", code="prompt_refused"), True)
    except Exception as error:  # the edge: the gateway logs it, the caller hears of an internal error
        return _refusal(PlatformError(f"{type(error).__name__}: {error}"), False)


def _refusal(error: PlatformError, is_callers: bool) -> dict[str, Any]:
    return {
        "refused": {
            "code": error.code,
            "message": str(error),
            "param": error.param,
            "is_callers": is_callers,
        }
    }


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    return unpack(stream.read(length))


if __name__ == "__main__":
    main()
