# Which headers are never included, or only in .cpp files? They decide how long a build takes (architecture section 2).
import re

from common import CPP, main

INCLUDE = re.compile(r"#\s*include\s*<([^>]+)>")
NEVER = re.compile(r"torch/(torch|types|extension)\.h|torch/nn\b.*|ATen/(ATen|Functions)\.h|iostream")
AUTOGRAD = re.compile(r"torch/csrc/.*")
PARSERS_AND_FILES = re.compile(r"yaml-cpp/.*|hdf5\.h|CLI/.*")
TORCH = re.compile(r"(ATen|c10|torch)/.*")
# What public headers may have: base types that Tensor.h includes anyway, so naming them costs nothing.
PUBLIC = {"ATen/core/Tensor.h", "c10/core/Device.h", "c10/core/ScalarType.h"}
USING_NAMESPACE = re.compile(r"\busing\s+namespace\s+([\w:]+)")


def check_include(lint, path, number, name):
    header = path.suffix == ".hpp"
    private = {"detail", "kernels"} & set(path.parts)  # included by the .cpp files of one folder only
    public = header and path.parts[0] == "src" and not private
    c10d = name.startswith("torch/csrc/distributed/")
    if NEVER.fullmatch(name):
        lint.report(path, number, f"<{name}> is never included: use narrow headers")
    elif c10d and path.parts[:2] != ("src", "comm"):
        lint.report(path, number, f"<{name}>: c10d stays in src/comm")
    elif header and (c10d or (AUTOGRAD.fullmatch(name) and not private) or (public and PARSERS_AND_FILES.fullmatch(name))):
        lint.report(path, number, f"<{name}> belongs in a .cpp file, not in a header")
    elif public and TORCH.fullmatch(name) and name not in PUBLIC:
        lint.report(path, number, f"<{name}>: public headers include ATen/core/Tensor.h and nothing heavier of torch")


def check(lint):
    for path in lint.files(CPP, "src", "apps", "tests"):
        text = lint.text(path)
        if path.suffix == ".hpp" and "#pragma once" not in text:
            lint.report(path, 1, "a header needs '#pragma once'")
        for number, line in enumerate(text.splitlines(), 1):
            if match := INCLUDE.search(line):
                check_include(lint, path, number, match.group(1))
            match = USING_NAMESPACE.search(line.split("//")[0])
            # Nothing includes a test's .cpp file: it may open the project's namespaces and those of literals.
            harmless = path.parts[0] == "tests" and path.suffix == ".cpp"
            if match and not (harmless and re.fullmatch(r"colossal\b.*|std::\w*literals", match.group(1))):
                lint.report(path, number, f"'using namespace {match.group(1)}' is not used")


if __name__ == "__main__":
    main("includes", check)
