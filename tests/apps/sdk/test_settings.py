"""Where a client connects, and what it says when it cannot."""

from __future__ import annotations

import inspect
from pathlib import Path

import inferencekey
import pytest

import holdfast
from holdfast import ConfigurationError, DataClient, ManagementClient
from holdfast.apps.sdk.settings import default_store_file, resolve_connection
from holdfast.core.redact import Secret

TOKEN = "ik_sdk_0123abcd_" + "f" * 64


def test_an_argument_wins_over_holdfast_variables_and_those_over_inferencekey_ones() -> None:
    both = {
        "HOLDFAST_URL": "https://ours.example",
        "INFERENCEKEY_BASE_URL": "https://theirs.example",
        "HOLDFAST_PROJECT": "ours",
        "INFERENCEKEY_PROJECT": "theirs",
        "HOLDFAST_TOKEN": "ours",
        "INFERENCEKEY_SDK_TOKEN": "theirs",
    }
    theirs = {name: text for name, text in both.items() if name.startswith("INFERENCEKEY")}
    explicit = resolve_connection(
        "https://mine.example", project="mine", token="mine", environ=both
    )
    assert (explicit.url, explicit.project) == ("https://mine.example", "mine")
    assert explicit.token == Secret("mine")
    ours = resolve_connection(environ=both)
    assert (ours.url, ours.project) == ("https://ours.example", "ours")
    assert ours.token == Secret("ours")
    only_theirs = resolve_connection(environ=theirs)
    assert (only_theirs.url, only_theirs.project) == ("https://theirs.example", "theirs")
    assert only_theirs.token == Secret("theirs")


def test_clients_take_the_arguments_of_the_published_client() -> None:
    client = ManagementClient(base_url="https://h.example", sdk_token=TOKEN, project="acme")
    assert (client.url, client.project) == ("https://h.example", "acme")
    assert repr(DataClient(base_url="https://h.example", project="acme", api_key=TOKEN)) == (
        "DataClient('https://h.example', project='acme')"
    )
    ManagementClient("https://h.example", token=TOKEN, base_url="https://h.example").close()
    with pytest.raises(ConfigurationError, match="url and base_url mean the same"):
        ManagementClient("https://h.example", base_url="https://other.example")
    with pytest.raises(ConfigurationError, match="token and sdk_token") as raised:
        ManagementClient.from_env("https://h.example", token=TOKEN, sdk_token=TOKEN[:-1] + "0")
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("name", ["ManagementClient", "DataClient"])
def test_every_method_of_the_published_client_takes_its_arguments(name: str) -> None:
    """Parameters that stand before a star may be given by place and by name."""
    theirs, ours = getattr(inferencekey, name), getattr(holdfast, name)
    for method, function in inspect.getmembers(theirs, callable):
        if method.startswith("_") and method != "__init__":
            continue
        own = inspect.signature(getattr(ours, method)).parameters
        for place, (argument, parameter) in enumerate(
            inspect.signature(function).parameters.items()
        ):
            assert argument in own, (method, argument)
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                assert list(own)[place] == argument, (method, argument)


def test_nothing_set_means_the_embedded_file_of_this_user(tmp_path: Path) -> None:
    settings = resolve_connection(environ={"HOLDFAST_HOME": str(tmp_path)})
    assert settings.path == tmp_path / "holdfast.db"
    assert settings.project == "default"
    assert default_store_file({"XDG_DATA_HOME": "/data"}) == Path("/data/holdfast/holdfast.db")


def test_sqlite_addresses_are_relative_with_three_and_absolute_with_four_slashes() -> None:
    assert resolve_connection("sqlite:///here.db", environ={}).path == Path.cwd() / "here.db"
    assert resolve_connection("sqlite:////there/my.db", environ={}).path == Path("/there/my.db")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_a_token_may_go_in_clear_to_this_machine(host: str) -> None:
    assert resolve_connection(f"http://{host}:8080", token=TOKEN, environ={}).token is not None


@pytest.mark.parametrize("host", ["example.com", "10.0.0.1", "127.0.0.1.evil.example", "[::2]"])
def test_a_token_never_goes_in_clear_to_another_unless_allowed(host: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_ALLOW_INSECURE"):
        resolve_connection(f"http://{host}", token=TOKEN, environ={})
    assert resolve_connection(f"http://{host}", token=TOKEN, allow_insecure=True, environ={}).token
    assert resolve_connection(
        f"http://{host}", token=TOKEN, environ={"HOLDFAST_ALLOW_INSECURE": "1"}
    ).token


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"HOLDFAST_URL": "ftp://x"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "not an address"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://host:port"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://host/a b"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://höst"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://host/?a=b"}, "HOLDFAST_URL"),
        ({"INFERENCEKEY_BASE_URL": "https://me:pw@host"}, "INFERENCEKEY_BASE_URL"),
        ({"HOLDFAST_URL": "sqlite://"}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "kubernetes://prod/M L"}, "namespace"),
        ({"HOLDFAST_PROJECT": "Not A Slug"}, "not-a-slug"),
        ({"HOLDFAST_TOKEN": TOKEN}, "HOLDFAST_URL"),
        ({"HOLDFAST_URL": "https://host", "HOLDFAST_TOKEN": TOKEN + "\nX: y"}, "HOLDFAST_TOKEN"),
    ],
)
def test_a_bad_setting_is_named_and_its_secret_is_not_shown(
    environ: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        resolve_connection(environ=environ)
    assert named in str(raised.value)
    assert "f" * 64 not in str(raised.value)
    assert "pw" not in str(raised.value)
