"""Taking in a step's outcomes: tokens are appended, text released, sequences end. Emits the step's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from batching.engine.apply import retire
from batching.engine.errors import INVALID_LOGITS
from batching.engine.plan import StepPlan
from batching.engine.ports import Broken, Detokenizer, Outcome, Picked
from batching.engine.sequence import RequestState, Sequence
from batching.engine.state import EngineState
from common.wire import Delta, Ended, Failed, Finished, FinishReason, Frame, Started, TokenLogprob


@dataclass(frozen=True, slots=True)
class Event:
    """A frame of one request's stream; counts in it are cumulative."""

    request_id: str
    frame: Frame


def absorb(
    state: EngineState, plan: StepPlan, outcomes: Iterable[Outcome], detokenizer: Detokenizer
) -> Iterator[Event]:
    """Give each chunk its outcomes and yield what happened, in the order of the plan."""
    state.counters.steps += 1
    left = iter(outcomes)
    sequences = [state.running[chunk.number] for chunk in plan.chunks]
    for sequence, chunk in zip(sequences, plan.chunks, strict=True):
        owner = sequence.owner
        scored = len(sequence.scored_by(chunk.start, chunk.count))
        draws = sequence.draws_after(chunk.start, chunk.count)
        mine = [next(left) for _ in range(scored + draws)]
        if owner.request.request_id not in state.requests:
            continue  # a sibling failed in this very step, and the request with it
        if not owner.is_started:
            yield _start(state, owner)
        if any(isinstance(outcome, Broken) for outcome in mine):
            yield _fail(state, owner)
            continue
        picked = [outcome for outcome in mine if isinstance(outcome, Picked)]
        sequence.prompt_logprobs += [_logprob(p, detokenizer) for p in picked[:scored]]
        sequence.scored += scored
        frames = _prompt_scores(sequence)
        if draws:
            frames += _drawn(state, sequence, picked[scored], detokenizer)
        elif sequence.remaining == 0:
            frames += _finish(state, sequence, FinishReason.LENGTH, None)
        for frame in frames:
            yield Event(owner.request.request_id, frame)
        if owner.is_done:
            yield end(state, owner)


def end(state: EngineState, owner: RequestState) -> Event:
    """Forget a request whose sequences have all finished, and report its totals."""
    request_id = owner.request.request_id
    del state.requests[request_id]
    return Event(request_id, Ended(owner.prompt_tokens, owner.completion_tokens))


def _start(state: EngineState, owner: RequestState) -> Event:
    owner.is_started = True
    state.counters.prompt_tokens += owner.prompt_tokens
    return Event(owner.request.request_id, Started(owner.prompt_tokens))


def _fail(state: EngineState, owner: RequestState) -> Event:
    """End a request, and all its sequences, whose numbers went wrong; nobody else notices."""
    for sequence in owner.sequences:
        if sequence.number in state.sequences:
            retire(state, sequence)
    del state.requests[owner.request.request_id]
    message = "the model's logits were not finite, or the constraint allowed no token"
    return Event(owner.request.request_id, Failed(INVALID_LOGITS, message))


def _prompt_scores(sequence: Sequence) -> list[Frame]:
    """The prompt's log-probabilities in one frame, when the whole prompt is computed for the first time."""
    if not sequence.scores_prompt or sequence.remaining or sequence.output_count:
        return []
    ids = sequence.owner.request.prompt_ids
    return [Delta(sequence.index, "", ids, 0, tuple(sequence.prompt_logprobs))]


def _drawn(state: EngineState, sequence: Sequence, picked: Picked, detokenizer: Detokenizer) -> list[Frame]:
    """Append one token; end the sequence if it must."""
    request = sequence.owner.request
    sequence.tokens.append(picked.token_id)
    state.counters.generation_tokens += 1
    text, reason, match = "", None, None
    is_armed = sequence.output_count >= request.min_tokens
    if picked.token_id in request.stop_ids:
        reason = FinishReason.STOP
    else:
        if sequence.constraint is not None:
            sequence.constraint.advance(picked.token_id)
        released = sequence.stops.push(sequence.text.push(picked.token_id), is_armed=is_armed)
        text, match = released.text, released.match
        if match is not None or (sequence.constraint is not None and sequence.constraint.is_finished):
            reason = FinishReason.STOP
        elif _is_out_of_room(state, sequence):
            reason = FinishReason.LENGTH
    if reason is not None and match is None:
        tail = sequence.stops.push(sequence.text.finish(), is_armed=is_armed)
        text, match = text + tail.text + sequence.stops.flush(), tail.match
        reason = reason if match is None else FinishReason.STOP
    logprobs = () if request.logprobs is None else (_logprob(picked, detokenizer),)
    frames: list[Frame] = [Delta(sequence.index, text, (picked.token_id,), sequence.output_count, logprobs)]
    return frames if reason is None else frames + _finish(state, sequence, reason, match)


def _is_out_of_room(state: EngineState, sequence: Sequence) -> bool:
    """Whether the token just appended is the last: by request, by context, or by the whole pool's size."""
    room = min(state.max_context, state.ceiling_tokens)
    return sequence.output_count >= sequence.owner.request.max_tokens or len(sequence.tokens) >= room


def _finish(state: EngineState, sequence: Sequence, reason: FinishReason, match: str | None) -> list[Frame]:
    retire(state, sequence)
    return [Finished(sequence.index, reason, sequence.output_count, match)]


def _logprob(picked: Picked, detokenizer: Detokenizer) -> TokenLogprob:
    assert picked.logprob is not None, "the program reports what was asked for"
    top = tuple((i, detokenizer.token_text(i), p) for i, p in picked.top)
    return TokenLogprob(picked.token_id, detokenizer.token_text(picked.token_id), picked.logprob, top)
