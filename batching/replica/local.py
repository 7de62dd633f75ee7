"""The engine inside the calling process, without a socket. For `candela run` and `candela bench`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from batching.engine import Engine, EngineConfig, EngineStats
from batching.prompt import PromptProfile
from batching.replica.loading import Load, ModelSource, load_artifact
from batching.replica.program import SampledProgram
from common.errors import PlatformError
from common.wire import Delta, Failed, Finished, FinishReason, GenerateRequest, Sampling, TokenLogprob

KV_BLOCKS = 512
MAX_SEQUENCES = 32
MAX_BATCHED_TOKENS = 512
_GREEDY = Sampling(temperature=0.0)


class GenerationFailed(PlatformError):
    """The engine ended a request with an error; `code` is the engine's."""


@dataclass(slots=True)
class Completion:
    """One finished sequence. `reason` says why it ended."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: FinishReason = FinishReason.ABORT
    stop_match: str | None = None


class LocalEngine:
    """One model, ready to generate. Not for use by several threads at once.

    Raises: what loading the artifact and the tokenizer raises.
    """

    def __init__(
        self,
        artifact_dir: Path,
        tokenizer_dir: Path,
        *,
        kv_blocks: int = KV_BLOCKS,
        threads: int | None = None,
        load: Load = load_artifact,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self.opened_at_s = clock()
        self._tokenizer_dir = tokenizer_dir
        model = load(ModelSource(artifact_dir, tokenizer_dir, kv_blocks, threads))
        self._program = SampledProgram(model.program, clock)
        config = EngineConfig(
            kv_blocks=kv_blocks,
            max_sequences=min(MAX_SEQUENCES, model.program.max_sequences),
            max_batched_tokens=min(MAX_BATCHED_TOKENS, model.program.max_batched_tokens),
        )
        self._engine = Engine(config, self._program, model.detokenizer)
        self._count = 0

    @cached_property
    def profile(self) -> PromptProfile:
        """Tokenizer, chat template and stop ids; read when first asked for."""
        return PromptProfile.load(self._tokenizer_dir)

    @property
    def max_context(self) -> int:
        return self._program.max_context

    @property
    def vocab_size(self) -> int:
        return self._program.vocab_size

    @property
    def host_time(self) -> tuple[float, int]:
        """Seconds spent between forward passes so far, and the number of such gaps."""
        return self._program.host_time.total_s, self._program.host_time.count

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def request(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling = _GREEDY,
        stop: Sequence[str] = (),
        stop_ids: Sequence[int] | None = None,
        n: int = 1,
        logprobs: int | None = None,
    ) -> GenerateRequest:
        """A request for this engine; greedy, and ended by the model's own stop ids, unless told otherwise."""
        self._count += 1
        return GenerateRequest(
            request_id=f"local-{self._count}",
            tenant_id="local",
            prompt_ids=tuple(prompt_ids),
            max_tokens=max_tokens,
            sampling=sampling,
            n=n,
            stop=tuple(stop),
            stop_ids=self.profile.stop_ids if stop_ids is None else tuple(stop_ids),
            logprobs=logprobs,
        )

    def generate(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling = _GREEDY,
        stop: Sequence[str] = (),
        stop_ids: Sequence[int] | None = None,
    ) -> Iterator[str]:
        """The text of one answer, as it becomes certain. Closing the iterator aborts it.

        Raises: `PlatformError` when the request cannot be served, `GenerationFailed` when it breaks.
        """
        request = self.request(
            prompt_ids, max_tokens=max_tokens, sampling=sampling, stop=stop, stop_ids=stop_ids
        )
        for frame in self.stream(request):
            if isinstance(frame, Delta) and frame.text:
                yield frame.text

    def stream(self, request: GenerateRequest) -> Iterator[Delta | Finished]:
        """The frames of one request, as they come. Closing the iterator aborts it. Raises: as `generate`."""
        return (frame for _, frame in self._run([request]))

    def complete(self, requests: Sequence[GenerateRequest]) -> list[list[Completion]]:
        """Run all requests together; for each its sequences, in order. Raises: as `generate`."""
        answers = {r.request_id: [Completion() for _ in range(r.n)] for r in requests}
        for request_id, frame in self._run(requests):
            _extend(answers[request_id][frame.index], frame)
        return [answers[r.request_id] for r in requests]

    def close(self) -> None:
        """Unload the program."""
        self._program.close()

    def _run(self, requests: Sequence[GenerateRequest]) -> Iterator[tuple[str, Delta | Finished]]:
        """Submit all, then step until nothing is left to do; whatever ends this early aborts the rest."""
        try:
            for request in requests:
                self._engine.submit(request, random_seed=secrets.randbits(63))
            self._program.host_time.pause()
            while self._engine.has_work:
                for event in self._engine.step():
                    if isinstance(event.frame, Failed):
                        raise GenerationFailed(event.frame.message, code=event.frame.code)
                    if isinstance(event.frame, Delta | Finished):
                        yield event.request_id, event.frame
        finally:
            for request in requests:
                self._engine.abort(request.request_id)


def _extend(answer: Completion, frame: Delta | Finished) -> None:
    if isinstance(frame, Finished):
        answer.reason, answer.stop_match = frame.reason, frame.stop_match
    elif frame.completion_tokens:
        answer.ids += frame.ids
        answer.text += frame.text
        answer.logprobs += frame.logprobs
