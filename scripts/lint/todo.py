# Is anything left unfinished or untidy: open marks, bytes outside ASCII, files that do not say what they answer?
import re

from common import CPP, main

# Written in two parts, so that this file does not find itself.
MARK = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK")) + r")\b(?!\(#\d+\))")
TEXTS = CPP + (".py", ".sh", ".md", ".yaml", ".cmake", ".txt", ".json", "")
COMMENT = {**dict.fromkeys(CPP, "// "), ".py": "# ", ".sh": "# "}


def check_first_line(lint, path, lines):
    mark = COMMENT.get(path.suffix)
    if not mark:
        return
    first = 1 if lines and lines[0].startswith("#!") else 0
    block = []
    for line in lines[first:]:
        if not line.startswith(mark.rstrip()):
            break
        block.append(line[len(mark):])
    if not block or not block[0][:1].isalnum() or not re.search(r"[.?:](\s|$)", " ".join(block)):
        lint.report(path, first + 1, f"must begin with a '{mark.rstrip()}' sentence that says what the file answers")


def check(lint):
    for path in lint.files(TEXTS):
        lines = lint.text(path).split("\n")
        check_first_line(lint, path, lines)
        for number, line in enumerate(lines, 1):
            if match := MARK.search(line):
                lint.report(path, number, f"open mark {match.group(1)}: finish it, or name its issue: {match.group(1)}(#7)")
            if not line.isascii():
                lint.report(path, number, "a character outside ASCII")
            if line != line.rstrip():
                lint.report(path, number, "white space at the end of the line")


if __name__ == "__main__":
    main("todo", check)
