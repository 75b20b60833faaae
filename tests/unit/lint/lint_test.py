# Does every lint reject the bad sample it exists for, and accept a good tree?
"""Each test writes a small tree into a temporary folder and runs one lint on it, as scripts/lint/all.sh does."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

LINTS = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "lint"
sys.path.insert(0, str(LINTS))

import cpp  # noqa: E402  (found through the line above)

LAYERS = "0 core\n1 config !torch\n1 comm\n2 mesh\n3 nn !comm\n7 apps\n"
HEADER = "// What is it? A sample.\n#pragma once\n\n"


def run_lint(name, files):
    """(exit code, output) of one lint on a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, LINTS / f"{name}.py", folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class LintCase(unittest.TestCase):
    def rejects(self, name, files, *expected):
        code, output = run_lint(name, files)
        self.assertEqual(code, 1, output)
        for text in expected:
            self.assertIn(text, output)

    def accepts(self, name, files):
        code, output = run_lint(name, files)
        self.assertEqual(code, 0, output)


class Layers(LintCase):
    def tree(self, **changes):
        files = {
            "src/LAYERS": LAYERS,
            "src/core/batch.hpp": "#include <ATen/core/Tensor.h>\n",
            "src/config/config.cpp": '#include "core/error.hpp"\n',
            "src/mesh/mesh.cpp": '#include "comm/comm.hpp"\n#include "mesh/mesh.hpp"\n',
            "src/mesh/CMakeLists.txt": "colossal_library(mesh SOURCES mesh.cpp DEPENDS comm)\n",
        }
        return files | changes

    def test_accepts_downward_includes(self):
        self.accepts("layers", self.tree())

    def test_rejects_an_upward_include(self):
        self.rejects("layers", self.tree(**{"src/comm/a.cpp": '\n#include "mesh/mesh.hpp"\n'}),
                     "src/comm/a.cpp:2:", "comm (row 1) must not include mesh (row 2)")

    def test_rejects_a_sibling(self):
        self.rejects("layers", self.tree(**{"src/comm/a.cpp": '#include "config/config.hpp"\n'}), "must not include config")

    def test_rejects_an_excluded_lower_folder(self):
        self.rejects("layers", self.tree(**{"src/nn/a.cpp": '#include "comm/comm.hpp"\n'}), "nn (row 3) must not include comm")

    def test_rejects_torch_even_through_our_header(self):
        self.rejects("layers", self.tree(**{"src/config/a.cpp": '#include "core/batch.hpp"\n'}),
                     "config must not include torch: core/batch.hpp -> ATen/core/Tensor.h")

    def test_rejects_unknown_folders(self):
        self.rejects("layers", self.tree(**{"src/extra/a.cpp": "", "src/nn/b.cpp": '#include "near.hpp"\n'}),
                     "'extra' is not in src/LAYERS", '"near.hpp" does not begin with a folder')

    def test_accepts_headers_beside_apps_and_generated_ones_only(self):
        tree = self.tree(**{"apps/a.cpp": '#include "a.hpp"\n', "apps/a.hpp": "", "src/nn/b.cpp": '#include "b.hpp"\n',
                            "src/nn/CMakeLists.txt": "make(generated/b.hpp)\n"})
        self.accepts("layers", tree)
        del tree["src/nn/CMakeLists.txt"]
        self.rejects("layers", tree, '"b.hpp" does not begin with')

    def test_rejects_a_malformed_layer_line(self):
        self.rejects("layers", self.tree(**{"src/LAYERS": LAYERS + "x wrong\n"}), "src/LAYERS:7:")

    def test_rejects_cmake_lists_that_disagree(self):
        for lists, message in (("SOURCES mesh.cpp", "mesh includes comm, but DEPENDS does not reach it"),
                               ("SOURCES mesh.cpp DEPENDS comm nn", "DEPENDS nn: mesh must not depend on it"),
                               ("SOURCES mesh.cpp DEPENDS comm core", "DEPENDS core: no file of mesh includes it"),
                               ("SOURCES DEPENDS comm", "mesh.cpp is not in SOURCES"),
                               ("SOURCES mesh.cpp a.cpp DEPENDS comm", "SOURCES are not sorted")):
            with self.subTest(lists):
                self.rejects("layers", self.tree(**{"src/mesh/CMakeLists.txt": f"colossal_library(mesh {lists})\n"}), message)


