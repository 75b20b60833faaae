// Do text files become the samples that the specification promises, and do bad files get their own
// error?
#include "data/text.hpp"

#include "data_helpers.hpp"
#include "support/temp_dir.hpp"

#include <array>
#include <map>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace colossal {
namespace {

using Catch::Matchers::Contains;
using test::error_of;
using test::row_of;
using test::TempDir;
using test::text_config;
using test::write_file;

std::unique_ptr<Dataset> open(const DataConfig& config,
                              Split split,
                              std::int64_t vocabulary = 256) {
  return open_dataset({.data = config, .vocab_size = vocabulary, .seed = 1, .split = split});
}

/// The stream of tokens a list of documents stands for.
std::vector<std::int64_t> stream_of(const std::vector<std::string>& documents) {
  std::vector<std::int64_t> stream;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (i > 0) {
      stream.push_back(0);
    }
    for (const char c : documents[i]) {
      stream.push_back(static_cast<unsigned char>(c));
    }
  }
  return stream;
}

TEST_CASE("training samples are S tokens and the S after them, whole samples only", "[data]") {
  const TempDir folder;
  const DataConfig config = text_config({write_file(folder.path(), "a.txt", "abcdefghijkl")}, 4);
  const auto set = open(config, Split::train);
  REQUIRE(set->size() == 2);  // (12 - 1) / 4
  const Batch batch = set->read(std::vector<std::int64_t>{1, 0});
  CHECK(row_of(batch, "tokens", 0) == std::vector<std::int64_t>{'e', 'f', 'g', 'h'});
  CHECK(row_of(batch, "labels", 0) == std::vector<std::int64_t>{'f', 'g', 'h', 'i'});
  CHECK(row_of(batch, "tokens", 1) == std::vector<std::int64_t>{'a', 'b', 'c', 'd'});
  CHECK(batch.at("tokens").scalar_type() == at::kLong);
}

TEST_CASE("files are documents of one stream, joined by a separator, in the order given",
          "[data]") {
  const TempDir folder;
  const std::vector<std::string> documents = {"one", "\xff\xfe", "x", "the last one"};
  std::vector<std::string> files;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    files.push_back(write_file(folder.path(), std::to_string(9 - i) + ".txt", documents[i]));
  }
  const std::vector<std::int64_t> stream = stream_of(documents);
  for (std::int64_t sequence = 1; sequence < std::ssize(stream); ++sequence) {
    const auto set = open(text_config(files, sequence), Split::train);
    REQUIRE(set->size() == (std::ssize(stream) - 1) / sequence);
    for (std::int64_t i = 0; i < set->size(); ++i) {
      const Batch batch = set->read(std::array{i});
      const auto begin = stream.begin() + i * sequence;
      CHECK(row_of(batch, "tokens", 0) == std::vector(begin, begin + sequence));
      CHECK(row_of(batch, "labels", 0) == std::vector(begin + 1, begin + 1 + sequence));
    }
  }
}

TEST_CASE("evaluation predicts every token but the first exactly once", "[data]") {
  const TempDir folder;
  const std::string text = "abcdefghijklm";
  for (std::int64_t sequence = 1; sequence <= 20; ++sequence) {
    const auto set =
        open(text_config({write_file(folder.path(), "e.txt", text)}, sequence), Split::eval);
    CHECK(set->size() == (12 + sequence - 1) / sequence);
    std::string predicted;
    for (std::int64_t i = 0; i < set->size(); ++i) {
      const Batch batch = set->read(std::array{i});
      const auto tokens = row_of(batch, "tokens", 0);
      const auto labels = row_of(batch, "labels", 0);
      for (std::size_t at = 0; at < labels.size(); ++at) {
        if (labels[at] != kIgnoreLabel) {
          CHECK(labels[at] == tokens[at] + 1);  // successive letters
          predicted += static_cast<char>(labels[at]);
        }
      }
    }
    CHECK(predicted == text.substr(1));
  }
}

