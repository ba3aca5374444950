"""What may be written on a forge: lengths, drafts and equality of text. Pure."""

from __future__ import annotations

import re

LONGEST_BODY = 65_536
"""GitHub's limit, in characters. The others allow more, and nobody reads more."""
LONGEST_TITLE = 120
"""All take 255, but Gitea counts most characters beyond ASCII twice and cuts by itself."""
CUT = "\n\n_This text was too long for a pull request and ends here._\n"
_MARKER = re.compile(r"<!--[^\n]*?-->")
_COMMAND = re.compile(r"(?m)^(\s*)/(?=[A-Za-z])")


def fit_body(text: str) -> str:
    """Shorten a body to what every forge takes, with a note, keeping its hidden markers.

    What a later pass finds a pull request by must not be what is cut off.
    """
    if len(text) <= LONGEST_BODY:
        return text
    kept = text[:LONGEST_BODY]
    markers = [each for each in _MARKER.findall(text[-4096:]) if each not in kept]
    end = CUT + "".join(f"\n{each}" for each in markers)
    cut = text[: LONGEST_BODY - len(end)]
    whole_lines = cut.rpartition("\n")[0] or cut
    return whole_lines + end


def fit_title(text: str, prefix: str = "") -> str:
    """Make a title one line, not too long, with a forge's mark of a draft before it."""
    line = " ".join(text.split())
    return prefix + (line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1] + "…")


def same(ours: str, theirs: str) -> bool:
    """True when a forge shows our text, whatever it made of its line ends."""
    return _plain(ours) == _plain(theirs)


def without_commands(text: str) -> str:
    """Take the effect from lines that GitLab would carry out, such as `/merge`.

    Text of ours quotes what others wrote into the cluster.
    """
    return _COMMAND.sub(r"\1\\/", text)


def web_address(url: str) -> str:
    """Return an address that is safe to link to; empty for any other."""
    return url if url.startswith(("https://", "http://")) else ""


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
