"""Whether a compiled program says what transformers says: logits of given ids, and greedy answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from compiler.runtime import Program
from loadtest.checks.compare import Distance, Floats, Split, distance, splits
from loadtest.checks.forward import prefill_then_decode, teacher_forced
from loadtest.checks.peer import Continuation
from loadtest.checks.report import Finding

MOST_ERROR = 1.5
"""Our bf16 error over that of transformers' bf16."""
LEAST_AGREEMENT = -0.005
"""How far our agreement with f32 may lie below that of transformers' bf16."""
NEAR_TIE = 1e-3
"""Where f32's two best logits are closer than this, either may win."""
_DECODED = 12
_CHUNK = 48

Ids = Sequence[int]


class Oracle(Protocol):
    """A model that can be trusted: `peer.Peer`, or what a test puts in its place."""

    def logits(self, ids: Ids) -> Floats: ...
    def greedy(self, ids: Ids, count: int) -> Continuation: ...


def check_logits(program: Program, reference: Oracle, eager: Oracle, prompts: Sequence[Ids]) -> list[Finding]:
    """Teacher-forced logits of `program` and of `eager`, both bf16, against `reference`, f32.

    Most of a prompt goes in by chunks, its end token by token.
    """
    ours: list[Distance] = []
    theirs: list[Distance] = []
    for ids in prompts:
        wanted = reference.logits(ids)
        chunks = prefill_then_decode(len(ids), _DECODED, min(_CHUNK, program.max_batched_tokens))
        ours.append(distance(teacher_forced(program, ids, chunks), wanted))
        theirs.append(distance(eager.logits(ids), wanted))
    return list(_logit_findings(ours, theirs))


def _logit_findings(ours: Sequence[Distance], theirs: Sequence[Distance]) -> Iterator[Finding]:
    name = "logits, bf16"
    us, them = sum(ours, Distance()), sum(theirs, Distance())
    yield Finding(name, "prompts (tokens)", f"{len(ours)} ({us.positions})")
    yield _ratio(name, "RMS error, ours / eager bf16", us.rms, them.rms)
    worst = max(zip(ours, theirs, strict=True), key=lambda pair: pair[0].rms / pair[1].rms)
    yield _ratio(name, "the same, worst prompt", worst[0].rms, worst[1].rms)
    yield _ratio(name, "KL divergence, ours / eager bf16", us.mean_divergence, them.mean_divergence)
    yield _ratio(name, "largest error, ours / eager bf16", us.largest, them.largest, is_bound=False)
    yield Finding(
        name,
        "argmax as f32's, ours (eager bf16)",
        f"{us.agreement:.2%} ({them.agreement:.2%})",
        f">= {them.agreement + LEAST_AGREEMENT:.2%}",
        us.agreement >= them.agreement + LEAST_AGREEMENT,
    )


def _ratio(check: str, figure: str, ours: float, theirs: float, *, is_bound: bool = True) -> Finding:
    measured = f"{ours:.3g} / {theirs:.3g} = {ours / theirs:.2f}"
    if not is_bound:
        return Finding(check, figure, measured)
    return Finding(check, figure, measured, f"<= {MOST_ERROR}", ours <= MOST_ERROR * theirs)


def check_greedy(
    complete: Callable[[Sequence[Ids], Sequence[int]], Sequence[Ids]],
    reference: Oracle,
    prompts: Sequence[Ids],
    count: int = 64,
) -> list[Finding]:
    """Greedy answers of an f32 program equal the reference's, except where that was near a tie.

    `complete(prompts, counts)` gives our greedy ids, so many a prompt, whatever they are.
    """
    first = complete(prompts, [count] * len(prompts))
    found: list[tuple[int, Split]] = []
    for number, ids in enumerate(prompts):
        wanted = reference.greedy(ids, count)

        def resume(done: int, number: int = number, ids: Ids = ids, wanted: Ids = wanted.ids) -> Ids:
            if done == 0:
                return first[number]
            return complete([[*ids, *wanted[:done]]], [count - done])[0]

        found += [(number, split) for split in splits(wanted.ids, wanted.margins, resume)]
    ties = tuple(_told(n, s) for n, s in found if s.margin < NEAR_TIE)
    wrong = tuple(_told(n, s) for n, s in found if s.margin >= NEAR_TIE)
    name = "greedy, f32"
    return [
        Finding(name, "tokens compared", str(count * len(prompts))),
        Finding(name, "other tokens than f32's", str(len(wrong)), "0", not wrong, wrong),
        Finding(name, f"of near ties (f32's top two within {NEAR_TIE})", str(len(ties)), details=ties),
    ]


def _told(number: int, split: Split) -> str:
    return (
        f"prompt {number + 1}, token {split.place + 1}: {split.got}, not {split.wanted}, "
        f"which leads by {split.margin:.2g}"
    )
