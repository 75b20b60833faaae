# Are files, folders and YAML keys named by the rules of architecture section 8? (clang-tidy checks C++ names.)
import re

from common import CPP, main

SNAKE = re.compile(r"[a-z][a-z0-9_]*")
KEBAB = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")
BLOCK_KEY = re.compile(r"\s*(?:- +)*([^\s#'\"\[\]{},&*!|>%@`-][^:#]*?)\s*:(?=\s|$)")
FLOW_KEY = re.compile(r"[{,]\s*([A-Za-z_][\w.-]*)\s*:(?=\s)")


def yaml_keys(line):
    """Keys on one line of block or flow YAML."""
    code = re.sub(r"\"[^\"]*\"|'[^']*'", "", re.sub(r"(^|\s)#.*", "", line))
    block = BLOCK_KEY.match(code)
    return [match.group(1) for match in FLOW_KEY.finditer(code)] + ([block.group(1)] if block else [])


def check_config(lint, path):
    if path.suffix != ".yaml" or not KEBAB.fullmatch(path.stem):
        lint.report(path, 1, f"'{path.name}': configs are named in kebab-case and end in .yaml")
    sweep = path.parts[:2] == ("configs", "sweeps")  # its parameters are key paths (config-and-cli section 8)
    for number, line in enumerate(lint.text(path).splitlines(), 1):
        for key in yaml_keys(line):
            if not all(SNAKE.fullmatch(part) for part in (key.split(".") if sweep else [key])):
                lint.report(path, number, f"YAML key '{key}' is not snake_case")


def check(lint):
    for path in lint.files(CPP + (".py", ".sh"), "src", "apps", "tests", "scripts"):
        for part in path.parts[:-1] + (path.stem,):
            if not SNAKE.fullmatch(part):
                lint.report(path, 1, f"'{part}' is not snake_case")
        has_cases = path.suffix == ".cpp" and re.search(r"^\w*TEST_CASE\b", lint.text(path), re.MULTILINE)
        if has_cases and not path.stem.endswith("_test"):
            lint.report(path, 1, "a file with test cases is named <file>_test.cpp")
    for path in lint.files((".yaml", ".yml"), "configs"):
        check_config(lint, path)


if __name__ == "__main__":
    main("names", check)
