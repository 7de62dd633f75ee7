"""The real worker process with a compile child that compiles nothing; set up by environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.logs import configure_logging
from worker.compile_process import ProcessCompiler, ProcessCompilerConfig
from worker.main import serve
from worker.settings import WorkerSettings, compile_environment

_FAKE = Path(__file__).with_name("fake_compile_child.py")


def main() -> None:
    configure_logging("worker")
    settings = WorkerSettings()
    compiler = ProcessCompiler(
        ProcessCompilerConfig(
            memory_limit_bytes=settings.memory_limit_bytes,
            environment=compile_environment(dict(os.environ)),
            niceness=0,
            stop_grace_s=1.0,
            program=(sys.executable, "-P", str(_FAKE)),
        )
    )
    serve(settings, compiler)


if __name__ == "__main__":
    main()
