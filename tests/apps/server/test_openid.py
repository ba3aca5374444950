"""Signing in at an issuer: what it takes, and every way in which it must not work."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from tests.apps.server.api import body
from tests.apps.server.people import cookie_headers, cookie_of
from tests.support.issuer import CLIENT, SECRET, Issuer, make_key, running_issuer
from tests.support.server import RunningServer, bearer, running_server

from holdfast.apps.server.identities import LOGIN_SECONDS, LoginStates, is_own_page
from holdfast.core.errors import ConfigurationError

ERROR = "/ui/login#error={}"


@pytest.fixture(scope="module")
def shared_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(shared_issuer: Issuer) -> Issuer:
    fresh = Issuer()
    for name in ("claims", "tamper", "forge", "metadata"):
        setattr(shared_issuer, name, getattr(fresh, name))
    return shared_issuer


def people_file(folder: Path, issuer: str, **more: Any) -> Path:
    """Write a people file with one issuer, at which the group reviewers may approve."""
    secret = folder / "client-secret"
    secret.write_text(f"{SECRET}\n")
    rules = [
        {"claim": "groups", "value": "reviewers", "project": "acme", "scopes": ["approve"]},
        {"claim": "groups", "value": "writers", "project": "acme", "scopes": ["write"]},
        {"claim": "email", "value": "ann@example.com", "project": "other", "scopes": ["read"]},
    ]
    provider = {
        "id": "own",
        "name": "Our issuer",
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret": {"file": str(secret)},
        "rules": rules,
        **more,
    }
    path = folder / "people.yaml"
    path.write_text(json.dumps({"openid": [provider]}))
    return path


@pytest.fixture(scope="module")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory, shared_issuer: Issuer
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("openid")
    people = people_file(folder, shared_issuer.url)
    limits = {"sign_in_rate": 1e6, "failure_rate": 1e6}
    with running_server(folder, run=False, people=people, limits=limits) as server:
        server.token("acme")
        yield server


@pytest.fixture
def server(shared_server: RunningServer, issuer: Issuer) -> RunningServer:
    issuer.claims = {"sub": "7", "name": "Ann", "groups": ["reviewers", "readers"]}
    return shared_server


OPENED: list[httpx2.Client] = []


@pytest.fixture(autouse=True)
def closed_browsers() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


class Browser:
    """Follows redirections and keeps cookies, by hand."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = httpx2.Client(base_url=server.url)
        OPENED.append(self.http)

    def begin(self, query: str = "") -> httpx2.Response:
        """Go to the issuer; return where it sends us back to, unopened."""
        return self.http.get(f"/api/openid/own/login{query}")

    def come_back(self, query: str = "") -> str:
        """Sign in up to the issuer's redirection, and return that."""
        begun = self.begin(query)
        assert begun.status_code == 302, begun.text
        return str(httpx2.get(begun.headers["location"]).headers["location"])

    def sign_in(self, query: str = "") -> httpx2.Response:
        return self.http.get(self.come_back(query))

    def me(self) -> httpx2.Response:
        return self.http.get("/api/me")


@pytest.fixture
def browser(server: RunningServer) -> Browser:
    return Browser(server)


def assert_refused(browser: Browser, answer: httpx2.Response, code: str) -> None:
    """Nobody was let in, and the page is told why in a word."""
    assert (answer.status_code, answer.headers["location"]) == (302, ERROR.format(code))
    assert browser.me().status_code == 401


def test_a_person_signs_in_and_may_do_what_the_groups_say(
    browser: Browser, server: RunningServer, issuer: Issuer
) -> None:
    offered = browser.http.get("/api/login").json()["openid"]
    assert offered == [{"id": "own", "name": "Our issuer", "url": "/api/openid/own/login"}]
    answer = browser.sign_in("?next=/ui/p/acme/inbox")
    assert (answer.status_code, answer.headers["location"]) == (302, "/ui/p/acme/inbox")
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    me = browser.me().json()
    assert (me["name"], me["kind"], me["issuer"], me["subject"]) == (
        "Ann",
        "person",
        issuer.url,
        "7",
    )
    assert me["projects"] == [{"project": "acme", "scopes": ["read", "approve"]}]
    assert "token" not in me
    assert browser.http.get("/api/projects/acme/workloads").status_code == 200
    write = {"Holdfast-CSRF": "1", "Sec-Fetch-Site": "same-origin"}
    refused = browser.http.post("/api/projects/acme/workloads", json=body("bot"), headers=write)
    assert (refused.status_code, refused.json()["error"]) == (403, "scope_insufficient")
    other = browser.http.get("/api/projects/other/workloads")
    assert (other.status_code, other.json()["error"]) == (403, "project_scope_mismatch")


