"""The page's files: what a browser gets, from a clone and from the wheel, and what nobody gets."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx2
import pytest
from tests.support.processes import ROOT
from tests.support.server import RunningServer, running_server

from holdfast.apps.server import page
from holdfast.apps.server.page import PageFiles

SCRIPT = b"export const answer = 42;\n" * 100


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The folders of a clone, with a page of a few files in them."""
    web, client = tmp_path / "web", tmp_path / "clients" / "javascript" / "src"
    for folder in (web / "views", web / "node_modules", web / "tests", client):
        folder.mkdir(parents=True)
    (web / "index.html").write_text("<!doctype html><title>Holdfast</title>")
    (web / "main.js").write_bytes(SCRIPT)
    (web / "views" / "inbox.js").write_text("export {};")
    (web / "style.css").write_text("body {}")
    (web / "mark.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (web / "mark.png").write_bytes(b"\x89PNG" + bytes(2_000))
    (web / "data.json").write_text("{}")
    (web / "notes.py").write_text("secret = 1")
    (web / ".hidden.js").write_text("secret")
    (web / "node_modules" / "a.js").write_text("secret")
    (web / "tests" / "a.js").write_text("secret")
    (client / "index.js").write_text("export class ApiClient {}")
    (tmp_path / "outside.js").write_text("secret")
    (web / "link.js").symlink_to(tmp_path / "outside.js")
    return tmp_path


def files_of(clone: Path, *, edited: bool = True) -> PageFiles:
    client = clone / "clients" / "javascript" / "src"
    return PageFiles([("client/", client), ("", clone / "web")], edited=edited)


@pytest.fixture
def served(
    clone: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[httpx2.Client]:
    monkeypatch.setattr(page.PageFiles, "open", lambda: files_of(clone))
    with (
        running_server(tmp_path_factory.mktemp("page"), run=False) as server,
        httpx2.Client(base_url=server.url, timeout=20) as http,
    ):
        yield http


def test_the_root_leads_to_the_page(served: httpx2.Client) -> None:
    for path in ("/", "/ui"):
        answer = served.get(path)
        assert (answer.status_code, answer.headers["location"]) == (302, "/ui/")


@pytest.mark.parametrize(
    "path",
    ["/ui/", "/ui/p/acme/drifts/d-1", "/ui/p/acme/applications/team.shop", "/ui/login", "/ui/me"],
)
def test_every_screen_is_the_one_page(served: httpx2.Client, path: str) -> None:
    answer = served.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Holdfast</title>" in answer.text


@pytest.mark.parametrize(
    ("name", "media"),
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("views/inbox.js", "text/javascript; charset=utf-8"),
        ("client/index.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("mark.svg", "image/svg+xml"),
        ("mark.png", "image/png"),
        ("data.json", "application/json"),
        ("index.html", "text/html; charset=utf-8"),
    ],
)
def test_each_file_has_its_media_type(served: httpx2.Client, name: str, media: str) -> None:
    answer = served.get(f"/ui/assets/{name}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, media)


@pytest.mark.parametrize("path", ["/", "/ui/", "/ui/assets/main.js", "/ui/assets/absent.js"])
def test_every_answer_of_the_page_confines_it(served: httpx2.Client, path: str) -> None:
    headers = served.get(path).headers
    policy = headers["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types holdfast",
    ):
        assert rule in policy.split("; "), policy
    assert "unsafe" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"


def test_a_file_is_asked_for_again_and_sent_once(served: httpx2.Client) -> None:
    first = served.get("/ui/assets/main.js")
    assert first.headers.get_list("cache-control") == ["no-cache"]
    tag = first.headers["etag"]
    assert not tag.startswith("W/")
    for sent in (tag, f'"x", W/{tag}', "*"):
        again = served.get("/ui/assets/main.js", headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = served.get("/ui/assets/main.js", headers={"If-None-Match": '"x"'})
    assert (other.status_code, other.content) == (200, SCRIPT)


def test_a_file_is_packed_where_that_is_accepted(served: httpx2.Client) -> None:
    plain = served.get("/ui/assets/main.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == SCRIPT
    refused = served.get("/ui/assets/main.js", headers={"Accept-Encoding": "gzip;q=0, br"})
    assert "content-encoding" not in refused.headers
    with served.stream(
        "GET", "/ui/assets/main.js", headers={"Accept-Encoding": "br, gzip"}
    ) as packed:
        raw = b"".join(packed.iter_raw())
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "accept-encoding"
    assert len(raw) == int(packed.headers["content-length"]) < len(SCRIPT)
    assert gzip.decompress(raw) == SCRIPT
    assert packed.headers["etag"] != plain.headers["etag"]
    image = served.get("/ui/assets/mark.png", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in image.headers


def test_a_script_is_given_without_its_comments(served: httpx2.Client, clone: Path) -> None:
    before = served.get("/ui/assets/views/inbox.js")
    (clone / "web" / "views" / "inbox.js").write_bytes(b"/** Doc.\n */\nexport {}; // \xff\n")
    after = served.get("/ui/assets/views/inbox.js")
    assert after.content == b"\n\nexport {};  \n"
    assert after.headers["etag"] != before.headers["etag"]
    (clone / "web" / "style.css").write_text("/* Said of a style */ body {}")
    assert served.get("/ui/assets/style.css").text.startswith("/*")


def test_head_has_the_same_headers_and_no_body(served: httpx2.Client) -> None:
    whole = served.get("/ui/assets/main.js", headers={"Accept-Encoding": "identity"})
    head = served.head("/ui/assets/main.js", headers={"Accept-Encoding": "identity"})
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "content-type"):
        assert head.headers[name] == whole.headers[name]


@pytest.mark.parametrize(
    "name",
    [
        "absent.js",
        "views",
        "views/",
        "notes.py",
        ".hidden.js",
        "node_modules/a.js",
        "tests/a.js",
        "link.js",
        "client/absent.js",
        "../outside.js",
        "..%2foutside.js",
        "%2e%2e/outside.js",
        "..%5coutside.js",
        "client/../../../../outside.js",
        "main.js%00.png",
        "/etc/passwd",
        "%2fetc/passwd",
        "main%2ejs",
    ],
)
def test_nothing_but_the_pages_own_files_is_given(served: httpx2.Client, name: str) -> None:
    """Asked for by a client that sends a path as it is."""
    connection = HTTPConnection(served.base_url.host, served.base_url.port, timeout=20)
    with closing(connection):
        connection.request("GET", f"/ui/assets/{name}")
        answer = connection.getresponse()
        text = answer.read()
    assert answer.status == 404, name
    assert b"secret" not in text and b"root:" not in text


def test_only_reading_is_allowed(served: httpx2.Client) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert served.request(method, "/ui/").status_code == 405


def test_an_edit_in_a_clone_shows_at_the_next_reload(served: httpx2.Client, clone: Path) -> None:
    before = served.get("/ui/assets/style.css")
    (clone / "web" / "style.css").write_text("body { color: red }")
    (clone / "web" / "new.css").write_text("p {}")
    after = served.get("/ui/assets/style.css", headers={"If-None-Match": before.headers["etag"]})
    assert (after.status_code, after.text) == (200, "body { color: red }")
    assert served.get("/ui/assets/new.css").text == "p {}"
    (clone / "web" / "new.css").unlink()
    assert served.get("/ui/assets/new.css").status_code == 404


def test_an_edit_within_the_same_second_and_of_the_same_size_shows(clone: Path) -> None:
    files, path = files_of(clone), clone / "web" / "style.css"
    stat = path.stat()
    before = files.find("style.css")
    path.write_text("html {}")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    after = files.find("style.css")
    assert before and after and (before.body, after.body) == (b"body {}", b"html {}")


def test_an_installed_page_is_read_once(clone: Path) -> None:
    files = files_of(clone, edited=False)
    (clone / "web" / "style.css").write_text("body { color: red }")
    (clone / "web" / "main.js").unlink()
    style, script, client = (
        files.find(name) for name in ("style.css", "main.js", "client/index.js")
    )
    assert style and style.body == b"body {}"
    assert script and script.body == SCRIPT
    assert client and client.body.startswith(b"export class")
    for name in ("notes.py", ".hidden.js", "link.js", "node_modules/a.js", "tests/a.js", ""):
        assert files.find(name) is None, name


def test_without_its_files_the_server_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = PageFiles([("", tmp_path / "none")], edited=False)
    monkeypatch.setattr(page.PageFiles, "open", lambda: nothing)
    with running_server(tmp_path, run=False) as server:
        answer = httpx2.get(f"{server.url}/ui/p/acme/inbox")
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/plain")
        assert "has no page" in answer.text
        assert httpx2.get(f"{server.url}/ui/assets/main.js").status_code == 404
        assert httpx2.get(f"{server.url}/healthz").status_code == 200


def test_a_clone_serves_the_repositorys_own_page(server: RunningServer) -> None:
    answer = httpx2.get(f"{server.url}/ui/")
    assert answer.text == (ROOT / "web" / "index.html").read_text()


def test_the_wheel_has_the_page_and_the_client(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*command, "--directory", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("holdfast_ml-*-py3-none-any.whl")
    wanted = {
        f"holdfast/web/{below}{path.relative_to(folder).as_posix()}"
        for folder, below in (
            (ROOT / "web", ""),
            (ROOT / "clients" / "javascript" / "src", "client/"),
        )
        for path in folder.rglob("*.*")
        if path.suffix in (".js", ".css", ".html", ".svg")
        and not {"node_modules", "tests"} & set(path.relative_to(folder).parts)
    }
    assert "holdfast/web/index.html" in wanted
    with zipfile.ZipFile(wheel) as archive:
        assert wanted <= set(archive.namelist())
        archive.extractall(tmp_path / "site")
    program = (
        f"import sys; sys.path[:] = [{str(tmp_path / 'site')!r}, *{sys.path!r}]\n"
        "from holdfast.apps.server.page import PageFiles\n"
        "print(PageFiles.open().find('index.html').body.decode(), end='')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.stdout == (ROOT / "web" / "index.html").read_text(), shown.stderr
