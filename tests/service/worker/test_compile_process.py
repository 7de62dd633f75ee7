"""A compile in a child process: its reports, its memory, being told to stop, every way to end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from worker.compile_process import ProcessCompiler, ProcessCompilerConfig, Watch
from worker.errors import CompileDied, CompileFailed, CompileOutOfMemory, CompileStopped
from worker.protocol import CompileRequest, Done, Progress

FAKE = Path(__file__).parents[2] / "support" / "fake_compile_child.py"


class Watcher:
    """Collects what a compile says; `stops_after` progress reports it asks the child to stop."""

    def __init__(self, stops_after: int | None = None, is_busy: bool = False) -> None:
        self.progress: list[Progress] = []
        self.peak_bytes = 0
        self.stops_after = stops_after
        self.busy = is_busy

    def watch(self) -> Watch:
        return Watch(self.progress.append, self.note, self.should_stop, lambda: self.busy)

    def note(self, used_bytes: int) -> None:
        self.peak_bytes = max(self.peak_bytes, used_bytes)

    def should_stop(self) -> bool:
        return self.stops_after is not None and len(self.progress) >= self.stops_after


class Compile:
    """Runs the fake child in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "logs" / "compile.log"
        self.memory_limit_bytes = 4 << 30

    def __call__(self, watcher: Watcher, **behaviour: object) -> Done:
        (self.home / "checkpoint").mkdir()
        (self.home / "checkpoint" / "behaviour.json").write_text(json.dumps(behaviour))
        config = ProcessCompilerConfig(
            memory_limit_bytes=self.memory_limit_bytes,
            environment={"PATH": os.environ["PATH"]},
            niceness=0,
            stop_grace_s=0.5,
            program=(sys.executable, "-P", str(FAKE)),
        )
        request = CompileRequest(
            str(self.home / "checkpoint"), str(self.home / "out"), str(self.home / "cache")
        )
        return ProcessCompiler(config).compile(request, self.log, watcher.watch())


@pytest.fixture
def compile_(tmp_path: Path) -> Compile:
    return Compile(tmp_path)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_reports_arrive_in_order_and_the_build_is_left_behind(compile_: Compile) -> None:
    watcher = Watcher()
    done = compile_(watcher, steps=3)
    assert [p.message for p in watcher.progress] == ["step 1, idle", "step 2, idle", "step 3, idle"]
    assert done.info["block_size"] == 16
    assert (compile_.home / "out" / "artifact" / "manifest.json").exists()


def test_other_output_goes_to_the_log(compile_: Compile) -> None:
    compile_(Watcher())
    assert "this goes to the log" in compile_.log.read_text()


def test_a_refusal_keeps_its_code(compile_: Compile) -> None:
    with pytest.raises(CompileFailed, match="told to fail") as refused:
        compile_(Watcher(), fail="truncated_file")
    assert refused.value.code == "truncated_file"


def test_an_exit_without_an_answer_shows_the_last_words(compile_: Compile) -> None:
    with pytest.raises(CompileDied, match=r"exited with code 3 .*the last words"):
        compile_(Watcher(), exit=3)


def test_a_killed_child_is_said_to_be_killed(compile_: Compile) -> None:
    with pytest.raises(CompileDied, match="ended by SIGKILL"):
        compile_(Watcher(), signal=int(signal.SIGKILL))


def test_it_stops_when_asked(compile_: Compile) -> None:
    with pytest.raises(CompileStopped):
        compile_(Watcher(stops_after=2), steps=1000, step_s=0.05)


def test_one_that_does_not_hear_is_ended_after_the_grace(compile_: Compile) -> None:
    began = time.monotonic()
    with pytest.raises(CompileStopped):
        compile_(Watcher(stops_after=1), steps=1000, step_s=0.05, deaf=True)
    assert time.monotonic() - began < 10


def test_it_hears_that_replicas_serve(compile_: Compile) -> None:
    watcher = Watcher(is_busy=True)
    compile_(watcher, steps=30, step_s=0.05)
    assert watcher.progress[-1].message == "step 30, busy"


def test_going_over_the_memory_limit_ends_it(compile_: Compile) -> None:
    compile_.memory_limit_bytes = 100 << 20
    with pytest.raises(CompileOutOfMemory, match="its limit is 100 MiB"):
        compile_(Watcher(), hoard_bytes=300 << 20)


def test_memory_is_watched_while_it_runs(compile_: Compile) -> None:
    watcher = Watcher()
    compile_(watcher, steps=10, step_s=0.1)
    assert watcher.peak_bytes > 1 << 20


def test_what_it_started_ends_with_it(compile_: Compile) -> None:
    pid_file = compile_.home / "grandchild.pid"
    compile_(Watcher(), grandchild=str(pid_file))
    assert eventually(lambda: not is_running(int(pid_file.read_text())))


PARENT = """
import sys
from pathlib import Path
from worker.compile_process import ProcessCompiler, ProcessCompilerConfig, Watch
from worker.protocol import CompileRequest
home, fake = Path(sys.argv[1]), sys.argv[2]
config = ProcessCompilerConfig(4 << 30, {}, 0, 1.0, (sys.executable, "-P", fake))
request = CompileRequest(str(home / "checkpoint"), str(home / "out"), str(home / "cache"))
watch = Watch(lambda p: print(p.message, flush=True), lambda n: None, lambda: False, lambda: False)
ProcessCompiler(config).compile(request, home / "log", watch)
"""


def test_a_child_goes_when_its_worker_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "grandchild.pid"
    behaviour = {"steps": 1000, "step_s": 0.1, "grandchild": str(pid_file)}
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "behaviour.json").write_text(json.dumps(behaviour))
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(FAKE)]
    with psutil.Popen(command, stdout=-1, text=True) as parent:
        assert parent.stdout.readline().startswith("step 1")
        (child,) = parent.children()
        parent.kill()
    assert eventually(lambda: not is_running(child.pid))
    assert eventually(lambda: not is_running(int(pid_file.read_text())))
