"""Prompt children: what they answer, and what happens to one that is late, greedy or dead."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.prompt.framing import HEADER, pack, unpack
from api.prompt.pool import PromptPool, PromptRefused, PromptTimeout
from common.errors import InvalidInput, Overloaded, PlatformError
from tests.support.tiny_tokenizer import IM_END, IM_START, write_tiny_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    write_tiny_tokenizer(tmp_path)
    return str(tmp_path)


@pytest.fixture
async def pool() -> AsyncIterator[PromptPool]:
    made = PromptPool(size=1, queue=2, time_limit_s=2.0)
    yield made
    await made.close()


def text_call(text: str) -> dict[str, object]:
    return {"op": "text", "text": text}


async def test_text_becomes_ids_and_ids_text(pool: PromptPool, tokenizer: str) -> None:
    ids = (await pool.run(tokenizer, text_call("héllo"), "prompt"))["ids"]
    shown = await pool.run(tokenizer, {"op": "decode", "ids": ids}, "prompt")
    assert ids == list("héllo".encode())
    assert shown == {"text": "héllo", "first": "h"}


async def test_a_chat_is_rendered_with_the_models_template(pool: PromptPool, tokenizer: str) -> None:
    call = {"op": "chat", "messages": [{"role": "user", "content": "a"}], "variables": {}}
    ids = (await pool.run(tokenizer, call, "messages"))["ids"]
    assert ids == [
        IM_START, *b"user\na", IM_END, *b"\n", IM_START, *b"assistant\n",
    ]  # fmt: skip


@pytest.mark.pitfall("S18")
async def test_s18_a_template_that_raises_is_the_callers_400(pool: PromptPool, tokenizer: str) -> None:
    call = {"op": "chat", "messages": [{"role": "tool", "content": "a"}], "variables": {}}
    with pytest.raises(InvalidInput, match="no tools here") as caught:
        await pool.run(tokenizer, call, "messages")
    assert caught.value.param == "messages"


@pytest.mark.pitfall("S18")
async def test_a_late_child_is_replaced_and_its_caller_refused(tokenizer: str) -> None:
    pool = PromptPool(size=1, queue=2, time_limit_s=0.3)
    with pytest.raises(PromptTimeout) as caught:
        await pool.run(tokenizer, text_call("x" * 20_000_000), "prompt")
    after = await pool.run(tokenizer, text_call("ok"), "prompt")
    await pool.close()
    assert (caught.value.code, caught.value.param) == ("prompt_timeout", "prompt")
    assert after["ids"] == [111, 107]


async def test_a_killed_child_is_replaced(pool: PromptPool, tokenizer: str) -> None:
    await pool.run(tokenizer, text_call("a"), "prompt")
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PromptRefused):
        await pool.run(tokenizer, text_call("b"), "prompt")
    assert (await pool.run(tokenizer, text_call("c"), "prompt"))["ids"] == [99]


async def test_a_cancelled_call_leaves_no_answer_for_the_next_one(pool: PromptPool, tokenizer: str) -> None:
    await pool.run(tokenizer, text_call("a"), "prompt")
    task = asyncio.create_task(pool.run(tokenizer, text_call("x" * 3_000_000), "prompt"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await pool.run(tokenizer, text_call("next"), "prompt"))["ids"] == list(b"next")


async def test_more_callers_than_the_queue_holds_are_told_to_come_back(
    pool: PromptPool, tokenizer: str
) -> None:
    await pool.run(tokenizer, text_call("a"), "prompt")
    tasks = [asyncio.create_task(pool.run(tokenizer, text_call("x" * 500_000), "prompt")) for _ in range(4)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(o) for o in outcomes].count(Overloaded) == 1


async def test_a_folder_that_is_no_tokenizer_is_not_the_callers_fault(
    pool: PromptPool, tmp_path: Path
) -> None:
    with pytest.raises(PlatformError) as caught:
        await pool.run(str(tmp_path / "nothing"), text_call("a"), "prompt")
    assert str(tmp_path) not in str(caught.value)


async def test_a_child_knows_none_of_the_gateways_settings(
    pool: PromptPool, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANDELA_SECRET_KEY", "do-not-tell")
    await pool.run(tokenizer, text_call("a"), "prompt")
    (pid,) = pool.pids
    assert b"do-not-tell" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_framing_keeps_every_text_even_lone_surrogates() -> None:
    body = {"text": "é\ud800\U0001f600"}
    framed = pack(body)
    (length,) = HEADER.unpack(framed[: HEADER.size])
    assert length == len(framed) - HEADER.size
    assert unpack(framed[HEADER.size :]) == body
