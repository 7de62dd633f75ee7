"""The traffic check on fake programs: it passes a sound one, and finds one whose rows are not independent."""

from __future__ import annotations

import numpy as np
import pytest

from batching.engine import Engine, EngineConfig
from batching.replica.program import SampledProgram
from loadtest.checks.traffic import Sizes, differences, draw_arrivals, missing, play, play_alone
from tests.support.fake_program import ByteDetokenizer, FakeProgram

SIZES = Sizes(vocab_size=120, longest_prompt=40, longest_answer=16, window_steps=12)


class LeakyProgram(FakeProgram):
    """A row's logits move by a rounding error when the step holds many rows."""

    def step(self, batch):
        return super().step(batch) * np.float32(1 + 1e-6 * (len(batch.token_ids) > 3))


class ForgetfulProgram(FakeProgram):
    """A row sees one wrong token of its past when the step holds many sequences."""

    def _history(self, batch, row):
        tokens = super()._history(batch, row)
        return [tokens[0] ^ 1, *tokens[1:]] if len(batch.block_tables) > 4 else tokens


def engine_of(program_class: type[FakeProgram], kv_blocks: int = 200, budget: int = 64) -> Engine:
    program = program_class(kv_blocks, max_batched_tokens=budget, max_sequences=8)
    return Engine(EngineConfig(kv_blocks, 8, budget), SampledProgram(program, lambda: 0.0), ByteDetokenizer())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kv_blocks", "budget"), [(200, 64), (30, 64), (200, 9)])
def test_a_sound_program_answers_together_as_alone(seed, kv_blocks, budget) -> None:
    arrivals = draw_arrivals(seed, SIZES)
    together = play(engine_of(FakeProgram, kv_blocks, budget), arrivals)
    assert differences(together, play_alone(engine_of(FakeProgram), arrivals)) == []
    assert missing(together, arrivals) == []
    assert together.stats.kv_blocks_used == 0


def test_a_rounding_error_that_depends_on_the_batch_is_found() -> None:
    arrivals = draw_arrivals(1, SIZES)
    together, alone = play(engine_of(LeakyProgram), arrivals), play_alone(engine_of(LeakyProgram), arrivals)
    assert any("log-probabilities" in sentence for sentence in differences(together, alone))


def test_an_answer_that_depends_on_the_batch_is_found() -> None:
    arrivals = draw_arrivals(1, SIZES)
    together = play(engine_of(ForgetfulProgram), arrivals)
    alone = play_alone(engine_of(ForgetfulProgram), arrivals)
    assert any("another token" in sentence for sentence in differences(together, alone))


def test_the_traffic_holds_aborts_siblings_and_scored_prompts() -> None:
    arrivals = draw_arrivals(1, SIZES)
    assert len(arrivals) == 16
    assert sum(a.aborted_after is not None for a in arrivals) == 4
    assert any(a.request.n == 2 for a in arrivals)
    assert any(a.request.echo for a in arrivals)
    assert len({len(a.request.prompt_ids) for a in arrivals}) > 8


def test_equal_seeds_draw_equal_traffic() -> None:
    assert draw_arrivals(3, SIZES) == draw_arrivals(3, SIZES)
