"""Check how the documentation reads: ``python tools/language.py`` (``make lint``).

Per section of the site: words, and the median of the words per sentence. It fails on a banned phrase, a page that is
too long or does not begin with who it is for, a dead link, a page without a place in the navigation, and a section or
the whole that has outgrown its limit. ``--sentences N`` lists sentences of more than N words. Prose is a page without
code, tables and comments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
KINDS = ("tutorials", "howto", "reference", "explanation")
LIMITS = {"tutorials": 1500, "howto": 600, "explanation": 1500}
"""Words of a page without the lines of tables, by kind; reference has none."""
WHOLE = 45_000
"""Words of all pages of the site without evidence, as ``wc -w`` counts them."""
SENTENCE = 20
"""The largest median of words per sentence of a section."""
BANNED = {
    r"\bone value a class\b|\bper-class-wise\b": "per class",
    r"\bjudged on\b": "contributes to the loss for",
    r"\bboth signs\b": "positives and negatives",
    r"\brivals?\b": "baselines",
    r"\bceiling\b": "upper bound",
    r"\bmend(s|ed)?\b": "fix",
    r"\bgo(es)? on top\b": "override",
    r"\bbut for\b": "except for",
    r"\bdata-?set\b(?=s? of pictures)": "dataset of images",
    r"\bsimply\b|\bobviously\b|\bof course\b|\bjust\b (?=run|call|use|type)": "nothing",
    r"\butili[sz]e": "use",
    r"\bin order to\b": "to",
    r"\bplease\b": "nothing",
    r"\bas mentioned\b|\bit should be noted\b|\bnote that\b": "nothing",
    r"\bstate.of.the.art\b|\bworld.class\b|\bblazing": "a number",
}
"""A phrase, and what to write."""
_CODE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    r"""Return a page without code, tables, headings, comments and the targets of links.

    >>> prose("# A\n\nSee [b](c.md) now.\n\n```\nx\n```\n\n    run\n\n| a |\n").split()
    ['See', 'b', 'now.']
    """
    text = re.sub(r"(?ms)^```.*?^```[^\S\n]*$|<!--.*?-->", "", text)
    text = re.sub(r"(?m)^ *\|.*$|^ {4,}(?![-*] ).*$|^#.*$", "", text)
    return re.sub(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[str]:
    """Return the sentences of prose: a paragraph or an item of a list ends one too.

    >>> sentences("One. Two is e.g. longer?\\n\\n- three\\n- four (0.5 points)\\nof it")
    ['One.', 'Two is e.g. longer?', 'three', 'four (0.5 points) of it']
    """
    found = []
    for block in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE):
        joined = " ".join(block.split())
        found += [part for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(\"])", joined) if part]
    return found


def words(text: str) -> int:
    """Return the number of words: the lines of tables are none.

    >>> words("| a-b | 0.5 |"), words("│ er ┃ ... ━━━")
    (2, 1)
    """
    return len(re.findall(r"\S*\w\S*", text))


def kind(page: Path) -> str:
    """Return the section of a page: its folder, or ``index``."""
    parts = page.relative_to(DOCS).parts
    return parts[0] if len(parts) > 1 else "index"


def faults(page: Path) -> Iterator[str]:
    """Yield what is wrong with a page."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    for pattern, better in BANNED.items():
        for match in re.finditer(pattern, re.sub(r"`[^`]*`", "", prose(text)), re.IGNORECASE):
            yield f"{name}: {match[0]!r}; write {better}"
    limit = LIMITS.get(kind(page))
    if limit is not None and words(text) > limit:
        yield f"{name}: {words(text)} words; at most {limit}"
    if kind(page) in (*LIMITS, "evidence") and not re.match(r"# .*\n\nFor ", text):
        yield f"{name}: the line below the title says who it is for: 'For ...'"
    for target in _LINK.findall(_CODE.sub("", text)):
        path = target.partition("#")[0]
        if path and ":" not in path and not (page.parent / path).exists():
            yield f"{name}: {target} leads nowhere"


def unplaced(pages: list[Path]) -> Iterator[str]:
    """Yield the pages that no entry or pattern of the navigation has."""
    nav = re.findall(r"[\w*/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    for page in pages:
        name = page.relative_to(DOCS).as_posix()
        if not any(fnmatch(name, pattern) for pattern in nav):
            yield f"docs/{name}: not in the navigation (mkdocs.yml)"


def main() -> int:
    """Print the table and what is wrong."""
    pages = sorted(DOCS.rglob("*.md"))
    wrong = [*unplaced(pages), *(fault for page in pages for fault in faults(page))]
    longest = int(sys.argv[sys.argv.index("--sentences") + 1]) if "--sentences" in sys.argv else None
    counted = 0
    for section in dict.fromkeys(map(kind, pages)):
        mine = [page for page in pages if kind(page) == section]
        size = sum(len(page.read_text(encoding="utf-8").split()) for page in mine)
        found = {s: page for page in mine for s in sentences(prose(page.read_text(encoding="utf-8")))}
        lengths = [len(s.split()) for s in found if len(s.split()) > 1]
        middle = median(lengths or [0])
        sys.stdout.write(f"{section:12} {len(mine):3} pages {size:6} words, {middle:4.0f} per sentence\n")
        counted += size * (section != "evidence")
        if section in (*KINDS, "index") and middle > SENTENCE:
            wrong.append(f"docs/{section}: a sentence has {middle:.0f} words (median); at most {SENTENCE}")
        for sentence, page in found.items():
            if longest is not None and len(sentence.split()) > longest:
                sys.stdout.write(f"  {page.name}: {sentence}\n")
    sys.stdout.write(f"the site without evidence: {counted} words, at most {WHOLE}\n")
    if counted > WHOLE:
        wrong.append(f"docs: {counted} words; at most {WHOLE}")
    sys.stdout.writelines(f"{fault}\n" for fault in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