def test_a_person_in_two_projects_changes_each_by_its_own_rights(
    browser: Browser, server: RunningServer, issuer: Issuer
) -> None:
    issuer.claims |= {"groups": ["writers"], "email": "ann@example.com", "email_verified": True}
    uid = {}
    for project in ("acme", "other"):
        made = httpx2.post(
            f"{server.url}/api/projects/{project}/workloads",
            json=body("bot"),
            headers=bearer(server.token(project)),
        )
        uid[project] = made.json()["id"]
    browser.sign_in()
    me = browser.me().json()
    assert [each["project"] for each in me["projects"]] == ["acme", "other"]
    assert me["email"] == "ann@example.com"
    write = {"Holdfast-CSRF": "1", "Sec-Fetch-Site": "same-origin"}
    codes = [
        browser.http.patch(
            f"/api/workloads/{uid[project]}", json={"description": "x"}, headers=write
        )
        for project in ("acme", "other")
    ]
    assert [each.status_code for each in codes] == [200, 403]
    for named, status in (("acme", 200), ("other", 403), ("third", 403)):
        answer = browser.http.patch(
            f"/api/workloads/{uid['acme']}",
            json={"description": named},
            headers={**write, "Holdfast-Project": named},
        )
        assert answer.status_code == status, named
    history = browser.http.get("/api/projects/acme/history").json()["history"]
    writer = next(each["writer"] for each in history if each["action"] == "updated")
    assert writer["actor"] == f"Ann ({issuer.url}|7)"


def test_an_address_that_was_not_verified_is_nobodys(browser: Browser, issuer: Issuer) -> None:
    issuer.claims = {"sub": "8", "email": "ann@example.com", "email_verified": False}
    assert_refused(browser, browser.sign_in(), "no_access")
    issuer.claims = {"sub": "8", "email": "ann@example.com"}
    assert_refused(browser, browser.sign_in(), "no_access")


def test_who_is_in_no_rule_is_not_let_in(browser: Browser, issuer: Issuer) -> None:
    issuer.claims = {"sub": "9", "groups": ["strangers"]}
    assert_refused(browser, browser.sign_in(), "no_access")


def test_a_person_sees_and_ends_all_of_their_sessions(
    browser: Browser, server: RunningServer
) -> None:
    browser.sign_in()
    second = Browser(server)
    second.sign_in()
    sessions = browser.http.get("/api/sessions").json()["sessions"]
    assert [each["current"] for each in sessions[-2:]] == [True, False]
    write = {"Holdfast-CSRF": "1", "Sec-Fetch-Site": "same-origin"}
    gone = browser.http.delete(f"/api/sessions/{sessions[-1]['id']}", headers=write)
    assert gone.status_code == 204
    assert (browser.me().status_code, second.me().status_code) == (200, 401)
    refused = browser.http.post("/api/sign-in-links", headers=write)
    assert (refused.status_code, refused.json()["error"]) == (403, "wrong_credential_type")


def test_a_rule_that_was_taken_away_counts_from_the_next_start_on(
    tmp_path: Path, issuer: Issuer
) -> None:
    """A session keeps what the issuer said, and not what it was good for."""
    issuer.claims = {"sub": "7", "name": "Ann", "groups": ["reviewers", "writers"]}
    people = people_file(tmp_path, issuer.url)
    with running_server(tmp_path, run=False, people=people) as server:
        browser = Browser(server)
        browser.sign_in()
        cookie = browser.http.cookies["holdfast"]
        assert browser.me().json()["projects"][0]["scopes"] == ["read", "write", "approve"]
    rule = {"claim": "groups", "value": "writers", "project": "acme", "scopes": ["write"]}
    people_file(tmp_path, issuer.url, rules=[rule])
    with running_server(tmp_path, run=False, people=people) as server:
        me = httpx2.get(f"{server.url}/api/me", headers=cookie_headers(cookie)).json()
        assert me["projects"] == [{"project": "acme", "scopes": ["read", "write"]}]


