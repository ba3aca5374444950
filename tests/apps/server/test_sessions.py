"""Signing in, what a cookie is good for, and how a session ends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from tests.apps.server.people import cookie_headers, cookie_of, session_headers, sign_in
from tests.support.server import RunningServer, bearer, running_server

from holdfast.adapters.store import SESSION_IDLE, SignedInSession, TokenScope
from holdfast.apps.server.sessions import MAX_SESSIONS, PERSON_SESSION_LIFE, TOKEN_SESSION_LIFE
from holdfast.core import tokens

WORKLOADS = "/api/projects/acme/workloads"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    limits = {"recheck_time": 0.1}
    with running_server(tmp_path, run=False, limits=limits) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=20) as client:
        yield client


def put_session(server: RunningServer, **changes: object) -> str:
    """Keep a session as if it had been begun otherwise; return its cookie."""
    minted = tokens.mint(tokens.SESSION_KIND, os.urandom(32))
    parsed = tokens.parse(server.token("acme"))
    assert parsed
    now = datetime.now(UTC)
    session = SignedInSession(
        id=minted.id,
        secret_hash=minted.secret_hash,
        created_at=now,
        last_seen=now,
        expires_at=now + TOKEN_SESSION_LIFE,
        token_id=parsed.id,
    )
    with server.admin() as store:
        store.write(
            lambda tx: tx.create_session(replace(session, **changes), limit=MAX_SESSIONS)  # type: ignore[arg-type]
        )
    return minted.secret.reveal()


def test_a_token_signs_in_and_the_session_may_do_what_the_token_may(
    server: RunningServer, http: httpx2.Client
) -> None:
    token = server.token("acme", [TokenScope.READ], name="ann")
    made = http.post("/api/sessions", json={"token": token})
    assert made.status_code == 201
    me = made.json()
    assert (me["name"], me["kind"]) == ("ann", "token")
    assert me["projects"] == [{"project": "acme", "scopes": ["read"]}]
    assert me["server"]["features"] == ["workloads", "data-plane"]
    assert token not in made.text
    headers = cookie_headers(cookie_of(made))
    assert http.get("/api/me", headers=headers).json() == me
    assert http.get(WORKLOADS, headers=headers).status_code == 200
    refused = http.post(WORKLOADS, json={}, headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (403, "scope_insufficient")


def test_the_cookie_is_kept_from_scripts_and_other_sites(server: RunningServer) -> None:
    made = httpx2.post(f"{server.url}/api/sessions", json={"token": server.token("acme")})
    (header,) = made.headers.get_list("set-cookie")
    attributes = {part.strip() for part in header.split(";")[1:]}
    seconds = int(TOKEN_SESSION_LIFE.total_seconds())
    assert attributes == {"Path=/", "HttpOnly", "SameSite=Lax", f"Max-Age={seconds}"}
    assert made.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in made.headers["content-security-policy"]
    assert made.headers["cache-control"] == "no-store"


def test_where_browsers_come_by_tls_the_cookie_is_secure_and_of_this_host_alone(
    tmp_path: Path,
) -> None:
    with running_server(tmp_path, run=False, base_url="https://holdfast.example.com") as server:
        token = server.token("acme")
        made = httpx2.post(f"{server.url}/api/sessions", json={"token": token})
        (header,) = made.headers.get_list("set-cookie")
        assert header.startswith("__Host-holdfast=ik_ui_")
        assert {"Secure", "Path=/", "HttpOnly"} <= {part.strip() for part in header.split(";")}
        assert "Domain" not in header
        cookie = cookie_of(made, name="__Host-holdfast")
        good, plain = f"__Host-holdfast={cookie}", f"holdfast={cookie}"
        get = f"{server.url}/api/me"
        assert httpx2.get(get, headers={"Cookie": good}).status_code == 200
        assert httpx2.get(get, headers={"Cookie": plain}).status_code == 401
        link = httpx2.post(f"{server.url}/api/sign-in-links", headers=bearer(token)).json()
        assert link["url"].startswith("https://holdfast.example.com/ui/login#code=ik_link_")


def test_the_store_and_the_log_have_no_cookie_and_no_code(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False, process=True, log_level="debug") as server:
        token = server.token("acme")
        code = httpx2.post(f"{server.url}/api/sign-in-links", headers=bearer(token)).json()["url"]
        code = code.partition("code=")[2]
        made = httpx2.post(f"{server.url}/api/sessions", json={"code": code})
        cookie = cookie_of(made)
        assert httpx2.get(f"{server.url}/api/me?x={cookie}").status_code == 401
        log = server.log
    assert log is not None
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert server.db in files
    for secret in (cookie, code, token):
        assert [each for each in files if secret[-40:].encode() in each.read_bytes()] == []


@pytest.mark.parametrize("body", [{}, {"token": "ik_sdk_x", "code": "y"}, {"tokens": "x"}])
def test_a_sign_in_names_one_credential(http: httpx2.Client, body: dict[str, str]) -> None:
    assert http.post("/api/sessions", json=body).status_code == 400


def test_a_data_key_does_not_sign_in(server: RunningServer, http: httpx2.Client) -> None:
    from tests.apps.server.api import body

    http.post(WORKLOADS, json=body("bot"), headers=bearer(server.token("acme")))
    refused = http.post("/api/sessions", json={"token": server.data_key("acme", "bot")})
    assert (refused.status_code, refused.json()["error"]) == (403, "wrong_credential_type")
    assert "set-cookie" not in refused.headers


# Links.


def test_a_link_signs_in_once(server: RunningServer, http: httpx2.Client) -> None:
    made = http.post("/api/sign-in-links", headers=bearer(server.token("acme", name="ann")))
    link = made.json()
    assert made.status_code == 201
    assert link["url"].startswith(f"{server.url}/ui/login#code=")
    left = datetime.fromisoformat(link["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)
    code = link["url"].partition("code=")[2]
    first = http.post("/api/sessions", json={"code": code})
    assert (first.status_code, first.json()["name"]) == (201, "ann")
    second = http.post("/api/sessions", json={"code": code})
    assert (second.status_code, second.json()["error"]) == (401, "unauthenticated")


def test_a_link_is_no_bearer_token_and_a_cookie_neither(
    server: RunningServer, http: httpx2.Client
) -> None:
    token = server.token("acme")
    code = http.post("/api/sign-in-links", headers=bearer(token)).json()["url"].partition("=")[2]
    for value in (code, sign_in(server, token)):
        assert http.get("/api/me", headers=bearer(value)).status_code == 401
        assert http.post("/api/sessions", json={"token": value}).status_code == 401


def link_code(server: RunningServer, token: str, **headers: str) -> str:
    """Have a link made; return its code."""
    made = httpx2.post(f"{server.url}/api/sign-in-links", headers=bearer(token) | headers)
    assert made.status_code == 201, made.text
    return str(made.json()["url"].partition("code=")[2])


def test_a_link_takes_no_session_over_before_that_is_confirmed(server: RunningServer) -> None:
    """Else whoever holds a token has a victim, who is signed in, act in the holder's name."""
    victim = session_headers(server, server.token("acme", name="victim"))
    code = link_code(server, server.token("acme", name="attacker"))
    url = f"{server.url}/api/sessions"
    asked = httpx2.post(url, json={"code": code}, headers=victim)
    assert (asked.status_code, asked.json()["error"]) == (409, "confirmation_needed")
    assert "attacker" in asked.json()["message"]
    assert "in place of victim" in asked.json()["message"]
    assert "set-cookie" not in asked.headers
    assert httpx2.get(f"{server.url}/api/me", headers=victim).json()["name"] == "victim"
    confirmed = httpx2.post(url, json={"code": code, "confirmed": True}, headers=victim)
    assert (confirmed.status_code, confirmed.json()["name"]) == (201, "attacker")


