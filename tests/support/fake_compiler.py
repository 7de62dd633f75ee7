"""A compiler that compiles nothing: it copies the checkpoint's file names into an artifact."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.serving import SERVING_INFO
from worker.compile_process import Watch
from worker.protocol import CompileRequest, Done, Progress


def write_build(request: CompileRequest, text: str = "kernels") -> Done:
    """What a compile leaves behind, with `text` as its only kernel."""
    out = Path(request.out_dir)
    (out / "artifact").mkdir(parents=True)
    (out / "tokenizer").mkdir()
    names = sorted(p.name for p in Path(request.checkpoint_dir).iterdir())
    (out / "artifact" / "kernels.so").write_text(text)
    (out / "artifact" / "manifest.json").write_text(json.dumps({"files": names}))
    (out / "tokenizer" / "tokenizer.json").write_text("{}")
    return Done(dict(SERVING_INFO))


@dataclass
class FakeCompiler:
    """`meanwhile` runs in the middle of each compile, with the watch; it may raise what a compile raises."""

    meanwhile: Callable[[Watch], None] = lambda _: None
    text: str = "kernels"
    requests: list[CompileRequest] = field(default_factory=list)

    def compile(self, request: CompileRequest, log_path: Path, watch: Watch) -> Done:
        self.requests.append(request)
        watch.on_progress(Progress("search", 0.5, "half way"))
        watch.on_memory(123 << 20)
        self.meanwhile(watch)
        return write_build(request, self.text)
