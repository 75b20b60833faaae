// Are defects that yaml-cpp accepts or mislocates found at their place?
#include "config/scan.hpp"

#include "config_sandbox.hpp"
#include "support/catch.hpp"

namespace colossal::test {
namespace {

std::string scan(const std::string& text, bool json = false) {
  detail::Report report;
  Origin base;
  base.file = "x.yaml";
  const std::string clean = detail::scan_yaml(text, base, json, report);
  std::string found;
  for (const Diagnostic& item : report.items()) {
    found += item.id + " " + std::to_string(item.origin.line) + " " +
             std::to_string(item.origin.col) + ";";
  }
  return found;
}

}  // namespace

TEST_CASE("legal YAML raises no alarm", "[config]") {
  for (const char* text : {"a: don't\nb: it's \"so\"\n",
                           "a: 'it''s'\nb: \"x \\\" y\"\n",
                           "a: x[0]\nb: y{1\n",
                           "a: [1, [2, {c: 'd]'}], \"e}\"]\n",
                           "a: |\n  'unclosed [\n\n  \"too\nb: >-\n  {x\nc: 1\n",
                           "a: |\n  x\n",
                           "# 'comment [ \"\na: 1 # it's\n",
                           "a: 'two\n  lines'\nb: 1\n",
                           "a: &x 'y'\nb: *x\nc: {d: *x, e: *x}\nf: [*x]\n",
                           "? a\n: 'b'\n- \"c\"\n",
                           "{\"a\":1,\"b\":[\"c\"]}",
                           "a: #'\n",
                           "'a': 1\n\"b\": 2",
                           "a: \"x\\\ny\"\n",
                           ""}) {
    INFO(text);
    CHECK(scan(text).empty());
  }
}

TEST_CASE("an unclosed quote is reported where it opens", "[config]") {
  CHECK(scan("a: 'x\nb: 2\n") == "unclosed-quote 1 4;");
  CHECK(scan("a: 1\nb: [c, \"d]\n") == "unclosed-quote 2 8;");
  CHECK(scan("a: 'x\nb: 'y'\n") == "unclosed-quote 1 4;");
  CHECK(scan("a: \"x\\\"") == "unclosed-quote 1 4;");
  CHECK(scan("a: '") == "unclosed-quote 1 4;");
  CHECK(scan("a: \"\\") == "unclosed-quote 1 4;");
}

TEST_CASE("an unclosed bracket is reported where it opens", "[config]") {
  CHECK(scan("a: [1, 2\nb: 3\n") == "unclosed-bracket 1 4;");
  CHECK(scan("a: {b: [1, 2}\n") == "unclosed-bracket 1 8;");
  CHECK(scan("a: {b: 1\n") == "unclosed-bracket 1 4;");
}

TEST_CASE("tabs may not indent, but may separate", "[config]") {
  CHECK(scan("a:\n\tb: 1\n  \tc: 2\n") == "tab-indent 2 1;tab-indent 3 3;");
  CHECK(scan("a:\t1\n\t\n\t# comment\n").empty());
  CHECK(scan("{\n\t\"a\": 1\n}\n", true).empty());
}

TEST_CASE("bytes that are not UTF-8 are reported at their place", "[config]") {
  for (const char* bytes : {"\xff",
                            "\xc0\x80",
                            "\xe0\x80\x80",
                            "\xed\xa0\x80",
                            "\xf4\x90\x80\x80",
                            "\xf8\x88\x80\x80",
                            "\x80",
                            "\xc3"}) {
    CHECK(scan(std::string("a: 1\nb: ") + bytes) == "not-utf8 2 4;");
  }
  CHECK(scan("a: \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n").empty());
  CHECK(scan(std::string("a: \0", 4)) == "control-character 1 4;");
  CHECK(scan("a: \x1b[31m") == "control-character 1 4;");
}

TEST_CASE("a byte-order mark and CR LF change nothing", "[config]") {
  const ConfigSandbox box;
  std::string text = "\xEF\xBB\xBF";
  for (const char c : kSynthetic) {
    text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  }
  CHECK(summary(box.load(text)).empty());
  CHECK(summary(box.load(text + "lr: 1\r\n")) == "unknown-key 6 1");
}

TEST_CASE("a file that is not UTF-8 is one error and renders safely", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic + "run: {name: \"a\xff\"}\n");
  CHECK(summary(loaded) == "not-utf8 6 15");
  CHECK(render(loaded.diagnostics).find("\xff") == std::string::npos);
}

TEST_CASE("JSON is accepted, with tabs", "[config]") {
  const ConfigSandbox box;
  const auto path = box.write(
      "run.json",
      "{\n\t\"version\": 1,\n\t\"model\": {\"type\": \"gpt\", \"preset\": \"gpt2-124m\"},\n"
      "\t\"data\": {\"type\": \"synthetic\", \"seq_length\": 64},\n"
      "\t\"train\": {\"steps\": 5, \"micro_batch_size\": 1},\n"
      "\t\"optimizer\": {\"type\": \"adamw\", \"lr\": 0.001}\n}\n");
  const Loaded loaded = load(path);
  CHECK(summary(loaded).empty());
  CHECK(loaded.config.model.hidden_size == 768);
}

}  // namespace colossal::test