@pytest.mark.parametrize("far", [{"X-Forwarded-For": "192.0.2.7"}, {"Host": "holdfast.lan"}])
@pytest.mark.parametrize("side", ["made", "opened"])
def test_a_link_from_beyond_this_machine_is_confirmed_also_where_nobody_is_signed_in(
    tmp_path: Path, far: dict[str, str], side: str
) -> None:
    """A token's holder elsewhere could send it to anybody: only here one is known to be near."""
    base = "https://holdfast.lan"
    with running_server(tmp_path, run=False, base_url=base) as server:
        token = server.token("acme", name="ann")
        code = link_code(server, token, **(far if side == "made" else {}))
        headers = far if side == "opened" else {}
        url = f"{server.url}/api/sessions"
        asked = httpx2.post(url, json={"code": code}, headers=headers)
        assert (asked.status_code, asked.json()["error"]) == (409, "confirmation_needed")
        assert "ann" in asked.json()["message"]
        body = {"code": code, "confirmed": True}
        assert httpx2.post(url, json=body, headers=headers).status_code == 201
        assert httpx2.post(url, json=body, headers=headers).status_code == 401


def test_a_server_that_others_reach_has_every_link_confirmed(tmp_path: Path) -> None:
    """Behind a forwarded port everybody comes from this machine, by one of its names."""
    with running_server(tmp_path, run=False, host="0.0.0.0") as server:  # noqa: S104  # the point
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # the same
        code = link_code(server, server.token("acme"))
        asked = httpx2.post(f"{server.url}/api/sessions", json={"code": code})
        assert (asked.status_code, asked.json()["error"]) == (409, "confirmation_needed")