class Includes(LintCase):
    def test_accepts_narrow_headers(self):
        self.accepts("includes", {"src/nn/a.hpp": HEADER + "#include <ATen/core/Tensor.h>\n",
                                  "src/comm/a.cpp": "#include <torch/csrc/distributed/c10d/Store.hpp>\n"})

    def test_rejects_heavy_headers_anywhere(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "torch/nn/module.h", "iostream"):
            with self.subTest(header):
                self.rejects("includes", {"tests/a.cpp": f"#include <{header}>\n"}, f"<{header}> is never included")

    def test_rejects_autograd_and_ops_in_public_headers(self):
        self.rejects("includes", {"src/nn/a.hpp": HEADER + "#include <torch/csrc/autograd/variable.h>\n"}, "belongs in a .cpp")
        self.rejects("includes", {"src/comm/detail/a.hpp": HEADER + "#include <torch/csrc/distributed/c10d/Store.hpp>\n"},
                     "belongs in a .cpp")
        self.accepts("includes", {"src/nn/detail/a.hpp": HEADER + "#include <torch/csrc/autograd/variable.h>\n"})
        self.rejects("includes", {"src/nn/a.hpp": HEADER + "#include <ATen/ops/mm.h>\n"}, "nothing heavier of torch")

    def test_rejects_c10d_outside_comm(self):
        self.rejects("includes", {"src/nn/a.cpp": "#include <torch/csrc/distributed/c10d/Store.hpp>\n"}, "stays in src/comm")

    def test_rejects_using_namespace_and_missing_guard(self):
        self.rejects("includes", {"src/nn/a.cpp": "using namespace colossal;\n", "src/nn/b.hpp": "int x;\n",
                                  "tests/a.cpp": "using namespace std;\nusing namespace colossal::test;\n"},
                     "src/nn/a.cpp:1:", "tests/a.cpp:1:", "needs '#pragma once'")
        self.accepts("includes", {"tests/a.cpp": "using namespace colossal;\nusing namespace std::chrono_literals;\n"})

    def test_rejects_parsers_in_public_headers(self):
        self.rejects("includes", {"src/checkpoint/a.hpp": HEADER + "#include <hdf5.h>\n"}, "belongs in a .cpp")
        self.accepts("includes", {"src/checkpoint/detail/a.hpp": HEADER + "#include <hdf5.h>\n"})


class Size(LintCase):
    def test_accepts_limits(self):
        self.accepts("size", {"src/nn/a.cpp": "int f(int a, int b) {\n" + "  a += b;\n" * 58 + "}\n"})

    def test_rejects_long_functions(self):
        body = "{\n" + "  a += 1;\n" * 59 + "}\n"
        self.rejects("size", {"src/nn/a.cpp": f"namespace x {{\nvoid A::f(int a) const {body}}}\n"},
                     "src/nn/a.cpp:2: A::f: 61 lines")
        self.rejects("size", {"tests/a_test.cpp": f'TEST_CASE("a {{ b", "[c]") {body}'}, "TEST_CASE: 61 lines")
        self.rejects("size", {"scripts/a.py": "def f():\n" + "    x = 1\n" * 60}, "f: 61 lines")

    def test_rejects_long_functions_behind_brace_initialisers(self):
        text = "A::A(int a)\n    : b_{a}, c_(f({1, 2})) {\n" + "  b_ += 1;\n" * 57 + "}\n"
        self.accepts("size", {"src/nn/a.cpp": text})
        self.rejects("size", {"src/nn/a.cpp": text.replace("{\n", "{\n\n", 1)}, "A::A: 61 lines")

    def test_rejects_long_files_headers_and_include_lists(self):
        self.rejects("size", {"src/nn/a.cpp": "\n" * 401}, "401 lines, the limit is 400")
        self.rejects("size", {"src/nn/a.hpp": "\n" * 251}, "251 lines, the limit is 250")
        self.rejects("size", {"src/nn/a.cpp": "#include <a>\n" * 21}, "21 includes")

    def test_rejects_many_parameters(self):
        self.rejects("size", {"src/nn/a.hpp": "void f(int a, int b, int c, int d, std::map<int, int> e, int g, int h);\n"},
                     "f: 7 parameters")
        self.accepts("size", {"src/nn/a.hpp": "void f(int a, int b, int c, int d, std::map<int, int> e, int g = h(1, 2));\n"})

    def test_rejects_deep_nesting(self):
        deep = "void f() {\n  for (;;) {\n    while (a) {\n      %s\n    }\n  }\n}\n"
        self.accepts("size", {"src/nn/a.cpp": deep % "g(std::array<int, 2>{1, 2}, {3}); int b[] = {4};"})
        self.rejects("size", {"src/nn/a.cpp": deep % "if (c) { d(); }"}, "f: nesting 4")
        self.rejects("size", {"src/nn/a.cpp": deep % "g([] { return 1; });"}, "f: nesting 4")


