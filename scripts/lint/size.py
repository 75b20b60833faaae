# Is any function, file, parameter list, nesting or include list too long? Limits: architecture section 8.
import ast
import re

import cpp
from common import CPP, main

FUNCTION_LINES = 60
FILE_LINES = 400
HEADER_LINES = 250
PARAMETERS = 6
INCLUDES = 20
NESTING = 3
# What stands before the brace of a block: of a control statement, a lambda or a local function, not of an initialiser.
BLOCK_FOLLOWS = re.compile(r"(?:[)\]]|\b(?:else|do|try|mutable|noexcept|const)|->\s*[\w:<>,&* ]+)\s*$")


def nesting(code, begin, end):
    """Deepest nesting of blocks in code[begin:end] as clang-tidy counts it: the body of the function is level 1."""
    deepest, stack, last = 1, [], begin + 1
    for i in range(begin + 1, end):
        if code[i] == "{":
            stack.append(bool(BLOCK_FOLLOWS.search(code[last:i])))
            deepest = max(deepest, 1 + sum(stack))
        elif code[i] == "}" and stack:
            stack.pop()
        if code[i] in "{};":
            last = i + 1
    return deepest


def check_cpp(lint, path, text):
    code = cpp.blank(text)
    for found in cpp.declarations(text):
        if found.kind != "function":
            continue
        line = cpp.line_of(text, found.start)
        if found.num_parameters > PARAMETERS:
            lint.report(path, line, f"{found.name}: {found.num_parameters} parameters, the limit is {PARAMETERS}")
        if not found.body:
            continue
        length = cpp.line_of(text, found.body[1]) - line + 1
        if length > FUNCTION_LINES:
            lint.report(path, line, f"{found.name}: {length} lines, the limit is {FUNCTION_LINES}")
        # Tests walk small grids exhaustively: a loop per dimension is the clearest way to write that.
        depth = 0 if path.parts[0] == "tests" else nesting(code, *found.body)
        if depth > NESTING:
            lint.report(path, line, f"{found.name}: nesting {depth}, the limit is {NESTING}")
    includes = len(re.findall(r"^[ \t]*#[ \t]*include\b", text, re.MULTILINE))
    if includes > INCLUDES:
        lint.report(path, 1, f"{includes} includes, the limit is {INCLUDES}")


def check_python(lint, path, text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno + 1
            count = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
            if length > FUNCTION_LINES:
                lint.report(path, node.lineno, f"{node.name}: {length} lines, the limit is {FUNCTION_LINES}")
            if count > PARAMETERS:
                lint.report(path, node.lineno, f"{node.name}: {count} parameters, the limit is {PARAMETERS}")


def check(lint):
    for path in lint.files(CPP + (".py", ".sh"), "src", "apps", "tests", "scripts"):
        text = lint.text(path)
        length, limit = len(text.splitlines()), HEADER_LINES if path.suffix == ".hpp" else FILE_LINES
        if length > limit:
            lint.report(path, 1, f"{length} lines, the limit is {limit}")
        if path.suffix in CPP:
            check_cpp(lint, path, text)
        elif path.suffix == ".py":
            check_python(lint, path, text)


if __name__ == "__main__":
    main("size", check)