def test_no_link_is_made_that_could_sign_nobody_in(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False, base_url="http://holdfast.lan") as server:
        url = f"{server.url}/api/sign-in-links"
        refused = httpx2.post(url, headers=bearer(server.token("acme")))
        assert (refused.status_code, refused.json()["error"]) == (403, "insecure_transport")


def test_a_link_of_a_token_that_was_revoked_meanwhile_signs_nobody_in(
    server: RunningServer, http: httpx2.Client
) -> None:
    token = server.token("acme", name="gone")
    code = http.post("/api/sign-in-links", headers=bearer(token)).json()["url"].partition("=")[2]
    server.revoke(token)
    assert http.post("/api/sessions", json={"code": code}).status_code == 401


def test_a_link_that_is_too_old_signs_nobody_in() -> None:
    from holdfast.apps.server.sessions import LINK_SECONDS, SignInLink, SignInLinks

    now = [0.0]
    links = SignInLinks(lambda: now[0])
    code, late = links.create("a", local=False), links.create("b", local=True)
    now[0] = LINK_SECONDS - 0.1
    assert links.find(code) == SignInLink(token_id="a", ends=LINK_SECONDS, local=False)
    now[0] = LINK_SECONDS
    assert links.find(late) is None


# What ends a session.


def test_a_stolen_cookie_is_worthless_after_its_owner_signed_out(
    server: RunningServer, http: httpx2.Client
) -> None:
    headers = session_headers(server, server.token("acme"))
    other = session_headers(server, server.token("acme"))
    left = http.delete("/api/sessions/current", headers=headers)
    assert left.status_code == 204
    assert left.headers["set-cookie"].startswith("holdfast=; Path=/; Max-Age=0")
    assert http.get("/api/me", headers=headers).status_code == 401
    assert http.get("/api/me", headers=other).status_code == 200


def test_signing_in_again_ends_the_session_that_the_browser_had(
    server: RunningServer, http: httpx2.Client
) -> None:
    first = session_headers(server, server.token("acme", name="first"))
    second = server.token("acme", name="second")
    again = http.post("/api/sessions", json={"token": second}, headers=first)
    assert again.status_code == 201
    assert http.get("/api/me", headers=first).status_code == 401
    assert http.get("/api/me", headers=cookie_headers(cookie_of(again))).status_code == 200


def test_a_sign_in_that_is_refused_ends_no_session(
    server: RunningServer, http: httpx2.Client
) -> None:
    first = session_headers(server, server.token("acme"))
    assert http.post("/api/sessions", json={"token": "x"}, headers=first).status_code == 401
    assert http.get("/api/me", headers=first).status_code == 200


