"""By which names a server answers, and to scripts of which origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.apps.server.api import Api, body
from tests.support.server import RunningServer, bearer, running_server

from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.origins import KnownHosts
from holdfast.core.errors import ConfigurationError

BASE = "https://holdfast.example.com"
ORIGIN = "https://app.example.com"
PATH = "/api/projects/acme/workloads"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that knows its name, and one origin beside its own."""
    with running_server(
        tmp_path_factory.mktemp("named"), run=False, base_url=f"{BASE}/", cors_origins=(ORIGIN,)
    ) as server:
        yield server


def get(server: RunningServer, path: str, **headers: str) -> httpx2.Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.get(f"{server.url}{path}", headers=headers)


@pytest.mark.parametrize(
    "host",
    [
        "holdfast.example.com",
        "HOLDFAST.example.com",
        "holdfast.example.com:443",
        "localhost",
        "localhost:9000",
        "127.0.0.1:8400",
        "127.9.9.9",
        "[::1]:8400",
    ],
)
def test_a_server_answers_by_its_own_names(named: RunningServer, host: str) -> None:
    assert get(named, "/ui/", Host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "holdfast.example.com.evil.com",
        "evil-holdfast.example.com",
        "holdfast.example.com:8080",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "10.0.0.1",
        "[fe80::1]",
        "example.com",
    ],
)
def test_a_server_answers_by_no_other_name(named: RunningServer, host: str) -> None:
    """Not the page, not the API with a good token, not the data plane."""
    token = bearer(named.token())
    for path in ("/", "/ui/", "/ui/assets/index.html", PATH, "/endpoint/a/b/v1/models", "/none"):
        answer = get(named, path, Host=host, **token)
        assert answer.status_code == 421, path
        assert BASE in answer.text
    assert get(named, PATH, Host=host, **token).json()["error"] == "misdirected_request"


def test_nothing_is_written_under_another_name(named: RunningServer) -> None:
    token = bearer(named.token("quiet"))
    made = httpx2.post(
        f"{named.url}/api/projects/quiet/workloads",
        json=body("bot"),
        headers={**token, "Host": "evil.example.com"},
    )
    assert made.status_code == 421
    listed = httpx2.get(f"{named.url}/api/projects/quiet/workloads", headers=token).json()
    assert listed == {"workloads": []}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_probe_may_come_by_any_address(named: RunningServer, path: str) -> None:
    """A kubelet asks by the address of the pod."""
    assert get(named, path, Host="10.1.2.3:8400").status_code == 200


def test_on_loopback_a_strange_name_is_refused_without_any_setting(server: RunningServer) -> None:
    assert get(server, "/ui/", Host="rebound.example.com").status_code == 421
    assert get(server, "/ui/", Host="localhost:1234").status_code == 200


def test_beyond_loopback_and_without_a_base_url_no_name_is_known() -> None:
    db = Path("x.db")
    assert not KnownHosts(ServerConfig(db=db, host="192.0.2.1")).checked
    assert KnownHosts(ServerConfig(db=db, host="192.0.2.1", base_url=BASE)).checked


def test_a_workload_is_reached_by_the_base_url(named: RunningServer) -> None:
    with httpx2.Client(base_url=named.url, timeout=20) as http:
        made = Api(server=named, http=http, project="reached").create()
    assert made["status"]["endpoint"] == f"{BASE}/endpoint/reached/bot/v1"


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "holdfast.example.com"},
        {"base_url": "https://holdfast.example.com/ui"},
        {"cors_origins": ("*",)},
        {"cors_origins": ("null",)},
        {"cors_origins": ("https://*.example.com",)},
        {"cors_origins": ("app.example.com",)},
        {"cors_origins": (ORIGIN, "https://b.example.com/path")},
    ],
    ids=str,
)
def test_a_setting_that_names_no_origin_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="origin"):
        ServerConfig(db=Path("x.db"), **settings)  # type: ignore[arg-type]  # wrong on purpose


def test_a_listed_origin_may_read_answers_also_refusals_and_streams(named: RunningServer) -> None:
    token = bearer(named.token())
    for path, status in ((PATH, 200), (f"{PATH}/none", 404), ("/endpoint/a/b/v1/models", 403)):
        answer = get(named, path, Origin=ORIGIN, **token)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in answer.headers
    assert get(named, PATH, Origin=ORIGIN).headers["access-control-allow-origin"] == ORIGIN
    events = f"{named.url}/api/projects/acme/events"
    with httpx2.stream("GET", events, headers={**token, "Origin": ORIGIN}) as stream:
        assert stream.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize(
    "origin",
    [
        "https://other.example.com",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.com",
        "https://APP.example.com",
        "null",
    ],
)
def test_another_origin_may_read_nothing(named: RunningServer, origin: str) -> None:
    token = bearer(named.token())
    answer = get(named, PATH, Origin=origin, **token)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["vary"] == "origin", "a cache must not give it to a listed origin"
    asked = preflight(named, PATH, origin=origin)
    assert asked.status_code == 405
    assert not [name for name in asked.headers if name.startswith("access-control")]


def preflight(
    server: RunningServer, path: str, *, origin: str = ORIGIN, method: str = "POST", asks: str = ""
) -> httpx2.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    if asks:
        headers["Access-Control-Request-Headers"] = asks
    return httpx2.options(f"{server.url}{path}", headers=headers)


@pytest.mark.parametrize("path", [PATH, "/endpoint/acme/bot/v1/chat/completions"])
def test_a_listed_origin_may_ask_before_it_sends(named: RunningServer, path: str) -> None:
    asks = "authorization,content-type,x-stainless-os,holdfast-csrf"
    answer = preflight(named, path, asks=asks)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert allowed == ["authorization", "content-type", "x-stainless-os"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_preflight_says_nothing_of_what_there_is(named: RunningServer) -> None:
    """It comes without a credential, so another's project answers like an absent one."""
    seen = {
        (answer.status_code, answer.headers["access-control-allow-methods"])
        for project in ("acme", "quiet", "none")
        for answer in [preflight(named, f"/api/projects/{project}/workloads")]
    }
    assert len(seen) == 1
    assert preflight(named, "/api/none").status_code == 404


def test_the_page_is_read_by_no_other_origin(named: RunningServer) -> None:
    for path in ("/ui/", "/ui/assets/index.html", "/metrics"):
        answer = get(named, path, Origin=ORIGIN)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert preflight(named, path, method="GET").status_code == 405


def test_strange_names_of_headers_are_not_echoed(named: RunningServer) -> None:
    answer = preflight(named, PATH, asks="x-a: b, <script>")
    assert answer.headers["access-control-allow-headers"] == ""


def test_without_a_list_nothing_is_shared(server: RunningServer) -> None:
    answer = get(server, PATH, Origin=ORIGIN, **bearer(server.token()))
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert preflight(server, PATH).status_code == 405
