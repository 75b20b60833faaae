# Does every include go down the layers of src/LAYERS, and do the CMake dependencies say the same?
import re

from common import CPP, main

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
TORCH = re.compile(r"^(ATen|c10|torch)/")
LIBRARY = re.compile(r"colossal_library\(\s*(\w+)(.*?)\)", re.DOTALL)


def read_layers(lint):
    """{folder: (row, set of "!" words)} of src/LAYERS."""
    layers = {}
    for number, line in enumerate(lint.text("src/LAYERS").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or not words[0].isdigit() or not all(word.startswith("!") for word in words[2:]):
            lint.report("src/LAYERS", number, f"expected 'ROW FOLDER [!NAME ...]', found '{line}'")
            continue
        layers[words[1]] = (int(words[0]), {word[1:] for word in words[2:]})
    return layers


def allowed(layers, folder, other):
    """May a file of `folder` include one of `other`?"""
    row, never = layers[folder]
    return folder == other or (layers[other][0] < row and other not in never)


def folder_of(path):
    """Name in src/LAYERS of the folder that holds a source file."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def read_includes(lint):
    """{path: [(line, quoted include or "", angle include or "")]} of every source file."""
    includes = {}
    for path in lint.files(CPP, "src", "apps"):
        if path.parts[0] == "src" and len(path.parts) < 3:
            lint.report(path, 1, "a source file must lie in a folder of src/")
            continue
        text = lint.text(path)
        includes[path] = [(text.count("\n", 0, match.start()) + 1, match.group(1) or "", match.group(2) or "")
                          for match in INCLUDE.finditer(text)]
    return includes


def beside(lint, path, quoted):
    """Is it a header of apps/, or one that the folder's CMakeLists.txt generates?"""
    if "/" in quoted:
        return False
    folder = lint.root / path.parent
    lists = folder / "CMakeLists.txt"
    generated = lists.is_file() and f"generated/{quoted}" in lists.read_text(encoding="utf-8")
    return generated or (path.parts[0] == "apps" and (folder / quoted).is_file())


def check_directions(lint, layers, includes):
    """Reports includes that go up or sideways; returns {folder: folders it includes}."""
    used = {}
    for path, found in includes.items():
        folder = folder_of(path)
        if folder not in layers:
            lint.report(path, 1, f"folder '{folder}' is not in src/LAYERS")
            continue
        for line, quoted, _ in found:
            other = quoted.split("/")[0]
            if not quoted or other == folder or beside(lint, path, quoted):
                continue
            if other not in layers:
                lint.report(path, line, f'"{quoted}" does not begin with a folder of src/LAYERS')
            elif not allowed(layers, folder, other):
                rows = f"{folder} (row {layers[folder][0]}) must not include {other} (row {layers[other][0]})"
                lint.report(path, line, rows)
            else:
                used.setdefault(folder, set()).add(other)
    return used


def torch_header(includes, path, seen):
    """(line, chain) of the first torch header that `path` reaches, directly or through our headers; else None."""
    for line, quoted, angle in includes[path]:
        if TORCH.match(angle):
            return line, angle
        inner = next((other for other in includes if str(other) == f"src/{quoted}"), None)
        if inner and inner not in seen:
            seen.add(inner)
            if found := torch_header(includes, inner, seen):
                return line, f"{quoted} -> {found[1]}"
    return None


def check_torch(lint, layers, includes):
    """Reports files of "!torch" folders that reach a torch header."""
    for path in includes:
        folder = folder_of(path)
        if "torch" in layers.get(folder, (0, ()))[1] and (found := torch_header(includes, path, set())):
            lint.report(path, found[0], f"{folder} must not include torch: {found[1]}")


def read_libraries(lint):
    """{folder: (path of CMakeLists.txt, sources, depends)} of every colossal_library call."""
    libraries = {}
    for path in lint.files((".txt",), "src"):
        for match in LIBRARY.finditer(re.sub(r"#[^\n]*", "", lint.text(path))):
            lists, current = {"SOURCES": [], "DEPENDS": [], "LIBS": []}, None
            for word in match.group(2).split():
                if word in lists:
                    current = lists[word]
                elif current is not None:
                    current.append(word)
            libraries[match.group(1)] = (path, lists["SOURCES"], lists["DEPENDS"])
    return libraries


def reachable(libraries, folder):
    """Folders that `folder` links, directly or through another."""
    seen, pending = set(), list(libraries[folder][2])
    while pending:
        other = pending.pop()
        if other not in seen:
            seen.add(other)
            pending += libraries[other][2] if other in libraries else []
    return seen


def check_libraries(lint, layers, includes, used):
    """Reports CMake lists that do not agree with the includes, the layers or the files of the folder."""
    libraries = read_libraries(lint)
    for folder, (path, sources, depends) in libraries.items():
        for other in depends:
            if folder not in layers or other not in layers or not allowed(layers, folder, other):
                lint.report(path, 1, f"DEPENDS {other}: {folder} must not depend on it (src/LAYERS)")
            elif other not in used.get(folder, ()):
                lint.report(path, 1, f"DEPENDS {other}: no file of {folder} includes it")
        for other in sorted(used.get(folder, set()) - reachable(libraries, folder)):
            lint.report(path, 1, f"{folder} includes {other}, but DEPENDS does not reach it")
        listed = set(re.findall(r"[\w/]+\.cpp", lint.text(path)))  # target_sources() may add some under a condition
        for file in includes:
            if path.parent in file.parents and file.suffix == ".cpp":
                name = str(file.relative_to(path.parent))
                if name not in listed:
                    lint.report(path, 1, f"{name} is not in SOURCES")
        if sources != sorted(sources):
            lint.report(path, 1, "SOURCES are not sorted")


def check(lint):
    layers = read_layers(lint)
    includes = read_includes(lint)
    used = check_directions(lint, layers, includes)
    check_torch(lint, layers, includes)
    check_libraries(lint, layers, includes, used)


if __name__ == "__main__":
    main("layers", check)