def test_the_sessions_of_a_revoked_token_end_with_it(
    server: RunningServer, http: httpx2.Client
) -> None:
    token = server.token("acme", name="short")
    headers = session_headers(server, token)
    assert http.get("/api/me", headers=headers).status_code == 200
    server.revoke(token)
    assert http.get("/api/me", headers=headers).status_code == 401
    with server.admin() as store:
        parsed = tokens.parse(token)
        assert parsed
        assert store.sessions(token_id=parsed.id) == []


def test_a_session_ends_no_later_than_its_token(server: RunningServer, http: httpx2.Client) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    headers = session_headers(server, server.token("acme", name="soon", expires_at=soon))
    me = http.get("/api/me", headers=headers).json()
    assert datetime.fromisoformat(me["session"]["expires_at"]) <= soon + timedelta(seconds=1)
    while datetime.now(UTC) < soon:
        pass
    assert http.get("/api/me", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"last_seen": datetime.now(UTC) - SESSION_IDLE}, id="unused for too long"),
        pytest.param({"expires_at": datetime.now(UTC)}, id="too old, however much it was used"),
    ],
)
def test_a_session_expires(
    server: RunningServer, http: httpx2.Client, changes: dict[str, object]
) -> None:
    assert http.get("/api/me", headers=cookie_headers(put_session(server))).status_code == 200
    refused = http.get("/api/me", headers=cookie_headers(put_session(server, **changes)))
    assert refused.status_code == 401
    assert "The session has expired" in refused.json()["message"]


def test_a_session_that_is_used_does_not_expire_by_idleness(
    server: RunningServer, http: httpx2.Client
) -> None:
    before = datetime.now(UTC) - SESSION_IDLE + timedelta(minutes=1)
    headers = cookie_headers(put_session(server, last_seen=before))
    assert http.get("/api/me", headers=headers).status_code == 200
    for _ in range(100):
        (found,) = http.get("/api/sessions", headers=headers).json()["sessions"]
        if datetime.fromisoformat(found["last_seen"]) > before:
            return
    raise AssertionError("its use was not noted")


def test_a_persons_session_is_shorter_than_a_tokens() -> None:
    """Nobody asks the issuer in between, while a token is looked up at each request."""
    assert PERSON_SESSION_LIFE < TOKEN_SESSION_LIFE


def test_an_open_stream_ends_with_its_session(server: RunningServer, http: httpx2.Client) -> None:
    headers = session_headers(server, server.token("acme"))
    with http.stream("GET", "/api/projects/acme/events", headers=headers) as stream:
        assert stream.status_code == 200
        with httpx2.Client(base_url=server.url) as other:
            assert other.delete("/api/sessions/current", headers=headers).status_code == 204
        assert b"data:" not in b"".join(stream.iter_bytes())  # it came to its end


def test_one_sees_and_ends_ones_own_sessions_alone(
    server: RunningServer, http: httpx2.Client
) -> None:
    mine, theirs = server.token("acme", name="mine"), server.token("acme", name="theirs")
    first, second = session_headers(server, mine), session_headers(server, mine)
    foreign = session_headers(server, theirs)
    listed = http.get("/api/sessions", headers=first).json()["sessions"]
    assert [each["current"] for each in listed] == [True, False]
    assert {each["peer"] for each in listed} == {"127.0.0.1"}
    (other,) = http.get("/api/sessions", headers=foreign).json()["sessions"]
    assert http.delete(f"/api/sessions/{other['id']}", headers=first).status_code == 404
    assert http.get("/api/me", headers=foreign).status_code == 200
    assert http.delete(f"/api/sessions/{listed[1]['id']}", headers=first).status_code == 204
    assert http.get("/api/me", headers=second).status_code == 401
    assert http.get("/api/me", headers=first).status_code == 200
    assert len(http.get("/api/sessions", headers=bearer(mine)).json()["sessions"]) == 1


