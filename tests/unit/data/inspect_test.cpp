// Does `dataset inspect` count what is there, in both formats, and find the id that is too large?
#include "data/inspect.hpp"

#include "data/megatron_writer.hpp"
#include "tokenizers/toy.hpp"

#include <nlohmann/json.hpp>

namespace colossal::test {

using Catch::Matchers::Contains;

namespace {

DatasetReport inspect_one(const InspectDatasetOptions& options) {
  const auto reports = inspect_datasets(options);
  REQUIRE(reports.size() == 1);
  return reports.front();
}

/// An llm.c file of these ids.
std::string llmc(const std::vector<std::uint16_t>& ids) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(ids.size());
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(ids.data()), 2 * ids.size());
  return bytes;
}

}  // namespace

TEST_CASE("documents are counted without the id that ends them", "[prepare]") {
  const TempDir folder;
  const std::string toy = write_toy(folder.path());
  MegatronWriter writer(folder.path() / "a", 260);
  for (const Ids& document : {Ids{258, 'o', 259}, Ids{259}, Ids(8, 'x'), Ids{}}) {
    writer.add(document);
    writer.end_document();
  }
  writer.finish();
  InspectDatasetOptions options{.files = {(folder.path() / "a.idx").string()}, .tokenizer = {}};
  const DatasetReport plain = inspect_one(options);
  CHECK(plain.statistics.num_documents == 4);
  CHECK(plain.statistics.num_tokens == 12);
  CHECK(plain.statistics.num_empty == 1);
  CHECK(plain.statistics.num_short == 2);
  CHECK(plain.statistics.smallest == 'o');
  CHECK(plain.statistics.largest == 259);
  CHECK(plain.checksum.size() == 64);
  CHECK_THAT(plain.sample, Contains("258 111 259 259 120"));
  options.tokenizer = {.type = TokenizerType::bpe, .path = toy};
  const DatasetReport decoded = inspect_one(options);
  CHECK(decoded.statistics.num_empty == 2);  // the end alone is no document
  CHECK(decoded.statistics.num_short == 1);
  CHECK(decoded.sample == "hello<|endoftext|><|endoftext|>xxxxxxxx");
  CHECK(decoded.checksum == plain.checksum);
  CHECK_THAT(to_text(decoded), Contains("4, 2 empty, 1 of fewer than 8 tokens"));
  CHECK_THAT(to_text(decoded), Contains("sample     \"hello<|endoftext|>"));
  CHECK(Json::parse(to_json(decoded)).at("tokens") == 12);
}

TEST_CASE("llm.c files have no documents", "[prepare]") {
  const TempDir folder;
  const std::string path = write_file(folder.path(), "a.bin", llmc({5, 1, 50'256}));
  const DatasetReport report = inspect_one({.files = {path}, .tokenizer = {}});
  CHECK(report.statistics.num_tokens == 3);
  CHECK(report.statistics.largest == 50'256);
  CHECK(report.statistics.num_documents == 0);
  CHECK_THAT(to_text(report), Contains("not marked in this format"));
}

TEST_CASE("an id outside the tokenizer is found with its place", "[prepare]") {
  const TempDir folder;
  const std::string path = write_file(folder.path(), "a.bin", llmc({5, 1, 260}));
  const Error error = error_of([&] {
    static_cast<void>(
        inspect_datasets({.files = {path},
                          .tokenizer = TokenizerConfig{.type = TokenizerType::bpe,
                                                       .path = write_toy(folder.path())}}));
  });
  CHECK(error.exit_code() == 4);
  CHECK(error.id() == "token-range");
  CHECK_THAT(error.what(), Contains("a.bin"));
  CHECK_THAT(error.what(), Contains("260"));
}

}  // namespace colossal::test