# The way there and back.


def test_the_issuer_is_asked_with_state_nonce_and_a_hidden_verifier(
    browser: Browser, server: RunningServer
) -> None:
    first, second = (dict(parse_qsl(urlsplit(b.headers["location"]).query)) for b in (
        browser.begin(), browser.begin(),
    ))  # fmt: skip
    assert first["redirect_uri"] == f"{server.url}/api/openid/own/callback"
    assert (first["response_type"], first["code_challenge_method"]) == ("code", "S256")
    assert first["scope"] == "openid profile email"
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) >= 32
        assert first[name] != second[name]


@pytest.mark.parametrize(
    "next",
    [
        "https://evil.example/",
        "//evil.example/ui/",
        "/\\evil.example",
        "/ui",
        "/api/me",
        "/ui/../api/me",
        "/ui/%2e%2e/api",
        "/ui//evil.example",
        "/ui/\r\nSet-Cookie: x=y",
        "javascript:alert(1)",
        "/ui/%2E./api",
        "/ui/@evil.example",
        "",
        "/ui/" + "x" * 1_000,
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(browser: Browser, next: str) -> None:
    assert not is_own_page(next)
    answer = browser.sign_in(f"?{urlencode({'next': next})}")
    assert (answer.status_code, answer.headers["location"]) == (302, "/ui/")


@pytest.mark.parametrize(
    "next",
    [
        "/ui/",
        "/ui/p/acme/drifts/drf-1",
        "/ui/p/a/inbox?q=a%20b&x=1",
        "/ui/p/a/inbox?q=foo*",
        "/ui/p/a/plans/sha256:0a1b",
        "/ui/p/a/plans/sha256%3A0a1b",
        "/ui/p/a/applications/team.shop?tab=diff",
    ],
)
def test_a_page_of_ours_may_come_next(browser: Browser, next: str) -> None:
    assert is_own_page(next)
    answer = browser.sign_in(f"?{urlencode({'next': next})}")
    assert answer.headers["location"] == next


def test_a_code_brought_to_another_browser_signs_nobody_in(
    browser: Browser, server: RunningServer
) -> None:
    """Login CSRF: the victim would work in the attacker's name."""
    back = browser.come_back()
    victim = Browser(server)
    assert_refused(victim, victim.http.get(back), "login_expired")
    victim.begin()
    assert_refused(victim, victim.http.get(back), "login_expired")


def test_a_state_is_used_once(browser: Browser, server: RunningServer) -> None:
    back = browser.come_back()
    kept = dict(browser.http.cookies)
    assert browser.http.get(back).headers["location"] == "/ui/"
    thief = Browser(server)
    thief.http.cookies.update({"holdfast-login": kept["holdfast-login"]})
    assert_refused(thief, thief.http.get(back), "login_expired")


def test_a_sign_in_that_took_too_long_is_over() -> None:
    now = [1000.0]
    states = LoginStates(lambda: now[0])
    login, cookie = states.begin("own", "/ui/")
    now[0] += LOGIN_SECONDS
    assert states.take(cookie, provider="own", state=login.state) is None


@pytest.mark.parametrize("change", ["", "other.cookie", "a.b", "é.é", "x" * 10_000])
def test_a_cookie_that_was_made_up_is_none(change: str) -> None:
    states = LoginStates(time.time)
    login, cookie = states.begin("own", "/ui/")
    assert states.take(change, provider="own", state=login.state) is None
    assert states.take(cookie + "x", provider="own", state=login.state) is None
    assert states.take(cookie, provider="second", state=login.state) is None
    assert LoginStates(time.time).take(cookie, provider="own", state=login.state) is None
    assert states.take(cookie, provider="own", state=login.state) == login


def test_a_person_who_says_no_at_the_issuer_is_not_let_in(browser: Browser) -> None:
    begun = browser.begin()
    state = dict(parse_qsl(urlsplit(begun.headers["location"]).query))["state"]
    answer = browser.http.get(
        "/api/openid/own/callback", params={"error": "access_denied", "state": state}
    )
    assert_refused(browser, answer, "login_refused")


def test_an_answer_of_another_issuer_is_refused(browser: Browser) -> None:
    back = browser.come_back()
    answer = browser.http.get(f"{back}&iss=https%3A%2F%2Fevil.example")
    assert_refused(browser, answer, "identity_refused")


def test_a_session_that_was_there_before_is_not_taken_over(
    browser: Browser, server: RunningServer
) -> None:
    """Session fixation, at the issuer's way in."""
    attacker = Browser(server)
    attacker.sign_in()
    planted = attacker.http.cookies["holdfast"]
    browser.http.cookies.set("holdfast", planted)
    answer = browser.sign_in()
    assert cookie_of(answer) != planted


def test_signing_in_again_ends_the_session_that_the_browser_had(
    browser: Browser, server: RunningServer
) -> None:
    browser.sign_in()
    before = cookie_headers(browser.http.cookies["holdfast"])
    browser.sign_in()
    assert browser.me().status_code == 200
    assert httpx2.get(f"{server.url}/api/me", headers=before).status_code == 401


def test_a_sign_in_that_fails_leaves_the_session_that_there_was(
    browser: Browser, issuer: Issuer
) -> None:
    browser.sign_in()
    issuer.claims = {"sub": "9", "groups": ["strangers"]}
    assert browser.sign_in().headers["location"] == ERROR.format("no_access")
    assert browser.me().json()["subject"] == "7"


def test_who_begins_sign_ins_without_end_locks_nobody_out(tmp_path: Path, issuer: Issuer) -> None:
    """Behind a proxy every browser has one address."""
    issuer.claims = {"sub": "7", "groups": ["writers"]}
    people = people_file(tmp_path, issuer.url)
    limits = {"sign_in_rate": 0.1, "failure_rate": 0.1}
    with running_server(tmp_path, run=False, people=people, limits=limits) as server:
        flood = Browser(server)
        for _ in range(3):
            back = flood.begin().headers["location"]
            state = dict(parse_qsl(urlsplit(back).query))["state"]
            made_up = {"code": "x", "state": state}
            flood.http.get("/api/openid/own/callback", params=made_up)
        assert Browser(server).sign_in().headers["location"] == "/ui/"
        again = Browser(server).sign_in()
        assert (again.status_code, again.json()["error"]) == (429, "rate_limited")


def test_an_unknown_provider_is_not_there(browser: Browser) -> None:
    assert browser.http.get("/api/openid/none/login").status_code == 404
    assert browser.http.get("/api/openid/none/callback?state=x&code=y").status_code == 404


# Tokens that are not what they seem.


def b64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    return lambda claims: f"{b64({'alg': 'none'})}.{b64(claims)}."


def unsigned_with_kid(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    return lambda claims: f"{b64({'alg': 'none', 'kid': 'first'})}.{b64(claims)}."


def signed_with_the_public_key(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    """The classic: the public key, taken as a shared secret."""
    import hashlib
    import hmac

    pem = issuer.key.as_pem(private=False)

    def forge(claims: dict[str, Any]) -> str:
        head = f"{b64({'alg': 'HS256', 'kid': 'first'})}.{b64(claims)}"
        digest = hmac.new(pem, head.encode(), hashlib.sha256).digest()
        return f"{head}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    return forge


def signed_with_a_shared_secret(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    key = OctKey.import_key(SECRET)
    return lambda claims: jwt.encode({"alg": "HS256", "kid": "first"}, claims, key, ["HS256"])


def signed_by_somebody_else(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    key = make_key("first")
    return lambda claims: issuer.sign(claims, key=key)


def signed_by_an_unknown_key(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    key = make_key("unknown")
    return lambda claims: issuer.sign(claims, key=key)


def signed_by_the_key_it_brings(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    key = make_key("first")
    return lambda claims: issuer.sign(claims, key=key, jwk=key.as_dict(private=False))


def changed_afterwards(issuer: Issuer) -> Callable[[dict[str, Any]], str]:
    def forge(claims: dict[str, Any]) -> str:
        head, _, signature = issuer.sign(claims).split(".")
        return f"{head}.{b64({**claims, 'sub': '1'})}.{signature}"

    return forge


@pytest.mark.parametrize(
    "forger",
    [
        unsigned,
        unsigned_with_kid,
        signed_with_the_public_key,
        signed_with_a_shared_secret,
        signed_by_somebody_else,
        signed_by_an_unknown_key,
        signed_by_the_key_it_brings,
        changed_afterwards,
        lambda issuer: lambda claims: "not a token",
        lambda issuer: lambda claims: "e30.e30.e30",
        lambda issuer: lambda claims: "x" * 100_000,
    ],
)
def test_a_forged_token_lets_nobody_in(
    browser: Browser, issuer: Issuer, forger: Callable[[Issuer], Callable[[dict[str, Any]], str]]
) -> None:
    issuer.forge = forger(issuer)
    assert_refused(browser, browser.sign_in(), "identity_refused")


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": ["another-client", "third"]},
        {"aud": [CLIENT, "another-client"]},
        {"aud": [CLIENT, "another-client"], "azp": "another-client"},
        {"azp": "another-client"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_sign_in_lets_nobody_in(
    browser: Browser, issuer: Issuer, change: dict[str, object]
) -> None:
    def tamper(claims: dict[str, Any]) -> dict[str, Any]:
        changed = claims | change
        return {name: value for name, value in changed.items() if value is not None}

    issuer.tamper = tamper
    assert_refused(browser, browser.sign_in(), "identity_refused")


def test_a_token_for_several_that_was_issued_to_us_is_good(
    browser: Browser, issuer: Issuer
) -> None:
    issuer.tamper = lambda claims: claims | {"aud": [CLIENT, "api"], "azp": CLIENT}
    assert browser.sign_in().headers["location"] == "/ui/"


def test_a_token_of_an_earlier_sign_in_is_not_taken_for_this_one(
    browser: Browser, issuer: Issuer
) -> None:
    """A nonce that is replayed."""
    caught: list[str] = []

    def catch(claims: dict[str, Any]) -> str:
        caught.append(issuer.sign(claims))
        return caught[0]

    issuer.forge = catch
    assert browser.sign_in().headers["location"] == "/ui/"
    browser.http.cookies.clear()
    assert_refused(browser, browser.sign_in(), "identity_refused")


def test_a_new_key_of_the_issuer_is_asked_for_once_and_unknown_ones_not_again_and_again(
    tmp_path: Path,
) -> None:
    with running_issuer() as issuer:
        issuer.claims = {"sub": "7", "groups": ["writers"]}
        people = people_file(tmp_path, issuer.url)
        limits = {"sign_in_rate": 1e6}
        with running_server(tmp_path, run=False, people=people, limits=limits) as server:
            browser = Browser(server)
            assert browser.sign_in().headers["location"] == "/ui/"
            assert issuer.asked.count("/keys") == 1
            stranger = make_key("second")
            issuer.forge = lambda claims: issuer.sign(claims, key=stranger)
            for _ in range(5):
                assert browser.sign_in().headers["location"] == ERROR.format("identity_refused")
            assert issuer.asked.count("/keys") == 1  # asked a moment ago
            assert issuer.asked.count("/.well-known/openid-configuration") == 1


# Issuers that are not what they seem.


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"issuer": "https://evil.example"}, "issuer_unavailable"),
        ({"token_endpoint": "file:///etc/passwd"}, "issuer_unavailable"),
        ({"jwks_uri": "http://169.254.169.254/keys"}, "issuer_unavailable"),
        ({"jwks_uri": ""}, "issuer_unavailable"),
    ],
    ids=str,
)
def test_a_description_that_cannot_be_trusted_lets_nobody_in(
    tmp_path: Path, metadata: dict[str, str], code: str
) -> None:
    with running_issuer() as issuer:
        issuer.claims, issuer.metadata = {"sub": "7", "groups": ["writers"]}, metadata
        people = people_file(tmp_path, issuer.url)
        with running_server(tmp_path, run=False, people=people) as server:
            browser = Browser(server)
            begun = browser.begin()
            if begun.headers["location"].startswith(issuer.url):
                begun = browser.http.get(
                    str(httpx2.get(begun.headers["location"]).headers["location"])
                )
            assert_refused(browser, begun, code)


def test_an_issuer_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    people = people_file(tmp_path, "http://127.0.0.1:9")
    with running_server(tmp_path, run=False, people=people) as server:
        browser = Browser(server)
        assert_refused(browser, browser.begin(), "issuer_unavailable")
        token = server.token("acme")
        assert httpx2.get(f"{server.url}/api/me", headers=bearer(token)).status_code == 200


def test_secrets_are_in_no_answer_and_no_log(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        issuer.claims = {"sub": "7", "groups": ["writers"]}
        people = people_file(tmp_path, issuer.url)
        config = {"people": people, "log_level": "debug", "process": True}
        with running_server(tmp_path, run=False, **config) as server:
            browser = Browser(server)
            back = browser.come_back()
            assert browser.http.get(back).headers["location"] == "/ui/"
            begun = browser.begin()
            code = dict(parse_qsl(urlsplit(back).query))["code"]
            answers = [browser.me().text, begun.headers["location"], begun.text]
            log = server.log
    assert log is not None
    text = log.read_text() + "".join(answers)
    assert "signed_in" in text
    for secret in (SECRET, code, browser.http.cookies["holdfast"]):
        assert secret not in text


# The file.

GOOD: dict[str, Any] = {
    "id": "own",
    "issuer": "https://git.example.com",
    "client_id": "x",
    "rules": [{"claim": "groups", "value": "a", "project": "acme", "scopes": ["read"]}],
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"issuer": "http://git.example.com"}, "https://"),
        ({"issuer": "https://a:b@git.example.com"}, "https://"),
        ({"issuer": "https://git.example.com/?x=1"}, "https://"),
        ({"rules": []}, "length"),
        ({"rule": []}, "unknown field `rule`"),
        ({"id": "A b"}, "id"),
        ({"client_secret": "in the clear"}, "Expected `object | null`"),
        ({"client_secret": {"file": "a", "env": "B"}}, "one of them"),
        ({"client_secret": {"file": "/nonexistent/secret"}}, "cannot be read"),
        ({"client_secret": {"env": "HOLDFAST_NO_SUCH_VARIABLE"}}, "is empty"),
        ({"rules": [{**GOOD["rules"][0], "scopes": ["root"]}]}, "Invalid enum value 'root'"),
        ({"rules": [{**GOOD["rules"][0], "project": "Not A Slug"}]}, "slug"),
    ],
    ids=str,
)
def test_a_bad_people_file_is_said_at_the_start(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = tmp_path / "people.yaml"
    path.write_text(json.dumps({"openid": [{**GOOD, **change}]}))
    with (
        pytest.raises(ConfigurationError) as caught,
        running_server(tmp_path, run=False, people=path),
    ):
        pass
    assert told in str(caught.value)
    assert str(tmp_path / "people.yaml") in str(caught.value) or "secret" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("openid: [", "cannot be read"),
        ("a: 1\n---\nb: 2", "one document"),
        ("people: []", "unknown field `people`"),
        ("openid: 7", "people.yaml:1"),
    ],
)
def test_a_people_file_that_is_none_is_said_at_the_start(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "people.yaml"
    path.write_text(text)
    with (
        pytest.raises(ConfigurationError, match=told),
        running_server(tmp_path, run=False, people=path),
    ):
        pass
    missing = tmp_path / "none.yaml"
    with (
        pytest.raises(ConfigurationError, match="cannot be read"),
        running_server(tmp_path, run=False, people=missing),
    ):
        pass
