"""Scripts without their comments: what is no comment stays, and every line keeps its number."""

from __future__ import annotations

import pytest
from tests.support.processes import ROOT

from holdfast.apps.server.page_scripts import strip_comments


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("let a = 1; // one\nlet b;", "let a = 1;  \nlet b;"),
        ("/** Doc.\n * More.\n */\nexport const a = 1;", "\n\n\nexport const a = 1;"),
        ("const a = /** @type {any} */ (b);", "const a =   (b);"),
        ("return/* a */b", "return b"),
        ("a // no end", "a  "),
    ],
)
def test_comments_go_and_lines_stay(script: str, expected: str) -> None:
    assert strip_comments(script) == expected
    assert script.count("\n") == expected.count("\n")


@pytest.mark.parametrize(
    "script",
    [
        "const a = \"https://host\", b = '/* b */';",
        r'const a = "\" // a", b = "\\";',
        "const a = `// ${b + `/* ${c} */`} //`;",
        "const a = `${{ a: 1 }} // a`;",
        r"const a = `\${ // a`;",
        "const a = /[/*]'/.test(b), c = /\\/*\"/;",
        "const a = b / c / d, e = (b) / c[0] / 2;",
        "if (a) /[/]*'/.test(b);",
        "const a = b.if(c) / 2 / d, e = b.return / 2;",
        "for (const [, a] of b.matchAll(/'\"`/g)) c(a);",
        "const a = b => /'/.test(b) ? /\"/ : !/`/.test(b);",
        "const a = 1.5 / .5 / 2;",
        "class A { #a = 1; b() { return this.#a / 2; } }",
        "const a = x?.y / 2, b = x ?? /'/;",
    ],
)
def test_what_only_looks_like_a_comment_stays(script: str) -> None:
    assert strip_comments(script) == script
    assert strip_comments(script + " // a\n/* b */") == script + "  \n "


@pytest.mark.parametrize(
    "script",
    [
        "{} /'/.test(a) // a",
        "a++ / 2 // a",
        "for (const a of /b/) {} // a",
        "const a = `no end // a",
        "const a = 'no end // a",
        "const a = (1 // a",
        "const a = 1) // a",
        "const a = / no end // a",
    ],
)
def test_what_cannot_be_read_for_certain_stays_as_it_is(script: str) -> None:
    assert strip_comments(script) == script


@pytest.mark.parametrize("folder", ["web", "clients/javascript/src"])
def test_every_script_of_ours_can_be_read(folder: str) -> None:
    for path in (ROOT / folder).glob("*.js"):
        assert "/**" not in strip_comments(path.read_text()), path
