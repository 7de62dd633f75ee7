"""A bounded pool of prompt children. A child that takes too long is killed and replaced; its caller gets a
400.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import structlog

from api.prompt.framing import HEADER, pack, unpack
from common.errors import InvalidInput, Overloaded, PlatformError

log = structlog.get_logger()

LOADED_TOKENIZERS = 16
_LOAD_LIMIT_S = 60.0


class PromptTimeout(InvalidInput):
    """A chat template (or a tokenizer on hostile text) ran past the limit."""

    code = "prompt_timeout"


class PromptRefused(InvalidInput):
    """The template raised, or used more memory than a child may."""

    code = "prompt_refused"


class PromptPool:
    """`size` children, at most `queue` callers waiting for one of them.

    A child keeps the tokenizers it has loaded; loading has a limit of its own, so that the first prompt of a
    model isn't refused for it.
    """

    def __init__(self, *, size: int, queue: int, time_limit_s: float) -> None:
        self._limit_s = time_limit_s
        self._most_waiting = queue
        self._waiting = 0
        self._idle: asyncio.Queue[_Child] = asyncio.Queue()
        self._children = [_Child(time_limit_s) for _ in range(size)]
        for child in self._children:
            self._idle.put_nowait(child)

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that are running now."""
        return tuple(child.pid for child in self._children if child.pid is not None)

    async def warm(self) -> None:
        """Start the children now instead of at the first prompt."""
        await asyncio.gather(*(child.start() for child in self._children))

    async def run(self, tokenizer_dir: str, call: dict[str, Any], param: str) -> dict[str, Any]:
        """Let a child do `call` with the tokenizer in `tokenizer_dir`; its answer.

        Raises: Overloaded; InvalidInput naming `param`: PromptTimeout, PromptRefused, or the template's
            refusal.
        """
        if self._waiting >= self._most_waiting:
            raise Overloaded("too many prompts are being tokenized; try again shortly", retry_after_s=1.0)
        self._waiting += 1
        try:
            child = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            return await self._run_on(child, tokenizer_dir, call)
        except InvalidInput as error:
            error.param = error.param or param
            raise
        finally:
            self._idle.put_nowait(child)

    async def close(self) -> None:
        for child in self._children:
            await child.stop()

    async def _run_on(self, child: _Child, tokenizer_dir: str, call: dict[str, Any]) -> dict[str, Any]:
        is_done = False
        try:
            await child.start()
            if child.needs(tokenizer_dir):
                answer = await asyncio.wait_for(
                    child.ask({"op": "load", "dir": tokenizer_dir}), _LOAD_LIMIT_S
                )
                _raise_if_refused(answer)
            answer = await asyncio.wait_for(child.ask({**call, "dir": tokenizer_dir}), self._limit_s)
            is_done = True
        except TimeoutError as late:
            log.warning("prompt_timed_out", op=call["op"], limit_s=self._limit_s)
            raise PromptTimeout(
                f"rendering and tokenizing this prompt took longer than {self._limit_s:g} s"
            ) from late
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError) as dead:
            log.warning("prompt_child_died", op=call["op"])
            raise PromptRefused(
                "rendering this prompt used too much memory or crashed the tokenizer"
            ) from dead
        except PlatformError:
            is_done = True
            raise
        finally:
            if (
                not is_done
            ):  # late, dead or cancelled: its next answer would belong to somebody else's question
                await child.stop()
        _raise_if_refused(answer)
        child.used(tokenizer_dir)
        return answer


@dataclass(slots=True)
class _Child:
    """One process of `api.prompt.child`, started when first needed."""

    time_limit_s: float
    _process: asyncio.subprocess.Process | None = None
    _loaded: OrderedDict[str, None] = field(default_factory=OrderedDict)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        if self.pid is not None:
            return
        self._loaded.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "api.prompt.child",
            str(self.time_limit_s),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=_child_environment(),
        )

    def needs(self, tokenizer_dir: str) -> bool:
        """Whether the tokenizer must be loaded first. Mirrors the child's own cache, which forgets the
        oldest.
        """
        return tokenizer_dir not in self._loaded

    def used(self, tokenizer_dir: str) -> None:
        self._loaded[tokenizer_dir] = None
        self._loaded.move_to_end(tokenizer_dir)
        while len(self._loaded) > LOADED_TOKENIZERS:
            self._loaded.popitem(last=False)

    async def ask(self, call: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None, "a child is started before it is asked"
        assert process.stdin is not None, "stdin is a pipe"
        assert process.stdout is not None, "stdout is a pipe"
        process.stdin.write(pack(call))
        await process.stdin.drain()
        (length,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
        return unpack(await process.stdout.readexactly(length))

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def _child_environment() -> dict[str, str]:
    """Where our code is, and nothing of the gateway's own settings: a child has no secrets to lose."""
    return {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUTF8": "1"}


def _raise_if_refused(answer: dict[str, Any]) -> None:
    refusal = answer.get("refused")
    if refusal is None:
        return
    if refusal["is_callers"]:
        raise InvalidInput(refusal["message"], code=refusal["code"], param=refusal["param"])
    log.error("prompt_child_failed", code=refusal["code"], reason=refusal["message"])
    raise PlatformError("the prompt could not be prepared; this is our fault, not yours")