class Names(LintCase):
    def test_accepts_house_style(self):
        self.accepts("names", {"src/nn/layer_factory.cpp": "", "configs/gpt-2.5d.yaml": "a_b: {c_d: 1}  # No: comment\n"})

    def test_rejects_other_cases(self):
        self.rejects("names", {"src/nn/LayerFactory.cpp": ""}, "'LayerFactory' is not snake_case")
        self.rejects("names", {"configs/gpt_tiny.yaml": "a: 1\n"}, "kebab-case")
        self.rejects("names", {"configs/a.yaml": "run:\n  outputDir: x\nmodel: {type: gpt, num-layers: 2}\n"},
                     "configs/a.yaml:2:", "'outputDir'", "'num-layers'")
        self.rejects("names", {"tests/unit/nn/attention.cpp": 'TEST_CASE("a") {}\n'}, "_test.cpp")


class Todo(LintCase):
    def test_accepts_marks_with_an_issue(self):
        self.accepts("todo", {"src/nn/a.cpp": "// What is it? A sample.\n// " + "TO" "DO(#12): later\n"})

    def test_rejects_open_marks(self):
        for mark in ("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"):
            with self.subTest(mark):
                self.rejects("todo", {"src/nn/a.cpp": f"// What is it? A sample.\n// {mark}: later\n"}, "a.cpp:2: open mark")

    def test_rejects_untidy_text(self):
        self.rejects("todo", {"README.md": "caf\u00e9\n"}, "outside ASCII")
        self.rejects("todo", {"README.md": "a \n"}, "white space")
        self.rejects("todo", {"src/nn/a.cpp": "#include <a>\n"}, "must begin with a '//' sentence")
        self.rejects("todo", {"scripts/a.sh": "#!/bin/sh\necho\n"}, "scripts/a.sh:2: must begin with a '#' sentence")


class Docs(LintCase):
    def tree(self, declarations, path="src/nn/a.hpp"):
        return {path: HEADER + "namespace colossal {\n\n" + declarations + "\n}\n", "src/nn/README.md": "nn\n"}

    def test_accepts_documented_declarations(self):
        self.accepts("docs", self.tree("class Forward;\n\n/// A.\nclass A {\n public:\n  A();\n  /// F.\n  int f();\n  int g();\n"
                                       "\n private:\n  void h();\n};\n\n/// K.\ntemplate <class T>\nT k();\n\ntemplate <>\nstruct W<A> {};\n"))
        self.accepts("docs", self.tree("int hidden();\n", "src/nn/detail/a.hpp"))
        self.accepts("docs", self.tree("namespace colossal::detail {\nint hidden();\n}\n"))

    def test_rejects_undocumented_declarations(self):
        for declaration, name in (("int f(int a);", "f"), ("class A {};", "A"), ("using B = int;", "B"),
                                  ("/// C.\nclass C {\n public:\n  C();\n\n  int d();\n};", "d"), ("enum class E { a };", "E"),
                                  ("template <class T>\nT k(T a) {\n  return a;\n}", "k")):
            with self.subTest(name):
                self.rejects("docs", self.tree(declaration + "\n"), f"'{name}' has no '///' comment")

    def test_rejects_a_folder_without_readme(self):
        self.rejects("docs", {"src/nn/a.cpp": ""}, "src/nn:1: the folder has no README.md")

    def test_rejects_config_fields_without_help(self):
        fields = 'void d(V& v, C& c) {\n  v.field("a", c.a, {.min = 1, .help = "good"});\n  v.field("b", c.b, {.min = 1});\n}\n'
        self.rejects("docs", {"src/config/a.cpp": fields, "src/config/README.md": "c\n"}, "a.cpp:3: configuration field 'b'")


