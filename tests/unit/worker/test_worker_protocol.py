"""Messages between worker and compile child survive the way there and back."""

from __future__ import annotations

import pytest

from worker.protocol import (
    CompileRequest,
    CompileSettings,
    Done,
    Failed,
    Progress,
    Report,
    decode_report,
    decode_request,
    encode_report,
    encode_request,
)


def test_a_request_survives() -> None:
    request = CompileRequest("/in", "/out", "/cache", CompileSettings(budget=2.5, max_context=128))
    assert decode_request(encode_request(request)) == request


@pytest.mark.parametrize(
    "report", [Progress("search", 0.5, "kernel 3 of 9\n"), Done({"bytes": 7}), Failed("truncated_file", "é")]
)
def test_a_report_survives_on_one_line(report: Report) -> None:
    line = encode_report(report)
    assert decode_report(line) == report
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("line", [b"", b"hello\n", b"[]\n", b'{"t":"other"}\n', b'{"t":"done"}\n'])
def test_anything_else_is_not_a_report(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a report"):
        decode_report(line)
