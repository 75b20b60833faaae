# Does every test that tests/README.md promises for a case from public complaints exist?
"""`user_cases.py [ROOT]` is a lint: rows `| C1.2 | text | `test name` |` name test cases of tests/, rows of what is not
built yet say "not built: ..."."""

import pathlib
import re

from common import main

TABLE = pathlib.Path("tests/README.md")
ROW = re.compile(r"\| (C\d+\.\d+) \| [^|]+ \| (?:`([^`|]+)`|not built: [^|]+) \|")
CASE = re.compile(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"')


def check(lint):
    names = set()
    for path in lint.files((".cpp",), "tests"):
        names.update(CASE.findall(lint.text(path)))
    rows = 0
    for number, line in enumerate(lint.text(TABLE).splitlines(), 1):
        if not re.match(r"\| C\d", line):
            continue
        rows += 1
        match = ROW.fullmatch(line)
        if not match:
            lint.report(TABLE, number, "not `| C1.2 | what went wrong | `test name` |`, or `not built: ...` in its place")
        elif match.group(2) and match.group(2) not in names:
            lint.report(TABLE, number, f"{match.group(1)}: no test is called '{match.group(2)}'")
    if rows == 0:
        lint.report(TABLE, 1, "the table of cases is gone")


if __name__ == "__main__":
    main("user_cases", check)
