# Which ids can an error, warning or note carry, and does a test produce each of them?
"""`error_ids.py [ROOT]` is a lint: every id of the sources must appear in a test. `error_ids.py --list [ROOT]` prints one
line an id: id, kind (an ErrorKind, or warning or note), exit code (- if the program goes on), files that report it."""

import collections
import pathlib
import re
import sys

import cpp
from common import CPP, Lint, main

ID = re.compile(r'"([a-z][a-z0-9]*(?:-[a-z0-9]+)*)"')
# fail(), check(), Error{} and other lists: the kind, and the id after it. Group 1 is the kind.
BY_KIND = re.compile(r"\bErrorKind::(\w+)\s*,")
# What config/ and apps/ report through functions of their own; the id is the first argument after the match.
BY_CALL = (
    (re.compile(r"\berror\s*\("), "config"),
    (re.compile(r"\berror_at\s*\([^,()]+,"), "config"),
    (re.compile(r"\bwarning\s*\("), "warning"),
    (re.compile(r"\bnote\s*\("), "note"),
    (re.compile(r"\bnote\.id\s*="), "note"),
    (re.compile(r"\bProblem(?:\s+\w+)?\s*\{"), "config"),
    (re.compile(r"\bfail\s*\(\s*node\s*,\s*\{"), "config"),
    (re.compile(r"\busage\s*\([^,()]+,"), "usage"),
)
# A log line that carries its id as text, at its end as messages of the program do ("... [output-finished]") or at its
# start ("[loss-scale-min] step ...").
IN_TEXT = re.compile(r'\[([a-z][a-z0-9]*(?:-[a-z0-9]+)+)\]"|"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)+)\]')
REPORT = re.compile(r"\blog::(\w+)\s*\(|\b(?:print|puts)\s*\(|\b(note|warning)\s*=(?!=)")


# What no test can produce, and why not.
UNREACHABLE = {
    "hdf5-type": "HDF5 would have to refuse a valid type",
    "no-group": "a mesh has one axis of more than one rank so far, and its group is always made",
    "tokenizer-type": "a switch over all enumerators",
    "unicode-decompose": "the buffer is large enough for every text, which was checked before",
}


def exit_codes(lint):
    """{kind: exit code} from the enum that defines both."""
    text = lint.text("src/core/error.hpp")
    body = re.search(r"enum class ErrorKind[^{]*\{([^}]*)\}", text).group(1)
    return {name: int(code) for name, code in re.findall(r"(\w+)\s*=\s*(\d+)", body)}


def argument(code, text, begin):
    """The text of one argument that begins at `begin`: up to the comma or bracket that ends it."""
    i = begin
    while i < len(code) and code[i] not in ",;)}]":
        i = cpp.closing(code, i) + 1 if code[i] in "([{" else i + 1
    return text[begin:i]


def found_in(text):
    """(kind, id) of everything that one source file can report."""
    code = cpp.blank(text)
    for match in BY_KIND.finditer(code):
        for name in ID.findall(argument(code, text, match.end())):
            yield match.group(1), name
    for pattern, kind in BY_CALL:
        for match in pattern.finditer(code):
            first = argument(code, text, match.end()).strip()
            if ID.fullmatch(first):
                yield kind, first.strip('"')
    for match in IN_TEXT.finditer(text):
        kind = severity_before(code, match.start())
        if kind:
            yield kind, match.group(1) or match.group(2)


def severity_before(code, at):
    """What becomes of a text: a warning or a note by the log call or the member that takes it; None where it only quotes
    the id of an error, as tables and comments do."""
    begin = max(code.rfind(mark, 0, at) for mark in ";}")
    report = REPORT.search(code[begin + 1 : at])
    if report is None:
        return None
    return "warning" if report.group(1) in ("warn", "error") or report.group(2) == "warning" else "note"


def catalogue(lint):
    """{id: {kind: {files}}}, sorted by id."""
    ids = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in lint.files(CPP, "src", "apps"):
        for kind, name in found_in(lint.text(path)):
            ids[name][kind].add(path.as_posix())
    return dict(sorted(ids.items()))


def mention(name):
    """A test names an id as a C++ string, alone or after a kind or exit code, as "[id]", or in a corpus file's first line."""
    escaped = re.escape(name)
    quoted = rf'(?:"|\[|"[\w ]+ ){escaped}(?:"|\])|^# expect:.*\b{escaped} '
    return re.compile(quoted if "-" not in name else rf"{quoted}|(?<![\w-]){escaped}(?![\w-])", re.MULTILINE)


def check(lint):
    ids = catalogue(lint)
    tests = "\n".join(lint.text(path) for path in lint.files((".cpp", ".hpp", ".yaml", ".py"), "tests"))
    for name, kinds in ids.items():
        if name not in UNREACHABLE and not mention(name).search(tests):
            files = sorted(set().union(*kinds.values()))
            lint.report(files[0], 1, f"no test names the id '{name}': write one that produces it")


def print_list(root):
    lint = Lint("error_ids", root)
    codes = exit_codes(lint)
    for name, kinds in catalogue(lint).items():
        for kind, files in sorted(kinds.items()):
            print(name, kind, codes.get(kind, "-"), *sorted(files))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        print_list(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parents[2])
    else:
        main("error_ids", check)
