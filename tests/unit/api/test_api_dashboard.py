"""The dashboard: every page renders, with data and without, under its content policy."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import httpx
import pytest

from api.dashboard import format as forms_of
from api.dashboard.charts import HEIGHT, LEFT, WIDTH, bar_chart, step_chart
from api.dashboard.render import CONTENT_POLICY, STATIC
from common.wire import ReplicaState
from storage import deployments, jobs, ledger, replicas
from storage.records import Failure, JobEventKind, Meter, Scope, UsageEvent
from storage.replica_chart import ReplicaCounts
from tests.support.gateway import Gateway, deploy
from tests.support.storage_rows import a_job

PAGES = [
    "/dashboard",
    "/dashboard/models",
    "/dashboard/jobs",
    "/dashboard/deployments",
    "/dashboard/requests",
    "/dashboard/spend",
    "/dashboard/keys",
    "/dashboard/playground",
]
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def data(gateway: Gateway) -> dict[str, str]:
    """Something of everything; ids by name."""
    now = time.time()
    deployment = deploy(gateway, "tiny")
    with gateway.database.write() as conn:
        replica = replicas.insert_replica(conn, deployment, now - 300)
        replicas.set_replica_state(conn, replica.id, ReplicaState.READY, now - 298)
        gone = replicas.insert_replica(conn, deployment, now - 900)
        replicas.set_replica_state(conn, gone.id, ReplicaState.GONE, now - 600, "out of memory")
        job = a_job(conn, gateway.tenant, "failing")
        claim = jobs.claim_job(conn, job.id, "wrk_1", now, 30.0)
        assert claim is not None
        body = {"stage": "search", "fraction": 0.5, "message": EVIL}
        jobs.append_event(conn, job.id, claim.token, JobEventKind.PROGRESS, body, now)
        jobs.append_event(conn, job.id, claim.token, JobEventKind.LOG, {"message": "hello"}, now)
        jobs.fail(conn, job.id, claim.token, Failure("bad_header", EVIL), now)
        for meter, quantity in ((Meter.PROMPT_TOKENS, 1234), (Meter.COMPLETION_TOKENS, 567)):
            event = UsageEvent(gateway.tenant.id, "req_1", meter, quantity, "list-1", "tiny", now)
            ledger.append(conn, event)
    return {"job": job.id, "deployment": "tiny"}


class Strict(HTMLParser):
    """Notes what a content policy would block, and whether tags are closed in order."""

    VOID = frozenset({"meta", "link", "input", "line", "rect", "path", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.blocked: list[str] = []
        self.unlabelled = 0
        self.titles = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.titles += tag == "h1"
        if "style" in names or any(name.startswith("on") for name in names):
            self.blocked.append(tag)
        if tag in ("script", "link", "img") and (names.get("src") or names.get("href") or "").startswith(
            "http"
        ):
            self.blocked.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag, f"</{tag}> closes nothing"


def parsed(response: httpx.Response) -> Strict:
    assert response.status_code == 200, response.text[:500]
    assert response.headers["content-security-policy"] == CONTENT_POLICY
    page = Strict()
    page.feed(response.text)
    return page


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_renders_for_a_new_tenant(http: httpx.AsyncClient, path: str) -> None:
    page = parsed(await http.get(path))
    assert (page.open, page.blocked, page.titles) == ([], [], 1)


@pytest.mark.parametrize("path", [*PAGES, "/dashboard/jobs/{job}", "/dashboard/deployments/{deployment}"])
async def test_every_page_renders_with_data_and_escapes_it(
    http: httpx.AsyncClient, data: dict[str, str], path: str
) -> None:
    response = await http.get(path.format(**data))
    page = parsed(response)
    assert (page.open, page.blocked, page.titles) == ([], [], 1)
    assert EVIL not in response.text


async def test_the_pages_say_what_is_in_the_database(http: httpx.AsyncClient, data: dict[str, str]) -> None:
    spend = (await http.get("/dashboard/spend")).text
    job = (await http.get(f"/dashboard/jobs/{data['job']}")).text
    deployment = (await http.get("/dashboard/deployments/tiny")).text
    assert re.search(r'data-total="prompt_tokens">1,234<', spend)
    assert re.search(r'data-total="completion_tokens">567<', spend)
    assert re.search(r'data-total="amount">\$0.000175<', spend)
    assert "bad_header" in job
    assert "out of memory" in deployment
    assert 'class="area-ready"' in deployment


async def test_the_job_list_says_why_a_job_failed(http: httpx.AsyncClient, data: dict[str, str]) -> None:
    listed = (await http.get("/dashboard/jobs")).text
    assert "bad_header" in listed
    assert "alert(1)" in listed


async def test_a_missing_thing_is_a_page_with_a_404(http: httpx.AsyncClient) -> None:
    response = await http.get("/dashboard/deployments/nothing")
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "deployment_not_found" in response.text


async def test_a_deployment_is_made_scaled_and_deleted_by_forms(
    gateway: Gateway, http: httpx.AsyncClient, data: dict[str, str]
) -> None:
    form = {"model": "tiny", "name": "form", "min_replicas": 0, "max_replicas": 2, "idle_timeout_s": "30"}
    made = await http.post("/dashboard/deployments", data=form)
    scaled = await http.post("/dashboard/deployments/form", data={**form, "max_replicas": 5})
    with gateway.database.read() as conn:
        policy = deployments.get_deployment(conn, gateway.tenant.id, "form").policy
    gone = await http.post("/dashboard/deployments/form/delete", data={})
    assert (made.status_code, made.headers["location"]) == (303, "/dashboard/deployments/form")
    assert (scaled.status_code, gone.status_code) == (303, 303)
    assert (policy.max_replicas, policy.idle_timeout_s) == (5, 30.0)
    assert (await http.get("/dashboard/deployments/form")).status_code == 404


@pytest.mark.parametrize(
    "form",
    [
        {"model": "tiny", "name": "a b"},
        {"model": "tiny", "name": "x", "min_replicas": "many"},
        {"model": "tiny", "name": "x", "max_replicas": "0"},
        {"model": "nothing", "name": "x"},
        {"model": "failing", "name": "x"},
    ],
)
async def test_a_bad_form_is_a_page_that_says_why(
    http: httpx.AsyncClient, data: dict[str, str], form: dict[str, str]
) -> None:
    defaults = {"min_replicas": "0", "max_replicas": "1", "idle_timeout_s": "60"}
    response = await http.post("/dashboard/deployments", data=defaults | form)
    assert response.status_code in (400, 404, 409)
    assert "That was not possible" in response.text


async def test_a_key_made_by_a_form_is_shown_once_and_works(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    made = await http.post("/dashboard/keys", data={"name": "mine", "scope": ["inference", "read"]})
    secret = re.search(r"data-secret>(ck_[^<]+)<", made.text)
    assert secret is not None
    assert secret[1] not in (await http.get("/dashboard/keys")).text
    async with gateway.client(secret[1]) as client:
        assert (await client.get("/v1/models")).status_code == 200


async def test_readers_see_no_buttons_that_they_may_not_press(gateway: Gateway, data: dict[str, str]) -> None:
    async with gateway.client(gateway.secrets[Scope.READ]) as client:
        page = (await client.get("/dashboard/deployments")).text
        refused = await client.post("/dashboard/deployments/tiny/delete", data={})
    assert "Deploy a model" not in page
    assert refused.status_code == 403


async def test_static_files_are_cached_for_ever_under_their_digest(http: httpx.AsyncClient) -> None:
    page = (await http.get("/dashboard")).text
    address = re.search(r'href="(/dashboard/static/style\.css\?v=[0-9a-f]{12})"', page)
    assert address is not None
    response = await http.get(address[1])
    assert response.headers["content-type"].startswith("text/css")
    assert "immutable" in response.headers["cache-control"]
    assert (await http.get("/dashboard/static/../render.py")).status_code == 404


def test_static_files_call_on_nobody_else() -> None:
    text = b"".join(STATIC.values()).decode()
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}


async def test_the_root_leads_to_the_dashboard(gateway: Gateway) -> None:
    async with gateway.client("") as client:
        response = await client.get("/")
    assert response.headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    ("nano_usd", "text"),
    [
        (0, "$0.00"),
        (1, "< $0.000001"),
        (1_000, "$0.000001"),
        (45_550, "$0.000046"),
        (9_999_999, "$0.010000"),
        (10_000_000, "$0.01"),
        (2_675_000_000, "$2.68"),
    ],
)
def test_money_is_shown_as_finely_as_there_is_something_to_see(nano_usd: int, text: str) -> None:
    assert forms_of.usd(nano_usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0214, "21 ms"),
        (0.9999, "1.0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (65, "1 min 5 s"),
        (3_661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (None, "–"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert forms_of.duration(seconds) == text


def test_sizes_counts_and_times_are_written_for_people() -> None:
    assert [forms_of.size(n) for n in (10, 2048, 5 << 30)] == ["10 B", "2.0 KiB", "5.0 GiB"]
    assert [forms_of.compact(n) for n in (999, 1_234, 34_000, 5_600_000)] == ["999", "1.2k", "34k", "5.6M"]
    assert [forms_of.ago(100 - s, 100) for s in (1, 30)] == ["just now", "30 s ago"]
    assert forms_of.ago(0, 7_200) == "2 h ago"
    assert forms_of.short_id("req_0123456789abcdef") == "req_…89abcdef"


def test_a_step_chart_stays_inside_its_frame_and_stacks_up_to_the_peak() -> None:
    points = [ReplicaCounts(0.0, 0, 1, 0), ReplicaCounts(50.0, 1, 2, 1), ReplicaCounts(80.0, 0, 0, 0)]
    chart = step_chart(points, 0.0, 100.0)
    numbers = [float(x) for area in chart.areas for x in re.findall(r"\d+\.\d", area.path)]
    assert chart.peak == 4
    assert [area.kind for area in chart.areas] == ["ready", "draining", "starting"]
    assert min(numbers[0::2]) >= LEFT
    assert max(numbers[0::2]) <= WIDTH
    assert max(numbers[1::2]) <= HEIGHT


def test_an_empty_chart_has_axes_and_no_areas() -> None:
    chart = step_chart([ReplicaCounts(0.0, 0, 0, 0)], 0.0, 3600.0)
    assert chart.areas == ()
    assert chart.y_ticks[0].label == "0"
    assert len(chart.x_ticks) == 6


def test_bars_are_as_high_as_their_share() -> None:
    amounts = {("2026-01-01", "a"): 300, ("2026-01-01", "b"): 100, ("2026-01-02", "b"): 200}
    chart = bar_chart(["2026-01-01", "2026-01-02"], amounts, dict.fromkeys(amounts, "t"))
    heights = {(bar.series, round(bar.x)): bar.height for bar in chart.bars}
    (a, b1, b2) = heights.values()
    assert chart.series == ("a", "b")
    assert (round(a / b1, 6), round(b2 / b1, 6)) == (3.0, 2.0)
