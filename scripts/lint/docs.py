# Is everything a reader may use explained: public declarations, folders, configuration fields?
import re

import cpp
from common import CPP, main

OBVIOUS = re.compile(r"=\s*(default|delete)\b|\boverride\b|\boperator\b")
FIELD = re.compile(r"\bv\.\w+\(")


def needs_comment(found, text):
    """Public types and functions do; forward declarations, special members, overrides, specialisations do not."""
    if text.startswith("template <>", found.start) or found.access != "public" or "detail" in "::".join(found.scope).split("::") or OBVIOUS.search(found.head):
        return False
    if found.kind == "function":
        owner = found.scope[-1] if found.scope else ""
        constructor = found.name.lstrip("~") == owner
        return not constructor or found.num_parameters > 1
    return found.kind == "type" and (text[found.end] == "{" or found.head.startswith("using "))


def check_header(lint, path):
    text = lint.text(path)
    lines = text.splitlines()
    group_end = -1  # declarations that follow without a blank line belong to the comment above them;
    # so do those that follow "public:" at once: a class of one role is explained by the comment of the class
    for found in cpp.declarations(text):
        end = cpp.closing(text, found.end) if found.head.startswith("enum") and text[found.end] == "{" else found.end
        first, last = cpp.line_of(text, found.start), cpp.line_of(text, found.body[1] if found.body else end)
        above = lines[first - 2].strip() if first > 1 else ""
        if above.startswith("///") or "///<" in lines[last - 1] or above == "public:" or first == group_end + 1:
            group_end = last
        elif needs_comment(found, text):
            lint.report(path, first, f"'{found.name}' has no '///' comment")


def check_fields(lint, path):
    """Every field of the configuration has help text: v.field("name", member, {... .help = "text" ...})."""
    text = lint.text(path)
    code = cpp.blank(text)
    for match in FIELD.finditer(code):
        call = text[match.start():cpp.closing(code, match.end() - 1)]
        key = re.match(r'v\.\w+\(\s*"(\w+)"', call)
        if key and not re.search(r'\.help\s*=\s*"[^"]', call):
            lint.report(path, cpp.line_of(text, match.start()), f"configuration field '{key.group(1)}' has no help text")


def check(lint):
    folders = set()
    for path in lint.files(CPP, "src"):
        folders.add(path.parts[1])
        if path.suffix == ".hpp" and not {"detail", "gloo_stub"} & set(path.parts):
            check_header(lint, path)
        if path.parts[1] == "config":
            check_fields(lint, path)
    for folder in sorted(folders):
        if not (lint.root / "src" / folder / "README.md").is_file():
            lint.report(f"src/{folder}", 1, "the folder has no README.md")


if __name__ == "__main__":
    main("docs", check)
