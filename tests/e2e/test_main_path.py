"""The whole way on a tiny random model: upload, compile, deploy, chat, bill, zero, wake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from candela.client import AsyncClient, Client
from tests.support.platform import Platform, running_platform, wait_until
from tests.support.tiny_checkpoints import write_tiny_checkpoint

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_checkpoint(path, "gqa")
    return path


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with running_platform() as platform:
        yield platform


@pytest.fixture(scope="module")
def deployed(platform: Platform, checkpoint: Path) -> Platform:
    """The model `tiny`, through the command line as a person would do it."""
    sent = platform.candela("model", "upload", str(checkpoint), "--name", "tiny", "--json")
    assert sent.returncode == 0, sent.stderr
    watched = platform.candela("job", "watch", json.loads(sent.stdout)["job_id"], "--json")
    assert watched.returncode == 0, watched.stderr + platform.logs()
    made = platform.candela("deploy", "tiny", "--min", "0", "--max", "2", "--idle", "2s", "--json")
    assert made.returncode == 0, made.stderr
    return platform


@pytest.fixture
def openai_client(deployed: Platform) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{deployed.url}/v1", api_key=deployed.api_key, max_retries=0) as client:
        yield client


def replicas_of(client: Client) -> int:
    return sum(replica.state != "gone" for replica in client.deployments.get("tiny").replicas)


def dashboard_totals(platform: Platform, meters: Iterable[str]) -> dict[str, int]:
    """What the spend page shows in its last row, to one who signed in with the key."""
    with httpx.Client(base_url=platform.url, follow_redirects=True, timeout=10.0) as browser:
        browser.post("/dashboard/sign-in", data={"key": platform.api_key, "next": "/dashboard"})
        page = browser.get("/dashboard/spend").text
    shown = dict(re.findall(r'data-total="(\w+)">([\d,]+)<', page))
    return {meter: int(shown[meter].replace(",", "")) for meter in meters}


def test_the_first_start_prints_an_admin_key_that_works(platform: Platform) -> None:
    assert platform.facts["admin_key"] == platform.api_key
    assert platform.client().models.list() is not None


def test_a_second_start_on_the_same_directory_is_refused(platform: Platform) -> None:
    done = platform.candela("up", "--detach", "--port", "0")
    assert done.returncode == 1
    assert "already runs a platform" in done.stderr


def test_the_dashboard_answers(platform: Platform) -> None:
    answer = httpx.get(
        f"{platform.url}/dashboard", headers={"accept": "text/html"}, follow_redirects=True, timeout=10.0
    )
    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]


def test_the_model_is_listed_for_the_key(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == ["tiny"]


def test_a_streamed_answer_equals_one_that_is_not_streamed(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=16
    )
    stream = openai_client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_usage_adds_up_from_the_answers_to_the_ledger(
    deployed: Platform, openai_client: openai.OpenAI
) -> None:
    client = deployed.client()
    before = client.usage.get().quantities
    answers = [
        openai_client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, max_tokens=n)
        for n in (1, 5, 9)
    ]
    told = [answer.usage for answer in answers if answer.usage is not None]
    wanted = {
        "prompt_tokens": sum(u.prompt_tokens for u in told),
        "completion_tokens": sum(u.completion_tokens for u in told),
    }

    def grown() -> dict[str, int]:
        now = client.usage.get().quantities
        return {meter: now.get(meter, 0) - before.get(meter, 0) for meter in wanted}

    wait_until(lambda: grown() == wanted, 15.0, f"ledger grows by {wanted}")
    whole = client.usage.get(verify=True)
    assert whole.chain_is_intact is True
    assert dashboard_totals(deployed, wanted) == {meter: whole.quantities[meter] for meter in wanted}


def test_chat_from_the_shell_gives_the_same_answer(deployed: Platform, openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=8
    )
    done = deployed.candela(
        "chat", "tiny", "-m", MESSAGES[0]["content"], "--temperature", "0", "--max-tokens", "8", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == whole.choices[0].message.content


async def test_the_asynchronous_client_gives_the_same_answer(deployed: Platform) -> None:
    options = {"temperature": 0, "max_tokens": 8}
    async with AsyncClient(deployed.url, deployed.api_key) as client:
        whole = await client.chat.create("tiny", MESSAGES, **options)
        chunks = [chunk async for chunk in client.chat.stream("tiny", MESSAGES, **options)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert chunks[-1].usage == whole.usage


def test_an_idle_deployment_goes_to_zero_and_wakes(deployed: Platform, openai_client: openai.OpenAI) -> None:
    openai_client.completions.create(model="tiny", prompt="hello", max_tokens=2)
    assert deployed.replica_processes()
    client = deployed.client()
    wait_until(lambda: replicas_of(client) == 0, 30.0, "no replica after the idle time")
    wait_until(lambda: not deployed.replica_processes(), 10.0, "no replica process either")
    again = openai_client.completions.create(model="tiny", prompt="hello", max_tokens=2)
    assert again.usage is not None
    assert again.usage.completion_tokens >= 1


@pytest.mark.parametrize(
    ("model", "key", "status", "code"),
    [("absent", None, 404, "model_not_found"), ("tiny", "ck_wrong", 401, "invalid_api_key")],
)
def test_what_cannot_be_served_has_its_own_status(
    deployed: Platform, model: str, key: str | None, status: int, code: str
) -> None:
    with (
        openai.OpenAI(
            base_url=f"{deployed.url}/v1", api_key=key or deployed.api_key, max_retries=0
        ) as client,
        pytest.raises(openai.APIStatusError) as caught,
    ):
        client.chat.completions.create(model=model, messages=MESSAGES)
    assert (caught.value.status_code, caught.value.code) == (status, code)


def test_a_prompt_longer_than_the_context_is_refused(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.completions.create(model="tiny", prompt="word " * 5000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


def test_a_new_key_can_call_models_until_it_is_revoked(deployed: Platform) -> None:
    client = deployed.client()
    made = client.keys.create("guest", ["inference"])
    with openai.OpenAI(base_url=f"{deployed.url}/v1", api_key=made.secret, max_retries=0) as guest:
        guest.completions.create(model="tiny", prompt="hello", max_tokens=1)
        client.keys.revoke(made.key.id)
        with pytest.raises(openai.AuthenticationError):
            guest.completions.create(model="tiny", prompt="hello", max_tokens=1)


def test_files_that_are_refused_make_the_command_exit_1(
    platform: Platform, checkpoint: Path, tmp_path: Path
) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((checkpoint / name).read_bytes())
    config = json.loads((checkpoint / "config.json").read_text())
    config["architectures"], config["model_type"] = ["MysteryForCausalLM"], "mystery"
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = platform.candela("model", "upload", str(tmp_path), "--name", "odd", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "unknown_architecture"