class Words(LintCase):
    def test_accepts_system_paths(self):
        self.accepts("words", {"README.md": "see /usr/bin/python3, /dev/null and $root/work/x\n"})

    def test_rejects_machine_paths_and_hosts(self):
        for word in ("/" "work/main", "/" "home/me", "py" "pi.org", "deb" ".debian"):
            with self.subTest(word):
                self.rejects("words", {"README.md": f"see {word}\n"}, "README.md:1:")


class ErrorIds(LintCase):
    ENUM = "enum class ErrorKind : std::uint8_t {\n  internal = 1,\n  config = 3,\n};\n"
    SOURCE = ('void f() {\n  check(a < b, ErrorKind::config, "too-large", "{} [x]", a);\n'
              '  fail(ErrorKind::internal, a ? "first-kind" : "second-kind", "text");\n'
              '  // fail(ErrorKind::internal, "in-comment", "text");\n'
              '  fail(static_cast<ErrorKind>(kind), id, "{}", text);\n'
              '  report.error("tag", path, origin, "text");\n  report_.warning("careful", path);\n'
              '  target.fail(node, {"bad-word", fmt::format("{}", x), "fix"});\n'
              '  return Problem{"bad-number", "text"};\n  usage(command, "no-command", "text");\n'
              '  log::console("nothing to do [all-done]");\n'
              '  log::warn("[at-start] step {}, [in-the-middle] of a text", 1);\n'
              '  rows.push_back(fmt::format("{} [only-quoted]", a));\n  launch.warning = fmt::format("{} [by-member]", a);\n'
              '  /// "x [in-a-comment]"\n  log::console(fmt::format("{} [in-a-call]", f(a)));\n'
              '  log::error("lost [for-good]");\n  log::info("found [again-now]");\n}\n')

    def listed(self, source):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in (("src/core/error.hpp", self.ENUM), ("src/nn/a.cpp", source)):
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True)
                file.write_text(text, encoding="utf-8")
            command = [sys.executable, LINTS / "error_ids.py", "--list", folder]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def test_lists_what_any_reporting_function_is_given(self):
        lines = [line.removesuffix(" src/nn/a.cpp") for line in self.listed(self.SOURCE).splitlines()]
        self.assertEqual(lines, ["again-now note -", "all-done note -", "at-start warning -", "bad-number config 3",
                                 "bad-word config 3", "by-member warning -", "careful warning -", "first-kind internal 1", "for-good warning -",
                                 "in-a-call note -", "no-command usage -",
                                 "second-kind internal 1", "tag config 3", "too-large config 3"])

    def test_rejects_an_id_without_test(self):
        source = 'void f() {\n  fail(ErrorKind::config, "too-large", "text");\n  fail(ErrorKind::config, "tag", "text");\n}\n'
        tree = {"src/nn/a.cpp": source, "tests/unit/nn/a_test.cpp": 'CHECK(id == "too-large-by-far"); // a tag\n'}
        self.rejects("error_ids", tree, "names the id 'too-large'", "names the id 'tag'")
        tree["tests/unit/nn/a_test.cpp"] = 'CHECK(id == "too-large" && text == "wrong [tag]");\n'
        self.accepts("error_ids", tree)