def test_a_token_has_no_more_sessions_than_a_few(
    server: RunningServer, http: httpx2.Client
) -> None:
    token = server.token("acme")
    every = [session_headers(server, token) for _ in range(MAX_SESSIONS + 1)]
    assert http.get("/api/me", headers=every[0]).status_code == 401
    assert http.get("/api/me", headers=every[1]).status_code == 200
    assert len(http.get("/api/sessions", headers=bearer(token)).json()["sessions"]) == MAX_SESSIONS


# Other sites, other cookies.


def test_a_cookie_counts_only_where_there_is_no_authorization_header(
    server: RunningServer, http: httpx2.Client
) -> None:
    headers = session_headers(server, server.token("acme"))
    assert http.get("/api/me", headers=headers | bearer("nothing")).status_code == 401


def test_a_cookie_that_somebody_else_set_before_is_not_taken_up(
    server: RunningServer, http: httpx2.Client
) -> None:
    """Session fixation: whoever plants a cookie must not be signed in by its victim."""
    planted = tokens.mint(tokens.SESSION_KIND, os.urandom(32)).secret.reveal()
    given = {"Cookie": f"holdfast={planted}"}
    made = http.post("/api/sessions", json={"token": server.token("acme")}, headers=given)
    assert made.status_code == 201
    assert cookie_of(made) != planted
    assert http.get("/api/me", headers=cookie_headers(planted)).status_code == 401
    own = sign_in(server, server.token("acme"))
    both = {"Cookie": f"holdfast={planted}; holdfast={own}"}
    assert http.get("/api/me", headers=both).status_code == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"Holdfast-CSRF": None},
        {"Holdfast-CSRF": "0"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": None},
        {"Sec-Fetch-Site": None, "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": None, "Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "OWN"},
    ],
    ids=str,
)
def test_a_write_that_another_site_has_a_browser_send_changes_nothing(
    server: RunningServer, http: httpx2.Client, changed: dict[str, str | None]
) -> None:
    from tests.apps.server.api import body

    headers: dict[str, str] = session_headers(server, server.token("acme"))
    for name, value in changed.items():
        headers.pop(name, None)
        if value is not None:
            headers[name] = server.url if value == "OWN" else value
    refused = http.post(WORKLOADS, json=body("bot"), headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (403, "cross_site")
    assert http.get(WORKLOADS, headers=bearer(server.token("acme"))).json()["workloads"] == []


def test_a_write_of_our_own_page_is_done_also_where_only_the_origin_says_so(
    server: RunningServer, http: httpx2.Client
) -> None:
    from tests.apps.server.api import body

    headers = session_headers(server, server.token("acme", name="ann"))
    del headers["Sec-Fetch-Site"]
    headers["Origin"] = server.url
    made = http.post(WORKLOADS, json=body("bot"), headers=headers)
    assert made.status_code == 201
    history = http.get("/api/projects/acme/history", headers=headers).json()["history"]
    writer = next(each["writer"] for each in history if each["action"] == "created")
    assert (writer["manager"], writer["actor"]) == ("holdfast-ui", "ann")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_reads_nothing_by_our_cookie(
    server: RunningServer, http: httpx2.Client, site: str
) -> None:
    headers = session_headers(server, server.token("acme")) | {"Sec-Fetch-Site": site}
    assert http.get("/api/me", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}], ids=str
)
def test_another_site_cannot_sign_a_browser_in(
    server: RunningServer, http: httpx2.Client, headers: dict[str, str]
) -> None:
    """Else a victim would work, unknowingly, in the attacker's name."""
    refused = http.post("/api/sessions", json={"token": server.token("acme")}, headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (403, "cross_site")


def test_many_sign_ins_by_one_token_are_slowed_down_and_those_of_others_are_not(
    tmp_path: Path,
) -> None:
    with running_server(tmp_path, run=False, limits={"sign_in_rate": 0.1}) as server:
        one, other = server.token("acme", name="one"), server.token("acme", name="other")
        answers = [
            httpx2.post(f"{server.url}/api/sessions", json={"token": token})
            for token in (one, one, other)
        ]
    assert [each.status_code for each in answers] == [201, 429, 201]
    assert int(answers[1].headers["retry-after"]) >= 1


def test_who_guesses_behind_the_same_proxy_locks_nobody_out(tmp_path: Path) -> None:
    limits = {"sign_in_rate": 0.1, "failure_rate": 0.1}
    with running_server(tmp_path, run=False, limits=limits) as server:
        url = f"{server.url}/api/sessions"
        for guess in ({"token": "x"}, {"code": "x"}):
            codes = {httpx2.post(url, json=guess).status_code for _ in range(5)}
            assert 429 in codes
        one, other = server.token("acme", name="one"), server.token("acme", name="other")
        assert httpx2.post(url, json={"token": one}).status_code == 201
        assert httpx2.post(url, json={"code": link_code(server, other)}).status_code == 201


def test_no_session_is_begun_in_the_clear_beyond_this_machine(tmp_path: Path) -> None:
    """The peer is this machine in a test, so the name by which it was asked tells."""
    with running_server(tmp_path, run=False, host="0.0.0.0") as server:  # noqa: S104  # the point
        url = server.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # the same
        body = {"token": server.token("acme")}
        far = httpx2.post(f"{url}/api/sessions", json=body, headers={"Host": "holdfast.lan"})
        assert (far.status_code, far.json()["error"]) == (403, "insecure_transport")
        assert "set-cookie" not in far.headers
        assert httpx2.post(f"{url}/api/sessions", json=body).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "holdfast.corp.example"},
        {"X-Forwarded-Proto": "http"},
        {"X-Forwarded-For": "192.0.2.7"},
        {"Forwarded": "for=192.0.2.7;proto=http"},
        {"Via": "1.1 proxy"},
    ],
    ids=str,
)
def test_behind_a_proxy_without_tls_no_cookie_crosses_the_network(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """It listens on loopback, and so is every peer: the proxy."""
    base = "http://holdfast.corp.example"
    with running_server(tmp_path, run=False, base_url=base) as server:
        body = {"token": server.token("acme")}
        url = f"{server.url}/api/sessions"
        far = httpx2.post(url, json=body, headers=headers)
        assert (far.status_code, far.json()["error"]) == (403, "insecure_transport")
        assert "set-cookie" not in far.headers
        near = httpx2.post(url, json=body)
        assert near.status_code == 201
        cookie = cookie_headers(cookie_of(near))
        assert httpx2.get(f"{server.url}/api/me", headers=cookie).status_code == 200
        assert httpx2.get(f"{server.url}/api/me", headers=cookie | headers).status_code == 401


def test_what_can_be_offered_is_told_to_anybody(http: httpx2.Client) -> None:
    answer = http.get("/api/login")
    from holdfast.version import __version__

    assert answer.json() == {"openid": [], "token": True, "version": __version__}


def test_a_store_of_before_keeps_its_tokens_and_can_be_signed_in_to(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False) as server:
        token = server.token("acme")
        db = server.db
    with closing(sqlite3.connect(db)) as database:
        database.executescript(
            "DROP TABLE sessions; DROP TABLE token_owners; PRAGMA user_version = 2"
        )
    with running_server(tmp_path, run=False) as server:
        headers = session_headers(server, token)
        assert httpx2.get(f"{server.url}/api/me", headers=headers).status_code == 200
        with server.admin() as store:
            assert store.check() == []


def test_a_session_that_was_ended_does_not_come_back_with_a_backup(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False) as server:
        headers = session_headers(server, server.token("acme"))
        db = server.db
    before = db.read_bytes()
    with running_server(tmp_path, run=False) as server:
        gone = httpx2.delete(f"{server.url}/api/sessions/current", headers=headers)
        assert gone.status_code == 204
    db.write_bytes(before)
    with running_server(tmp_path, run=False, accept_rollback=True) as server:
        assert httpx2.get(f"{server.url}/api/me", headers=headers).status_code == 401