TEST_CASE("index -1 is a row without labels; other strangers are refused", "[data]") {
  const TempDir folder;
  const auto set =
      open(text_config({write_file(folder.path(), "a.txt", "abcdefghi")}, 4), Split::train);
  const Batch batch = set->read(std::vector<std::int64_t>{-1, 0});
  CHECK(row_of(batch, "labels", 0) == std::vector<std::int64_t>(4, kIgnoreLabel));
  CHECK(row_of(batch, "tokens", 0) == std::vector<std::int64_t>(4, 0));
  CHECK(row_of(batch, "labels", 1) == std::vector<std::int64_t>{'b', 'c', 'd', 'e'});
  CHECK(error_of([&] { (void)set->read(std::array<std::int64_t, 1>{2}); }).id() == "sample-index");
  CHECK(error_of([&] { (void)set->read(std::array<std::int64_t, 1>{-2}); }).id() == "sample-index");
}

TEST_CASE("a glob names its files in sorted order", "[data]") {
  const TempDir folder;
  write_file(folder.path(), "b.txt", "bbb");
  write_file(folder.path(), "a.txt", "aaa");
  const auto set = open(text_config({(folder.path() / "*.txt").string()}, 6), Split::train);
  const Batch batch = set->read(std::array<std::int64_t, 1>{0});
  CHECK(row_of(batch, "tokens", 0) == std::vector<std::int64_t>{'a', 'a', 'a', 0, 'b', 'b'});
  const std::string pattern = (folder.path() / "*.md").string();
  const Error error = error_of([&] { open(text_config({pattern}, 6), Split::train); });
  CHECK(error.id() == "data-empty");
  CHECK_THAT(error.what(), Contains(pattern) && Contains("0 files"));
}

TEST_CASE("missing, unreadable and empty files are told apart", "[data]") {
  const TempDir folder;
  const auto id_of = [](const std::filesystem::path& path) {
    const Error error = error_of([&] { open(text_config({path.string()}, 4), Split::train); });
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains(path.string()));
    return std::string(error.id());
  };
  const std::string file = write_file(folder.path(), "a.txt", "abcdefghi");
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  CHECK(id_of(folder.path() / "none.txt") == "file-not-found");
  CHECK(id_of(file + "/below") == "file-not-found");
  CHECK(id_of(folder.path()) == "data-unreadable");
  CHECK(id_of(folder.path() / "loop") == "data-unreadable");
  CHECK(id_of("/dev/null") == "data-unreadable");
  CHECK(id_of(write_file(folder.path(), "empty.txt", "")) == "data-empty");
  if (::geteuid() != 0) {  // root may read everything
    std::filesystem::permissions(file, std::filesystem::perms::none);
    CHECK(id_of(file) == "data-unreadable");
  }
}