class Errors(LintCase):
    SOURCE = 'fail(ErrorKind::config, "too-large", "x");\nfail(ErrorKind::internal, "a-bug", "x");\n'

    def tree(self, texts):
        return {"src/core/error.hpp": ErrorIds.ENUM, "src/mesh/a.cpp": self.SOURCE, "schemas/errors.txt": texts}

    def written(self, texts):
        """The tree with the list that --write makes of it."""
        tree = self.tree(texts)
        with tempfile.TemporaryDirectory() as folder:
            for path, text in tree.items():
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            subprocess.run([sys.executable, LINTS / "errors.py", "--write", folder], check=False)
            return tree | {"schemas/errors.md": (pathlib.Path(folder) / "schemas/errors.md").read_text(encoding="utf-8")}

    def test_joins_texts_with_exit_codes(self):
        tree = self.written("# head\ntoo-large: it is too large | make it smaller\n")
        self.assertIn("| `too-large` | 3 | it is too large | make it smaller |\n", tree["schemas/errors.md"])
        self.assertIn("`a-bug`", tree["schemas/errors.md"])
        self.accepts("errors", tree)

    def test_rejects_an_id_without_text_and_a_text_without_id(self):
        self.rejects("errors", self.tree("too-small: it is | mend it\n"),
                     "'too-large' has no line", "nothing reports 'too-small'", "is stale")

    def test_rejects_disorder_and_malformed_lines(self):
        self.rejects("errors", self.tree("too-large: a | b\nbad-a: c | d\nno fix: x\n"),
                     "errors.txt:2: 'bad-a' must stand before 'too-large'", "errors.txt:3: not `id: meaning | fix`")


class UserCases(LintCase):
    TEST = 'TEST_CASE("it works", "[a]") {}\nRANK_TEST_CASE(\n    "it \\"waits\\"", 2) {}\n'

    def tree(self, *rows):
        return {"tests/README.md": "| case | what | test |\n|---|---|---|\n" + "\n".join(rows) + "\n",
                "tests/unit/a_test.cpp": self.TEST}

    def test_accepts_rows_whose_tests_exist_or_cannot_yet(self):
        self.accepts("user_cases", self.tree("| C1.1 | it fails | `it works` |", "| C1.2 | it hangs | not built: waiting |",
                                             '| C5.70 | it waits | `it \\"waits\\"` |', "| other | tables | are free |"))

    def test_rejects_a_test_that_is_gone(self):
        self.rejects("user_cases", self.tree("| C1.1 | it fails | `it worked` |"),
                     "tests/README.md:3: C1.1: no test is called 'it worked'")

    def test_rejects_rows_it_cannot_read_and_an_empty_table(self):
        self.rejects("user_cases", self.tree("| C1.1 | it fails | it works |"), "tests/README.md:3: not `| C1.2 |")
        self.rejects("user_cases", self.tree("| C1.1 | it fails | not built:|"), "tests/README.md:3: not `| C1.2 |")
        self.rejects("user_cases", self.tree(), "tests/README.md:1: the table of cases is gone")


class Empty(LintCase):
    def test_every_lint_rejects_a_tree_without_files(self):
        for lint in ("includes", "size", "names", "todo", "docs", "words", "error_ids"):
            with self.subTest(lint):
                self.rejects(lint, {"other.bin": ""}, "no file to look at")


class Parser(unittest.TestCase):
    def test_finds_functions_with_their_bodies(self):
        text = ("namespace a {\nconst std::map<int, std::function<void(int)>> kTable = {{1, [](int) {}}};\n"
                "template <class T, class = std::enable_if_t<(sizeof(T) > 1)>>\n"
                "[[nodiscard]] auto f(std::function<int(int)> g, const std::map<int, T>& m) -> std::vector<T> {\n  return {};\n}\n"
                "bool operator==(const A& a, const B& b);\nstruct S {\n  int x = f(1, {2});\n  int y() const noexcept { return 1'000; }\n};\n}\n")
        found = [(d.kind, d.name, d.num_parameters, d.body is not None) for d in cpp.declarations(text) if d.kind == "function"]
        self.assertEqual(found, [("function", "f", 2, True), ("function", "operator==", 2, False), ("function", "y", 0, True)])


if __name__ == "__main__":
    unittest.main()
