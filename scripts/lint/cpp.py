# Which declarations and functions does a C++ file have, and where? Enough of a parser for formatted sources.
"""Not a compiler: it knows namespaces, types, functions, initialisers and access labels, and nothing inside functions."""

import dataclasses
import re

LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"^(?:class|struct|union|enum)\b")
BODY_FOLLOWS = re.compile(r"(?:[)}&]|\b(?:const|noexcept|override|final|mutable|try)|->\s*[\w:<>,&* ]+)\s*$")
NOT_PARAMETERS = ("noexcept", "explicit", "alignas", "decltype", "requires")


def blank(text):
    """The text with comments, literals and preprocessor lines replaced by spaces; offsets and lines stay."""
    return LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def closing(text, opening):
    """Offset of the bracket that closes the one at `opening`; the last offset if none does."""
    close, depth = {"(": ")", "{": "}", "[": "]"}[text[opening]], 0
    for i in range(opening, len(text)):
        if text[i] == text[opening]:
            depth += 1
        elif text[i] == close:
            depth -= 1
            if depth == 0:
                return i
    return len(text) - 1


def line_of(text, offset):
    """1-based line of an offset."""
    return text.count("\n", 0, offset) + 1


@dataclasses.dataclass
class Declaration:
    """One declaration outside function bodies; offsets are into the file, `body` only for functions that have one."""
    kind: str  # type, function, other
    name: str
    head: str
    start: int
    end: int
    scope: tuple
    access: str
    body: tuple = None
    num_parameters: int = 0


def strip_prefix(head):
    """The head without attributes and template parameter lists."""
    head = re.sub(r"\[\[.*?\]\]|\balignas\([^)]*\)", " ", head, flags=re.DOTALL).strip()
    while head.startswith("template"):
        depth, i = 0, head.find("<")
        for i in range(max(i, 0), len(head)):
            depth += {"<": 1, ">": -1}.get(head[i], 0)
            if depth == 0:
                break
        head = head[i + 1:].strip()
    return head


def split_list(text):
    """Items of a parameter list, split at commas outside any bracket."""
    items, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and text[i - 1] != "-"):
            depth -= 1
        if char == "," and depth == 0:
            items.append(text[begin:i])
            begin = i + 1
    items.append(text[begin:])
    return [item for item in items if item.strip() not in ("", "void")]


def parameter_list(head):
    """(offset of "(", offset of ")") of the function that `head` declares, or None if it declares no function."""
    operator = re.search(r"\boperator\s*(\(\)|[^\s(]+|\s[\w:]+)\s*(?=\()", head)
    if operator:
        return operator.end(), closing(head, operator.end())
    depth, i = 0, 0
    while i < len(head):
        char = head[i]
        if char == "<" and i and (head[i - 1].isalnum() or head[i - 1] == "_"):
            depth += 1
        elif char == ">" and head[i - 1] != "-":
            depth = max(depth - 1, 0)
        elif char == "=" and depth == 0:
            return None
        elif char == "(":
            word = re.search(r"(\w+)\s*$", head[:i])
            if depth == 0 and word and word.group(1) not in NOT_PARAMETERS:
                return i, closing(head, i)
            i = closing(head, i)
        i += 1
    return None


class Parser:
    """Walks the declarations of one file."""

    def __init__(self, text):
        self.code = blank(text)
        self.found = []

    def add(self, start, end, where, body=None):
        """Records the declaration whose head is code[start:end]; where = (scope, access)."""
        head = strip_prefix(self.code[start:end])
        if not head or head.startswith(("static_assert", "friend", "typedef")):
            return
        parameters = None if head.startswith("using ") else parameter_list(head)
        kind, name, count = "other", "", 0
        if parameters:
            kind = "function"
            name = re.search(r"(operator.*|~?[\w:]+)\s*$", head[:parameters[0]], re.DOTALL).group(1).strip()
            count = len(split_list(head[parameters[0] + 1:parameters[1]]))
        elif TYPE.match(head) or head.startswith("using "):
            kind = "type"
            name = re.match(r"(?:class|struct|union|enum|using)\s+(?:(?:class|struct)\s+)?([\w:]*)", head).group(1)
        self.found.append(Declaration(kind, name, head, start, end, *where, body, count))

    def braces(self, start, opening, where):
        """Handles "{" outside parentheses; returns (offset to go on from, start of the head that goes on or None)."""
        head = strip_prefix(self.code[start:opening])
        close = closing(self.code, opening)
        scope, _ = where
        if namespace := re.match(r"(?:inline\s+)?namespace\s*([\w:]*)|extern\s*$", head):
            self.block(opening + 1, close, (scope + (namespace.group(1) or "",), "public"))
            return close + 1, None
        if TYPE.match(head) and not parameter_list(head):
            self.add(start, opening, where)
            if not head.startswith("enum"):
                inner = "private" if head.startswith("class") else "public"
                self.block(opening + 1, close, (scope + (self.found[-1].name,), inner))
            return self.code.find(";", close) + 1, None
        if parameter_list(head) and BODY_FOLLOWS.search(head):
            self.add(start, opening, where, (opening, close))
            return close + 1, None
        return close + 1, start

    def block(self, begin, end, where):
        """Walks the declarations in code[begin:end]."""
        i, start = begin, None
        while i < end:
            char = self.code[i]
            if start is None and not char.isspace() and char not in ";}":
                start = i
            if start is None:
                i += 1
            elif char in "([":
                i = closing(self.code, i) + 1
            elif char == "{":
                i, start = self.braces(start, i, where)
            elif char == ";":
                self.add(start, i, where)
                i, start = i + 1, None
            elif char == ":" and (label := self.code[start:i].strip()) in ("public", "private", "protected"):
                where, start, i = (where[0], label), None, i + 1
            else:
                i += 1


def declarations(text):
    """All declarations of a file outside function bodies, in order."""
    parser = Parser(text)
    parser.block(0, len(parser.code), ((), "public"))
    return parser.found