TEST_CASE("a pipe in the place of a data file blocked for ever", "[data]") {
  const TempDir folder;
  const std::string pipe = (folder.path() / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto refusal = [](const std::string& path) {
    const Error error = error_of([&] { open(text_config({path}, 4), Split::train); });
    CHECK(error.id() == "data-unreadable");
    CHECK(error.exit_code() == 4);
    return std::string(error.what());
  };
  CHECK_THAT(refusal(pipe),
             Contains("'" + pipe + "' is a pipe, not a file") && Contains("\n  fix "));
  CHECK_THAT(refusal("/dev/zero"), Contains("'/dev/zero' is a device, not a file"));
  CHECK_THAT(refusal(folder.path().string()),
             Contains("is a directory, not a file\n  fix   name the files in it"));
}

TEST_CASE("a file that shrank while it was in use ended the process by a signal", "[data]") {
  const TempDir folder;
  const std::string file = write_file(folder.path(), "a.txt", std::string(20'000, 'a'));
  const auto set = open(text_config({file}, 4), Split::train);
  const std::array<std::int64_t, 1> last = {set->size() - 1};
  CHECK(row_of(set->read(last), "tokens", 0) == std::vector<std::int64_t>(4, 'a'));
  std::filesystem::resize_file(file, 100);
  const Error error = error_of([&] { (void)set->read(last); });
  CHECK(error.id() == "data-unreadable");
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(), Contains(file) && Contains("has shrunk from 20000 to 100 bytes"));
}

TEST_CASE("a file that another one replaces or that is removed stays readable", "[data]") {
  const TempDir folder;
  const std::string file = write_file(folder.path(), "a.txt", std::string(20'000, 'a'));
  const auto set = open(text_config({file}, 4), Split::train);
  const std::array<std::int64_t, 1> last = {set->size() - 1};
  std::filesystem::rename(write_file(folder.path(), "b.txt", "short"), file);
  CHECK(row_of(set->read(last), "tokens", 0) == std::vector<std::int64_t>(4, 'a'));
  std::filesystem::remove(file);
  CHECK(row_of(set->read(last), "tokens", 0) == std::vector<std::int64_t>(4, 'a'));
}

TEST_CASE("errors of data files say what to do in a line of their own", "[data]") {
  const TempDir folder;
  const std::string empty = write_file(folder.path(), "empty.txt", "");
  const std::string zero = write_file(folder.path(), "zero.txt", std::string_view("abc\0def", 7));
  const std::vector<std::vector<std::string>> bad = {
      {}, {empty}, {zero}, {folder.path().string()}, {(folder.path() / "*.md").string()}};
  for (const std::vector<std::string>& files : bad) {
    const Error error = error_of([&] { open(text_config(files, 4), Split::train); });
    INFO(error.what());
    CHECK(std::string(error.what()).find("\n  fix   ") != std::string::npos);
  }
}

TEST_CASE("a list without files is empty data", "[data]") {
  CHECK(error_of([] { open(text_config({}, 4), Split::train); }).id() == "data-empty");
}

TEST_CASE("too short a text is refused with counts", "[data]") {
  const TempDir folder;
  const DataConfig ten = text_config({write_file(folder.path(), "ten.txt", "0123456789")}, 64);
  const Error error = error_of([&] { open(ten, Split::train); });
  CHECK(error.id() == "data-too-short");
  CHECK_THAT(error.what(), Contains("10 tokens, seq_length 64 needs at least 65"));
  CHECK(open(ten, Split::eval)->size() == 1);
  const DataConfig one = text_config({write_file(folder.path(), "one.txt", "x")}, 64);
  CHECK_THAT(error_of([&] { open(one, Split::eval); }).what(),
             Contains("1 token, seq_length 64 needs at least 2"));
}

TEST_CASE("the separator byte inside a text is refused with file and offset", "[data]") {
  const TempDir folder;
  const std::string good = write_file(folder.path(), "good.txt", "abcdefghi");
  const std::string bad = write_file(folder.path(), "bad.txt", std::string_view("abc\0def", 7));
  const Error error = error_of([&] { open(text_config({good, bad}, 4), Split::train); });
  CHECK(error.id() == "separator-in-text");
  CHECK_THAT(error.what(), Contains(bad) && Contains("offset 3"));
}

TEST_CASE("a vocabulary below 256 cannot hold byte tokens", "[data]") {
  const TempDir folder;
  const DataConfig config = text_config({write_file(folder.path(), "a.txt", "abcdefghi")}, 4);
  CHECK(error_of([&] { open(config, Split::train, 255); }).id() == "vocab-too-small");
}

TEST_CASE("the fingerprint follows content and borders, not names", "[data]") {
  const TempDir folder;
  const auto print = [&](const std::vector<std::string>& texts, const std::string& prefix) {
    std::vector<std::string> files;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      files.push_back(write_file(folder.path(), prefix + std::to_string(i), texts[i]));
    }
    return open(text_config(files, 4), Split::train)->fingerprint();
  };
  const std::string base = print({"abcdef", "ghi"}, "p");
  CHECK(base == print({"abcdef", "ghi"}, "q"));
  CHECK(base != print({"abcdef", "ghj"}, "r"));
  CHECK(base != print({"abcde", "fghi"}, "s"));
  CHECK(base != print({"ghi", "abcdef"}, "t"));
}

TEST_CASE("the summary counts tokens and samples", "[data]") {
  const TempDir folder;
  const std::string a = write_file(folder.path(), "a.txt", std::string(1234567, 'a'));
  CHECK_THAT(open(text_config({a}, 100), Split::train)->summary(),
             Contains("a.txt: 1,234,567 tokens, 12,345 samples"));
  CHECK_THAT(open(text_config({a, a}, 100), Split::train)->summary(),
             Contains("a.txt and 1 more: 2,469,135 tokens"));
}

}  // namespace
}  // namespace colossal
