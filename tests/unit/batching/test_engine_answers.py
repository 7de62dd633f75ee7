"""What one request gets: tokens, text, stops, counts, log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from batching.engine import Engine, EngineConfig
from batching.replica.program import SampledProgram
from common.wire import FinishReason, Sampling
from tests.support.engines import (
    ScriptedProgram,
    answer,
    drain,
    expected_ids,
    make_engine,
    make_request,
    scripted_engine,
)
from tests.support.fake_program import STOP_TOKEN, ByteDetokenizer, FakeProgram, logits_after

SAMPLED = Sampling(temperature=0.9, top_p=0.9, seed=42)


def test_a_greedy_answer_is_what_a_plain_loop_gives():
    request = make_request("r", "hello", 20)
    assert answer(make_engine(), request).ids() == expected_ids(request)


@pytest.mark.parametrize(
    "sampling",
    [
        SAMPLED,
        Sampling(temperature=1.0, top_k=20),
        Sampling(temperature=1.5, min_p=0.1, seed=-3),
        Sampling(temperature=0.7, presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=1.2),
        Sampling(temperature=0.0, repetition_penalty=1.5, logit_bias=((65, 2.0),)),
    ],
)
def test_a_sampled_answer_is_what_a_plain_loop_gives(sampling):
    request = make_request("r", "hello", 20, sampling=sampling)
    assert answer(make_engine(), request, random_seed=99).ids() == expected_ids(request, random_seed=99)


def test_the_random_seed_counts_only_when_the_request_has_none():
    seeded = make_request("r", "hello", 12, sampling=SAMPLED)
    free = make_request("r", "hello", 12, sampling=Sampling(temperature=0.9))
    assert answer(make_engine(), seeded, 1).ids() == answer(make_engine(), seeded, 2).ids()
    assert answer(make_engine(), free, 1).ids() != answer(make_engine(), free, 2).ids()


@pytest.mark.pitfall("S8")
@pytest.mark.parametrize("budget", [8, 9, 16, 64])
def test_chunk_sizes_change_nothing(budget):
    request = make_request("r", bytes(range(32, 132)), 10, sampling=SAMPLED)
    assert answer(make_engine(budget=budget), request).ids() == expected_ids(request)


@pytest.mark.pitfall("S15")
def test_n_sequences_differ_by_stream_and_the_prompt_is_counted_once():
    request = make_request("r", "a prompt of some blocks", 10, n=4, sampling=SAMPLED)
    got = answer(make_engine(), request)
    assert [got.ids(i) for i in range(4)] == [expected_ids(request, i) for i in range(4)]
    assert len({tuple(got.ids(i)) for i in range(4)}) == 4
    assert got.ended[0].prompt_tokens == 23
    assert got.ended[0].completion_tokens == 40


def test_greedy_sequences_of_one_request_are_copies():
    got = answer(make_engine(), make_request("r", "hello", 6, n=3))
    assert got.ids(0) == got.ids(1) == got.ids(2)


def test_siblings_compute_the_shared_blocks_of_the_prompt_once():
    program = FakeProgram(64)
    engine = Engine(EngineConfig(64, 8, 64), SampledProgram(program, lambda: 0.0), ByteDetokenizer())
    answer(engine, make_request("r", bytes(range(32, 62)), 2, n=3))
    decodes = 3
    assert sum(len(b.token_ids) for b in program.batches) == 30 + 2 * 2 + decodes


def test_counts_in_frames_are_cumulative_and_equal_the_totals():
    got = answer(make_engine(), make_request("r", "hello", 7))
    assert [d.completion_tokens for d in got.deltas] == [1, 2, 3, 4, 5, 6, 7]
    assert got.started[0].prompt_tokens == got.ended[0].prompt_tokens == 5
    assert got.finished[0].completion_tokens == got.ended[0].completion_tokens == 7


def test_frames_come_in_the_protocols_order():
    kinds = [type(f).__name__ for f in answer(make_engine(), make_request("r", "hi", 2)).frames]
    assert kinds == ["Started", "Delta", "Delta", "Finished", "Ended"]


def test_max_tokens_ends_with_length():
    assert answer(scripted_engine("abcdef"), make_request("r", "1234", 3)).reasons == [FinishReason.LENGTH]


@pytest.mark.pitfall("S21")
@pytest.mark.parametrize("stop_id", [STOP_TOKEN, ord("X"), ord("Y")])
def test_any_of_several_stop_ids_stops_without_text(stop_id):
    request = make_request("r", "1234", 50, stop_ids=(STOP_TOKEN, ord("X"), ord("Y")))
    got = answer(scripted_engine([ord("a"), ord("b"), stop_id]), request)
    assert (got.text(), got.reasons, got.ids()) == ("ab", [FinishReason.STOP], [97, 98, stop_id])
    assert got.ended[0].completion_tokens == 3


@pytest.mark.pitfall("S2")
def test_a_stop_string_ends_the_text_before_it():
    got = answer(scripted_engine("ABCDEFGHIJKL"), make_request("r", "1234", 50, stop=("DEFGHIJ", "zz")))
    assert (got.text(), got.reasons) == ("ABC", [FinishReason.STOP])
    assert got.finished[0].stop_match == "DEFGHIJ"
    assert got.finished[0].completion_tokens == 10


def test_each_token_is_reported_even_while_its_text_is_held():
    got = answer(scripted_engine("ABCDEFxyz"), make_request("r", "1234", 7, stop=("DEFGHIJ",)))
    assert [d.text for d in got.deltas] == ["A", "B", "C", "", "", "", "DEFx"]


def test_text_held_at_the_end_comes_out():
    got = answer(scripted_engine("ABCDEF"), make_request("r", "1234", 6, stop=("DEFGHIJ",)))
    assert (got.text(), got.reasons) == ("ABCDEF", [FinishReason.LENGTH])


@pytest.mark.pitfall("S1")
def test_a_character_split_over_tokens_comes_out_whole():
    got = answer(scripted_engine("ď🦊語"), make_request("r", "1234", 9))
    assert got.text() == "ď🦊語"
    assert all("\ufffd" not in d.text for d in got.deltas)


@pytest.mark.pitfall("S1")
def test_a_character_cut_by_the_end_becomes_a_replacement_only_then():
    got = answer(scripted_engine("a🦊"), make_request("r", "1234", 3))
    assert [d.text for d in got.deltas] == ["a", "", "\ufffd"]


def test_min_tokens_masks_every_stop_id():
    request = make_request("r", "hello", 30, min_tokens=12, stop_ids=tuple(range(32, 127)))
    got = answer(make_engine(), request)
    assert got.ids() == expected_ids(request)
    assert len(got.ids()) >= 13


def test_min_tokens_passes_over_stop_strings():
    got = answer(scripted_engine("aSTOPbSTOPc"), make_request("r", "1234", 50, min_tokens=6, stop=("STOP",)))
    assert got.text() == "aSTOPb"


def test_the_context_ends_an_answer_with_length():
    got = answer(make_engine(128), make_request("r", "hello", 1000))
    assert (len(got.ids()), got.reasons) == (256 - 5, [FinishReason.LENGTH])


def test_logprobs_are_of_the_chosen_token_with_its_alternatives():
    request = make_request("r", "hello", 5, logprobs=3)
    got = answer(make_engine(), request)
    first = got.deltas[0].logprobs[0]
    exact = logits_after(list(b"hello")).astype(np.float64)
    exact -= np.log(np.exp(exact[np.isfinite(exact)]).sum())
    assert first.id == got.ids()[0]
    assert first.logprob == pytest.approx(exact[first.id], abs=1e-4)
    assert [i for i, _, _ in first.top] == np.argsort(-exact)[:3].tolist()
    assert first.top[0][1] == chr(first.top[0][0])


def test_no_logprobs_unless_asked_for():
    assert all(d.logprobs == () for d in answer(make_engine(), make_request("r", "hello", 3)).deltas)


@pytest.mark.parametrize("budget", [8, 64])
def test_echo_with_logprobs_scores_the_prompt_once(budget):
    request = make_request("r", "a prompt to be scored", 4, echo=True, logprobs=2)
    got = answer(make_engine(budget=budget), request)
    (scored,) = [d for d in got.deltas if d.completion_tokens == 0]
    exact = logits_after(list(b"a prom")).astype(np.float64)
    exact -= np.log(np.exp(exact[np.isfinite(exact)]).sum())
    assert scored.ids == request.prompt_ids
    assert [p.id for p in scored.logprobs] == list(request.prompt_ids[1:])
    assert scored.logprobs[5].logprob == pytest.approx(exact[ord("p")], abs=1e-4)
    assert got.ids() == expected_ids(request)


def test_echo_may_ask_for_no_token_at_all():
    got = answer(make_engine(), make_request("r", "score me", 0, echo=True, logprobs=0))
    assert got.reasons == [FinishReason.LENGTH]
    assert (got.ended[0].prompt_tokens, got.ended[0].completion_tokens) == (8, 0)
    assert len(got.deltas[0].logprobs) == 7


def test_scored_prompts_ask_for_no_more_logits_than_sequences_may():
    program = FakeProgram(256)
    engine = Engine(EngineConfig(256, 8, 64), SampledProgram(program, lambda: 0.0), ByteDetokenizer())
    for i in range(5):
        request = make_request(f"r{i}", bytes(range(40, 90)), 3, echo=i % 2 == 0, logprobs=1)
        engine.submit(request, random_seed=0)
    answers = drain(engine)
    assert max(len(b.logit_rows) for b in program.batches) <= 8
    assert all(a.ids() == answers["r0"].ids() for a in answers.values())


class Alphabet:
    """Allows one given letter after another, then nothing."""

    def __init__(self, letters: str) -> None:
        self.letters = letters
        self.seen: list[int] = []

    @property
    def is_finished(self) -> bool:
        return len(self.seen) == len(self.letters)

    def mask(self) -> np.ndarray:
        bits = np.zeros(288, dtype=np.uint8)
        bits[ord(self.letters[len(self.seen)])] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def advance(self, token_id: int) -> None:
        self.seen.append(token_id)


def test_a_constraint_decides_what_may_be_said_and_when_to_stop():
    engine = make_engine()
    engine.submit(make_request("r", "hello", 50), random_seed=0, constraint=lambda: Alphabet("{json}"))
    got = drain(engine)["r"]
    assert (got.text(), got.reasons) == ("{json}", [FinishReason.STOP])


def test_the_program_is_told_seed_stream_and_position():
    program = ScriptedProgram([65] * 64)
    engine = Engine(EngineConfig(64, 8, 64), program, ByteDetokenizer())
    answer(engine, make_request("r", "1234", 2, n=2, sampling=SAMPLED))
    told = {(d.seed, d.stream, d.position) for step in program.draws for d in step.picks}
    assert told == {(42, 0, 4), (42, 0, 5), (42, 1, 4), (42, 1, 5)}
