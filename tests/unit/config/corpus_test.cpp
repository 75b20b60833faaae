// Does every file of bad/ fail (or warn) with the id, line and column that its first line expects?
// (scripts/lint/error_ids.py finds ids that no test expects.)
#include "config_sandbox.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = COLOSSAL_TEST_DATA;

/// Rest of the line that starts with `mark`; empty if there is none.
std::string header(const std::string& text, const std::string& mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) {
    return "";
  }
  const std::size_t begin = at + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// As the first line of a corpus file writes it: "id line col [file]; ...".
std::string observed(const Loaded& loaded, const fs::path& path) {
  std::string text;
  for (const Diagnostic& item : loaded.diagnostics) {
    text += (text.empty() ? "" : "; ") + item.id + " " + std::to_string(item.origin.line) + " " +
            std::to_string(item.origin.col);
    if (item.origin.file != path.string()) {
      text += " " + fs::path(item.origin.file).lexically_relative(path.parent_path()).string();
    }
  }
  return text;
}

std::vector<fs::path> corpus() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kFolder / "bad")) {
    if (entry.is_regular_file()) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("every bad file is reported as its first line says", "[config]") {
  for (const fs::path& path : corpus()) {
    const std::string text = read_file(path);
    const std::string world = header(text, "# world: ");
    const Loaded loaded = load(path, options({}, world.empty() ? 0 : std::stoll(world)));
    INFO(path.filename().string() << "\n" << render(loaded.diagnostics));
    CHECK(observed(loaded, path) == header(text, "# expect: "));
  }
}

// All messages in one file, so that a reader can judge them and a change of wording shows in a
// diff.
TEST_CASE("the messages of the corpus are those of messages.txt", "[config]") {
  std::string text;
  for (const fs::path& path : corpus()) {
    const std::string world = header(read_file(path), "# world: ");
    const Loaded loaded = load(path, options({}, world.empty() ? 0 : std::stoll(world)));
    text += "== " + path.filename().string() + "\n" + render(loaded.diagnostics) + "\n";
  }
  const std::string folder = (kFolder / "bad").string() + "/";
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at)) {
    text.erase(at, folder.size());
  }
  const fs::path fresh = fs::path(COLOSSAL_BINARY).parent_path() / "messages.txt";
  std::ofstream(fresh, std::ios::binary) << text;
  INFO("if the new texts are right: cp " << fresh.string() << " tests/unit/config/messages.txt");
  CHECK((text == read_file(kFolder / "messages.txt")));
}

TEST_CASE("what a bad file is - error, warning or note - is what errors.md says", "[config]") {
  const std::string table = read_file(kFolder / "../../../schemas/errors.md");
  for (const fs::path& path : corpus()) {
    const std::string world = header(read_file(path), "# world: ");
    const Loaded loaded = load(path, options({}, world.empty() ? 0 : std::stoll(world)));
    bool wrong = false;
    for (const Diagnostic& item : loaded.diagnostics) {
      INFO(path.filename().string() << " " << item.id);
      const std::string row = header(table, "| `" + item.id + "` | ");
      const std::string codes = row.substr(0, row.find(" |"));  // "3", "2, 3", "5, warning", "note"
      const bool is_error = item.severity == Diagnostic::Severity::error;
      const std::string fits = is_error                                         ? "3"
                               : item.severity == Diagnostic::Severity::warning ? "warning"
                                                                                : "note";
      CHECK_THAT(codes, Catch::Matchers::Contains(fits));
      CHECK((is_error || codes.find('3') == std::string::npos));
      wrong = wrong || is_error;
    }
    INFO(path.filename().string());
    CHECK(loaded.has_errors() == wrong);
  }
}

TEST_CASE("every error says what to do", "[config]") {
  for (const fs::path& path : corpus()) {
    const std::string world = header(read_file(path), "# world: ");
    const Loaded loaded = load(path, options({}, world.empty() ? 0 : std::stoll(world)));
    for (const Diagnostic& item : loaded.diagnostics) {
      INFO(path.filename().string() << " " << item.id);
      const bool acts = item.severity != Diagnostic::Severity::note;
      CHECK((!acts || !item.fix.empty()));
      CHECK_FALSE(item.message.empty());
    }
  }
}

}  // namespace colossal::test
