"""Applications for tests: one that is right, and what makes it wrong, for both validators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.refused import refused

from holdfast.core.custom_resource import API_VERSION
from holdfast.core.gitops.application import KIND


# Any: documents as they come over the wire, here and below.
def document(
    change: Mapping[str, Any] | None = None, *, name: str = "shop", namespace: str = "gitops"
) -> dict[str, Any]:
    """A usual Application with some parts of its spec replaced; None takes a part away."""
    spec: dict[str, Any] = {
        "project": "acme",
        "source": {"url": "https://git.example.com/acme/shop.git", "path": "deploy/prod"},
        **(change or {}),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {part: value for part, value in spec.items() if value is not None},
    }


def source(**change: Any) -> dict[str, Any]:
    return {"source": {"url": "https://git.example.com/acme/shop.git", **change}}


def windows(**change: Any) -> dict[str, Any]:
    window = {"kind": "allow", "schedule": "0 22 * * 1-5", "duration": "4h", **change}
    return {"sync": {"windows": [window]}}


def routes(*given: dict[str, Any]) -> dict[str, Any]:
    return {"drift": {"routes": [{"name": f"r{n}", **each} for n, each in enumerate(given)]}}


def ignore(**given: Any) -> dict[str, Any]:
    return {"drift": {"ignore": [{"name": "r", "owner": "team-a", **given}]}}


def channel(**given: Any) -> dict[str, Any]:
    return {"notify": [{"name": "ops", **given}]}


URL = {"url": {"name": "hooks", "key": "ops"}}
HEAL, PULL = {"remediation": "self-heal"}, {"remediation": "pull-request"}


def matching(**match: Any) -> dict[str, Any]:
    return {"match": match}


REFUSED = [
    refused("no project", "project", {"project": None}),
    refused("a project that is not a slug", "project", {"project": "Acme Inc"}),
    refused("no source", "source", {"source": None}),
    refused("no address", "source.url", {"source": {"path": "x"}}),
    refused("a password in the address", "source.url",
            source(url="https://me:s3cr3t-word@git.example.com/a/b")),
    refused("a token in the address", "source.url",
            source(url="https://s3cr3t-word@git.example.com/a/b")),
    refused("a password for ssh", "source.url", source(url="ssh://me:s3cr3t-word@h.example/a")),
    refused("an address that runs a command", "source.url", source(url="ext::sh -c id")),
    refused("a transport helper", "source.url", source(url="ext::git-upload-pack")),
    refused("an address that is an option", "source.url", source(url="--upload-pack=x")),
    refused("an open protocol", "source.url", source(url="git://git.example.com/a/b")),
    refused("an open line", "source.url", source(url="http://git.example.com/a/b")),
    refused("a host that is an option", "source.url", source(url="ssh://-oProxyCommand=x/a")),
    refused("an address that climbs", "source.url", source(url="https://h.example/a/../../b")),
    refused("no host", "source.url", source(url="https:///a/b")),
    refused("a revision that is an option", "source.revision", source(revision="--all")),
    refused("a revision with an expression", "source.revision", source(revision="HEAD@{1}")),
    refused("a range of revisions", "source.revision", source(revision="a..b")),
    refused("an absolute path", "source.path", source(path="/etc")),
    refused("a path that leads out", "source.path", source(path="deploy/../../other")),
    refused("a path that is only up", "source.path", source(path="..")),
    refused("a renderer that is none", "source.renderer", source(renderer="helm")),
    refused("an interval that hammers the host", "source.interval", source(interval="5s")),
    refused("an interval of days", "source.interval", source(interval="48h")),
    refused("an interval that is none", "source.interval", source(interval="often")),
    refused("a Secret with a strange name", "source.credentials", source(credentials="A B")),
    refused("a namespace that is none", "namespace", {"namespace": "a.b"}),
    refused("a schedule of four fields", "sync.windows[0].schedule",
            windows(schedule="0 22 * *")),
    refused("a schedule out of range", "sync.windows[0].schedule",
            windows(schedule="0 25 * * *"), server=False),
    refused("a schedule that never comes", "sync.windows[0].schedule",
            windows(schedule="0 0 30 2 *"), server=False),
    refused("a window without end", "sync.windows[0].duration", windows(duration="1000h")),
    refused("a window of no length", "sync.windows[0].duration", windows(duration="0s")),
    refused("a time zone that is none", "sync.windows[0].timeZone",
            windows(timeZone="Mars/Olympus"), server=False),
    refused("a window of no kind", "sync.windows[0].kind", windows(kind="maybe")),
    refused("a guard of more than all", "sync.guard.percent",
            {"sync": {"guard": {"percent": 101}}}),
    refused("pull without a pull request", "drift.routes[0].pull",
            routes({**HEAL, "pull": "codify"})),
    refused("a route for what only the operator finds", "drift.routes[0].match.drift",
            routes({**HEAL, "match": {"drift": ["runtime"]}})),
    refused("a route for models that nobody looks for", "drift.routes",
            routes({**HEAL, "match": {"drift": ["model"]}})),
    refused("two routes of one name", "drift.routes",
            routes({"name": "a", **HEAL, **matching(drift=["image"])}, {"name": "a", **PULL})),
    refused("a route after one for everything", "drift.routes", routes(HEAL, PULL)),
    refused("heal and propose the same drift", "drift.routes[1]",
            routes({**HEAL, **matching(drift=["image"])}, {**PULL, **matching(drift=["image"])}),
            server=False),
    refused("a route inside of an earlier one", "drift.routes[1]",
            routes({**HEAL, **matching(kinds=["Deploy*"])},
                   {**PULL, **matching(kinds=["Deployment"], drift=["image"])}), server=False),
    refused("a condition that is an empty list", "drift.routes[0].match.kinds",
            routes({**HEAL, **matching(kinds=[])})),
    refused("a pattern with a class", "drift.routes[0].match.names[0]",
            routes({**HEAL, **matching(names=["[ab]*"])})),
    refused("a drift that is none", "drift.routes[0].match.drift[0]",
            routes({**HEAL, **matching(drift=["everything"])})),
    refused("a remediation that is none", "drift.routes[0].remediation",
            routes({"remediation": "hope"})),
    refused("an ignore rule that compares no field", "drift.ignore[0].sameAs",
            ignore(manager="a", sameAs="quantity")),
    refused("an ignore rule that compares and lands", "drift.ignore[0].sameAs",
            ignore(pointer="/spec/size", sameAs="duration", lands=True)),
    refused("an ignore rule that compares as what is not known", "drift.ignore[0].sameAs",
            ignore(pointer="/spec/size", sameAs="weight")),
    refused("an ignore rule for whole objects", "drift.ignore[0]", ignore()),
    refused("an ignore rule for every manager", "drift.ignore[0]", ignore(manager="*")),
    refused("an ignore rule for the spec", "drift.ignore[0].pointer", ignore(pointer="/spec")),
    refused("an ignore rule with no pointer", "drift.ignore[0].pointer",
            ignore(pointer="spec.replicas")),
    refused("an ignore rule with a wrong escape", "drift.ignore[0].pointer",
            ignore(pointer="/spec/~2"), server=False),
    refused("an ignore rule with two places", "drift.ignore[0]",
            ignore(pointer="/spec/replicas", path="spec.replicas")),
    refused("an ignore rule for a path that is all", "drift.ignore[0]", ignore(path="**"),
            server=False),
    refused("an ignore rule for a security field", "drift.ignore[0].path",
            ignore(path="spec.**.securityContext.*"), server=False),
    refused("an ignore rule for a Secret", "drift.ignore[0].pointer",
            ignore(kind="Secret", pointer="/data/token"), server=False),
    refused("an ignore rule that ends on no day", "drift.ignore[0].expires",
            ignore(pointer="/spec/replicas", expires="2026-02-31T00:00:00Z"), server=False),
    refused("an ignore rule without an owner", "drift.ignore[0].owner",
            {"drift": {"ignore": [{"name": "r", "pointer": "/spec/replicas"}]}}),
    refused("two ignore rules of one name", "drift.ignore",
            {"drift": {"ignore": [{"name": "r", "owner": "a", "pointer": "/spec/replicas"},
                                  {"name": "r", "owner": "a", "pointer": "/spec/paused"}]}}),
    refused("orphans of nobody's namespaces", "drift.orphans",
            {"drift": {"orphans": "remediate"}}),
    refused("orphans of the cluster's namespace", "drift.namespaces",
            {"drift": {"orphans": "remediate", "namespaces": ["shop", "kube-system"]}}),
    refused("a forge with a credential", "pullRequests.api",
            {"pullRequests": {"api": "https://me:s3cr3t-word@git.example.com"}}),
    refused("a forge by an open line", "pullRequests.api",
            {"pullRequests": {"api": "http://git.example.com"}}),
    refused("a base that is no branch", "pullRequests.base",
            {"pullRequests": {"base": "main.lock"}}),
    refused("a deadline of years", "pullRequests.deadline",
            {"pullRequests": {"deadline": "20000h"}}),
    refused("no pull requests at all", "pullRequests.mostOpen",
            {"pullRequests": {"mostOpen": 0}}),
    refused("a webhook to nowhere", "notify[0].url", channel(kind="webhook")),
    refused("Slack without an address", "notify[0].url", channel(kind="slack")),
    refused("a log with an address", "notify[0].url", channel(kind="log", **URL)),
    refused("a signature for Slack", "notify[0].signing",
            channel(kind="slack", **URL, signing={"name": "hooks", "key": "sign"})),
    refused("a key that is no key", "notify[0].url.key",
            channel(kind="slack", url={"name": "hooks", "key": "a b"})),
    refused("a loudness that is none", "notify[0].least",
            channel(kind="log", least="deafening")),
    refused("two channels of one name", "notify",
            {"notify": [{"name": "ops", "kind": "log"}, {"name": "ops", "kind": "log"}]}),
]  # fmt: skip

FULL: dict[str, Any] = {
    "source": {
        "url": "ssh://git@git.example.com:2222/acme/shop.git", "revision": "release/1.x",
        "path": "deploy/prod", "renderer": "kustomize", "interval": "1m30s",
        "credentials": "shop-git", "decryption": "shop-age",
    },
    "namespace": "shop",
    "suspend": False,
    "sync": {
        "automatic": True, "prune": True, "allowEmpty": False,
        "guard": {"objects": 10, "percent": 0},
        "windows": [
            {"kind": "allow", "schedule": "0 22 * * 1-5", "duration": "4h",
             "timeZone": "Europe/Madrid"},
            {"kind": "deny", "schedule": "0 0 20 12 *", "duration": "360h"},
        ],
    },
    "drift": {
        "routes": [
            {"name": "images", "match": {"drift": ["image"], "namespaces": ["shop*"]},
             "remediation": "pull-request", "pull": "revert"},
            {"name": "by-hand", "remediation": "self-heal", "match": {
                "drift": ["configuration", "resource"], "kinds": ["Deployment", "*Route"],
                "names": ["web-*"], "paths": ["spec.**.env[name=HTTP_*]"],
                "managers": ["kubectl*"], "causes": ["person"], "cost": ["none", "rolling"]}},
            {"name": "rest", "remediation": "review"},
        ],
        "ignore": [
            {"name": "replicas", "owner": "team-a", "pointer": "/spec/replicas",
             "kind": "Deployment", "objectName": "web-*", "namespace": "shop",
             "expires": "2026-12-31T00:00:00Z", "lands": True},
            {"name": "size", "owner": "team-b", "path": "spec.**.size", "sameAs": "quantity"},
            {"name": "mesh", "owner": "team-b", "path": "spec.**.securityContext.runAsUser",
             "security": True},
            {"name": "keda", "owner": "team-b", "manager": "keda-operator"},
        ],
        "orphans": "remediate", "namespaces": ["shop"], "holdEnd": "revert",
        "annotationHolds": "limited",
        "fourEyes": True, "comment": True, "modelHeads": True,
    },
    "pullRequests": {
        "provider": "gitlab", "api": "https://git.example.com/gitlab", "base": "main",
        "labels": ["team-a"], "draft": True, "mostOpen": 2, "mostHourly": 1, "deadline": "72h",
    },
    "notify": [
        {"name": "log", "kind": "log", "least": "info"},
        {"name": "ops", "kind": "webhook", **URL, "signing": {"name": "hooks", "key": "sign"},
         "least": "critical"},
        {"name": "chat", "kind": "slack", **URL},
    ],
}  # fmt: skip
"""Every field of a spec that there is."""

ACCEPTED: dict[str, Mapping[str, Any]] = {
    "as little as possible": {},
    "as much as possible": FULL,
    "the short form of ssh": source(url="git@git.example.com:acme/shop.git"),
    "a folder of this machine": source(url="/srv/git/shop.git"),
    "a forge on this machine": source(url="http://127.0.0.1:3000/acme/shop"),
    "a whole commit": source(revision="0123456789abcdef0123456789abcdef01234567"),
    "a path with two dots in a name": source(path="a..b/.hidden"),
    "a catch-all that comes last": routes({**HEAL, **matching(drift=["image"])}, PULL),
    "the narrow before the wide": routes(
        {**PULL, **matching(kinds=["Deployment"])}, {**HEAL, **matching(kinds=["*"])}
    ),
    "routes that overlap": routes(
        {**PULL, **matching(kinds=["Deployment"])}, {**HEAL, **matching(drift=["image"])}
    ),
    "orphans of its own": {"drift": {"orphans": "remediate", "namespaces": ["shop"]}},
}
