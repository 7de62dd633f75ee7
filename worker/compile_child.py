"""The process that reads a tenant's checkpoint and compiles it: `python -m worker.compile_child`.

It holds no credentials and speaks `worker.protocol` on stdin and stdout; whatever else prints goes to stderr.
It ends itself and all it started when the worker goes away.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from typing import BinaryIO, NoReturn

from common.errors import PlatformError
from compiler.errors import CompilerError
from worker.protocol import CompileRequest, Failed, Report, Word, decode_request, encode_report


class Control:
    """What the worker said last; read by the compile, written by the listening thread."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._busy = threading.Event()

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def is_busy(self) -> bool:
        return self._busy.is_set()

    def hear(self, word: Word) -> None:
        if word is Word.STOP:
            self._stop.set()
        elif word is Word.BUSY:
            self._busy.set()
        else:
            self._busy.clear()


class Reporter:
    """Writes reports, one line each, whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, report: Report) -> None:
        with self._lock:
            self._stream.write(encode_report(report))
            self._stream.flush()


def main() -> None:
    """Answer one request; exit 0 when it was answered, even with `Failed`, and 1 with a traceback when not.

    It never returns: an ordinary exit would wait for the listening thread, which sits in a read.
    """
    try:
        _serve(_arguments())
    except Exception:
        traceback.print_exc()
        leave(1)
    leave(0)


def leave(status: int) -> NoReturn:
    """End at once; nothing is left to clean up."""
    sys.stderr.flush()
    os._exit(status)


def _serve(arguments: argparse.Namespace) -> None:
    reporter = Reporter(claim_stdout())
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("egglog").setLevel(logging.WARNING)  # prints every command otherwise
    os.nice(arguments.niceness)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    request = decode_request(sys.stdin.buffer.readline())
    control = Control()
    threading.Thread(target=listen, args=(sys.stdin.buffer, control), name="listen", daemon=True).start()
    reporter.say(_answer(request, reporter, control))


def _answer(request: CompileRequest, reporter: Reporter, control: Control) -> Report:
    """Compile; the compiler's and the platform's refusals become `Failed`, here and nowhere else."""
    from worker.build import build  # heavy: after the worker can be heard

    try:
        return build(request, reporter.say, control.should_stop, control.is_busy, os.environ.get("CXX"))
    except (CompilerError, PlatformError) as error:
        logging.getLogger(__name__).info("refused", exc_info=True)
        return Failed(error.code, str(error))


def claim_stdout() -> BinaryIO:
    """Take stdout for reports and send every other print, of C libraries too, to stderr."""
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return reports


def listen(stdin: BinaryIO, control: Control) -> None:
    for line in stdin:
        with contextlib.suppress(ValueError):
            control.hear(Word(line.decode().strip()))
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--niceness", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
