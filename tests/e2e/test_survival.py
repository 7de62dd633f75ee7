"""Losing every process at once loses nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import openai

from candela.client import ScalingPolicy, Usage
from tests.support.platform import running_platform, wait_until
from tests.support.tiny_checkpoints import write_tiny_checkpoint


def test_everything_is_there_again_after_kill_9(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "gqa")
    with running_platform() as platform:
        sent = platform.candela(
            "model", "upload", str(tmp_path), "--name", "tiny", "--wait", "--budget", "none", "--json"
        )
        assert sent.returncode == 0, sent.stderr + platform.logs()
        platform.client().deployments.create("tiny", "tiny", ScalingPolicy(idle_timeout_s=60.0))
        first = ask(platform.url, platform.api_key)
        wait_until(
            lambda: platform.client().usage.get().quantities.get("completion_tokens", 0) > 0, 15.0, "a bill"
        )
        before = platform.client().usage.get()
        platform.kill_everything()

        platform.start()

        assert "admin_key" not in platform.facts
        client = platform.client()
        assert [m.revisions[0].state for m in client.models.list()] == ["ready"]
        after = client.usage.get(verify=True)
        assert after.chain_is_intact is True
        assert tokens(after) == tokens(before)
        assert ask(platform.url, platform.api_key) == first


def tokens(usage: Usage) -> dict[str, int]:
    """Quantities that grow only with requests; replica-seconds grow by themselves."""
    return {meter: n for meter, n in usage.quantities.items() if meter.endswith("_tokens")}


def ask(url: str, api_key: str) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=api_key, max_retries=0) as client:
        answer = client.completions.create(model="tiny", prompt="Once upon", max_tokens=8, temperature=0)
    return answer.choices[0].text
