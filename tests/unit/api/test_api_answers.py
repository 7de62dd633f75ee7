"""Streams and whole answers are two views of the same events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dispatch.tally import Counts
from api.openai import sse
from api.openai.answers import Chat, Completion, Dialect, Envelope
from api.openai.events import Echo, End, Event, Piece, Unscored, events, opening_echoes
from api.openai.logprobs import completion_logprobs
from common.errors import NotFound
from common.wire import Delta, Ended, Finished, FinishReason, Started, TokenLogprob

COUNTS = Counts(5, 2, 7)
texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)


def envelope(choices: int, logprobs: int | None = None) -> Envelope:
    return Envelope("id", 1, "m", "fp", choices, logprobs, include_usage=True)


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, list[Event]]:
    """Choices whose pieces are interleaved in any way, each ended once, after its last piece."""
    choices = draw(st.integers(1, 4))
    script: list[Event] = []
    left = {c: draw(st.lists(texts, max_size=5)) for c in range(choices)}
    while left:
        choice = draw(st.sampled_from(sorted(left)))
        if left[choice]:
            script.append(Piece(choice, left[choice].pop(0), 1))
        else:
            script.append(End(choice, draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))))
            del left[choice]
    return choices, script


def streamed(dialect: Dialect, script: list[Event]) -> list[dict[str, Any]]:
    """Every chunk of a stream, through the wire's own bytes."""
    chunks = [*dialect.opening(lambda: COUNTS), *(dialect.chunk(e, lambda: COUNTS) for e in script)]
    raw = b"".join(sse.event(c) for c in [*chunks, dialect.usage_chunk(COUNTS)]) + sse.DONE
    blocks = raw.decode().split("\n\n")[:-1]
    assert blocks.pop() == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


@given(answers())
def test_a_chat_stream_joins_to_the_whole_answer(case: tuple[int, list[Event]]) -> None:
    choices, script = case
    whole = Chat(envelope(choices)).answer(script, COUNTS)
    joined = [["", None] for _ in range(choices)]
    for chunk in streamed(Chat(envelope(choices)), script):
        for choice in chunk["choices"]:
            joined[choice["index"]][0] += choice["delta"].get("content", "")
            joined[choice["index"]][1] = choice["finish_reason"] or joined[choice["index"]][1]
    assert joined == [[c["message"]["content"], c["finish_reason"]] for c in whole["choices"]]


@given(answers())
def test_a_completion_stream_joins_to_the_whole_answer(case: tuple[int, list[Event]]) -> None:
    choices, script = case
    whole = Completion(envelope(choices)).answer(script, COUNTS)
    joined = [["", None] for _ in range(choices)]
    for chunk in streamed(Completion(envelope(choices)), script):
        for choice in chunk["choices"]:
            joined[choice["index"]][0] += choice["text"]
            joined[choice["index"]][1] = choice["finish_reason"] or joined[choice["index"]][1]
    assert joined == [[c["text"], c["finish_reason"]] for c in whole["choices"]]


@pytest.mark.pitfall("S15", "B4")
@given(answers())
def test_b4_usage_comes_once_on_a_chunk_without_choices(case: tuple[int, list[Event]]) -> None:
    choices, script = case
    chunks = streamed(Chat(envelope(choices)), script)
    assert [c["choices"] for c in chunks if c["usage"] is not None] == [[]]
    assert chunks[-1]["usage"] == Chat(envelope(choices)).answer(script, COUNTS)["usage"]


def test_the_first_chunks_give_each_choice_its_role() -> None:
    opening = Chat(envelope(2)).opening(lambda: COUNTS)
    assert [c["choices"][0]["delta"] for c in opening] == [{"role": "assistant", "content": ""}] * 2
    assert [c["choices"][0]["index"] for c in opening] == [0, 1]


def test_every_chunk_repeats_the_envelope() -> None:
    chunk = Chat(envelope(1)).chunk(Piece(0, "x", 1), lambda: COUNTS)
    head = {k: chunk[k] for k in ("id", "object", "created", "model", "system_fingerprint")}
    assert list(head.values()) == ["id", "chat.completion.chunk", 1, "m", "fp"]


def test_without_stream_options_a_chunk_has_no_usage_at_all() -> None:
    plain = Envelope("id", 1, "m", "fp", 1)
    assert "usage" not in Chat(plain).chunk(Piece(0, "x", 1), lambda: COUNTS)


def test_choices_of_many_prompts_are_numbered_through() -> None:
    group = [
        (1, Delta(1, "a", (1,), 1)),
        (0, Finished(1, FinishReason.STOP, 1)),
        (0, Started(1)),
        (1, Ended(1, 1)),
    ]
    assert events(group, 2) == [Piece(3, "a", 1), End(1, FinishReason.STOP)]


def test_a_token_without_text_still_makes_a_chunk() -> None:
    (piece,) = events([(0, Delta(0, "", (5,), 1))], 1)
    chunk = Chat(envelope(1)).chunk(piece, lambda: COUNTS)
    assert chunk["choices"][0]["delta"] == {"content": ""}


def test_an_echo_without_scores_comes_before_the_first_token() -> None:
    assert opening_echoes([Echo("ab"), Echo("cd")], 2) == [
        Piece(0, "ab"),
        Piece(1, "ab"),
        Piece(2, "cd"),
        Piece(3, "cd"),
    ]


def test_an_echo_with_scores_comes_with_the_prompts_own() -> None:
    score = TokenLogprob(2, "b", -1.0)
    echoes = [Echo("ab", first_token="a")]
    (piece,) = events([(0, Delta(0, "", (1, 2), 0, (score,)))], 1, echoes)
    assert opening_echoes(echoes, 1) == []
    assert piece == Piece(0, "ab", 0, (Unscored("a"), score))


def test_text_offsets_run_on_over_the_chunks_of_a_stream() -> None:
    dialect = Completion(envelope(1, logprobs=0))
    pieces = [Piece(0, t, 1, (TokenLogprob(1, t, -1.0),)) for t in ("ab", "c", "d")]
    chunks = [dialect.chunk(p, lambda: COUNTS) for p in pieces]
    whole = Completion(envelope(1, logprobs=0)).answer([*pieces, End(0, FinishReason.STOP)], COUNTS)
    assert [c["choices"][0]["logprobs"]["text_offset"] for c in chunks] == [[0], [2], [3]]
    assert whole["choices"][0]["logprobs"]["text_offset"] == [0, 2, 3]


def test_the_chosen_token_is_always_among_its_alternatives() -> None:
    token = TokenLogprob(1, "x", -3.0, ((2, "y", -0.1), (3, "z", -0.2)))
    found = completion_logprobs([token], 1, 0)
    assert found["top_logprobs"] == [{"y": -0.1, "x": -3.0}]


def test_minus_infinity_is_a_number_that_json_has() -> None:
    token = TokenLogprob(1, "x", float("-inf"))
    assert completion_logprobs([token], 0, 0)["token_logprobs"] == [-9999.0]


def test_an_error_ends_a_stream_in_the_one_shape() -> None:
    error, done, rest = sse.error_tail(NotFound("gone")).decode().split("\n\n")
    assert set(json.loads(error.removeprefix("data: "))["error"]) == {"message", "type", "param", "code"}
    assert (done, rest) == ("data: [DONE]", "")
