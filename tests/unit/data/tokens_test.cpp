// Do files of token ids become the rows, labels and document starts that data.packing promises?
#include "data/tokens.hpp"

#include "data/loader.hpp"
#include "data_helpers.hpp"
#include "support/temp_dir.hpp"
#include "support/token_files.hpp"

#include <array>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Catch::Matchers::Contains;
using test::error_of;
using test::ids_from;
using test::row_of;
using test::TempDir;
using test::write_file;
using test::write_megatron;

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t kNone = kIgnoreLabel;

/// Settings of a tokens set with these files for both splits.
DataConfig config_of(const std::vector<std::string>& files, std::int64_t sequence) {
  DataConfig config = test::text_config(files, sequence);
  config.type = DataType::tokens;
  return config;
}

std::unique_ptr<Dataset> open_tokens(const DataConfig& config,
                                     Split split = Split::train,
                                     std::int64_t vocabulary = 1000) {
  return open_dataset({.data = config, .vocab_size = vocabulary, .seed = 1, .split = split});
}

/// Fields of one sample.
struct Sample {
  Ids tokens;
  Ids labels;
  Ids starts;  ///< empty without the field
};

Sample read(const Dataset& set, std::int64_t index) {
  const Batch batch = set.read(std::array{index});
  const bool starts = batch.fields.contains("document_starts");
  return {row_of(batch, "tokens", 0),
          row_of(batch, "labels", 0),
          starts ? row_of(batch, "document_starts", 0) : Ids{}};
}

TEST_CASE("concat cuts the ids of all files, of both formats, as one stream", "[data]") {
  const TempDir folder;
  const std::vector<std::string> files = {
      write_megatron(folder.path(), "a", {ids_from(10, 5), ids_from(50, 4)}),
      write_file(folder.path(), "b.bin", test::llmc_bytes(ids_from(100, 8))),
      write_megatron(folder.path(), "c", {ids_from(200, 3)})};
  Ids stream = ids_from(10, 5);
  for (const Ids& more : {ids_from(50, 4), ids_from(100, 8), ids_from(200, 3)}) {
    stream.insert(stream.end(), more.begin(), more.end());
  }
  for (std::int64_t sequence = 1; sequence < std::ssize(stream); ++sequence) {
    const auto train = open_tokens(config_of(files, sequence));
    REQUIRE(train->size() == (std::ssize(stream) - 1) / sequence);
    for (std::int64_t i = 0; i < train->size(); ++i) {
      const Sample sample = read(*train, i);
      const auto begin = stream.begin() + i * sequence;
      CHECK(sample.tokens == Ids(begin, begin + sequence));
      CHECK(sample.labels == Ids(begin + 1, begin + 1 + sequence));
      CHECK(sample.starts.empty());
    }
    const auto eval = open_tokens(config_of(files, sequence), Split::eval);
    Ids predicted;
    for (std::int64_t i = 0; i < eval->size(); ++i) {
      for (const std::int64_t label : read(*eval, i).labels) {
        if (label != kNone) {
          predicted.push_back(label);
        }
      }
    }
    CHECK(predicted == Ids(stream.begin() + 1, stream.end()));
  }
}

TEST_CASE("a glob over a pair reads it once", "[data]") {
  const TempDir folder;
  write_megatron(folder.path(), "a", {ids_from(10, 5)});
  write_megatron(folder.path(), "b", {ids_from(20, 4)});
  for (const char* pattern : {"*", "*.bin", "*.idx", "?.*"}) {
    const auto set = open_tokens(config_of({(folder.path() / pattern).string()}, 8));
    CHECK(read(*set, 0).tokens == Ids{10, 11, 12, 13, 14, 20, 21, 22});
  }
}

TEST_CASE("document starts divide a row that is cut from the stream", "[data]") {
  const TempDir folder;
  DataConfig config =
      config_of({write_megatron(folder.path(), "a", {ids_from(1, 3), {}, {}, ids_from(4, 5)}),
                 write_megatron(folder.path(), "b", {ids_from(9, 4)})},
                4);
  config.cross_document_attention = false;
  const auto train = open_tokens(config);
  CHECK(train->size() == 2);
  CHECK(read(*train, 0).tokens == Ids{1, 2, 3, 4});
  CHECK(read(*train, 0).labels == Ids{2, 3, 4, 5});
  CHECK(read(*train, 0).starts == Ids{0, 0, 0, 3});
  CHECK(read(*train, 1).tokens == Ids{5, 6, 7, 8});
  CHECK(read(*train, 1).starts == Ids{0, 0, 0, 0});
  const auto eval = open_tokens(config, Split::eval);
  CHECK(read(*eval, 2).tokens == Ids{9, 10, 11, 0});
  CHECK(read(*eval, 2).labels == Ids{10, 11, 12, kNone});
  CHECK(read(*eval, 2).starts == Ids{0, 0, 0, 3});
  const Batch padding = train->read(std::array<std::int64_t, 1>{-1});
  CHECK(row_of(padding, "document_starts", 0) == Ids(4, 0));
}

TEST_CASE("packed rows mask what stands at no place or ends a document", "[data]") {
  const TempDir folder;
  DataConfig config =
      config_of({write_megatron(
                    folder.path(), "a", {ids_from(1, 3), ids_from(11, 5), ids_from(21, 2), {31}})},
                6);
  config.packing = Packing::pad;
  const auto pad = open_tokens(config);
  REQUIRE(pad->size() == 3);
  CHECK(read(*pad, 0).tokens == Ids{1, 2, 3, 0, 0, 0});
  CHECK(read(*pad, 0).labels == Ids{2, 3, kNone, kNone, kNone, kNone});
  CHECK(read(*pad, 0).starts.empty());
  CHECK_THAT(pad->summary(), Contains("11 tokens in 4 documents, 55.6 % filled, 3 samples"));

  config.packing = Packing::greedy;
  config.cross_document_attention = false;
  const auto greedy = open_tokens(config);
  REQUIRE(greedy->size() == 2);
  CHECK(read(*greedy, 0).tokens == Ids{11, 12, 13, 14, 15, 0});
  CHECK(read(*greedy, 1).tokens == Ids{1, 2, 3, 21, 22, 0});
  CHECK(read(*greedy, 1).labels == Ids{2, 3, kNone, 22, kNone, kNone});
  CHECK(read(*greedy, 1).starts == Ids{0, 0, 0, 3, 3, 5});
}

TEST_CASE("a long document goes on in the next row, every token predicted once", "[data]") {
  const TempDir folder;
  DataConfig config = config_of({write_megatron(folder.path(), "a", {ids_from(1, 10)})}, 4);
  for (const Packing packing : {Packing::pad, Packing::greedy}) {
    config.packing = packing;
    const auto set = open_tokens(config);
    Ids predicted;
    for (std::int64_t i = 0; i < set->size(); ++i) {
      for (const std::int64_t label : read(*set, i).labels) {
        if (label != kNone) {
          predicted.push_back(label);
        }
      }
    }
    CHECK(predicted == ids_from(2, 9));
  }
}

TEST_CASE("text files are documents that can be packed", "[data]") {
  const TempDir folder;
  DataConfig config = test::text_config(
      {write_file(folder.path(), "a.txt", "abc"), write_file(folder.path(), "b.txt", "de")}, 8);
  config.packing = Packing::greedy;
  config.cross_document_attention = false;
  const auto set = open_tokens(config);
  REQUIRE(set->size() == 1);
  CHECK(read(*set, 0).tokens == Ids{'a', 'b', 'c', 0, 'd', 'e', 0, 0});
  CHECK(read(*set, 0).labels == Ids{'b', 'c', 0, kNone, 'e', kNone, kNone, kNone});
  CHECK(read(*set, 0).starts == Ids{0, 0, 0, 0, 4, 4, 6, 6});
}

TEST_CASE("packing needs documents, which llm.c files have not", "[data]") {
  const TempDir folder;
  const auto llmc = write_file(folder.path(), "b.bin", test::llmc_bytes(ids_from(100, 50)));
  const auto megatron = write_megatron(folder.path(), "a", {ids_from(10, 5)});
  DataConfig config = config_of({megatron, llmc}, 4);
  config.packing = Packing::greedy;
  CHECK_THAT(error_of([&] { (void)open_tokens(config); }).what(), Contains("data.packing needs"));
  config.packing = Packing::concat;
  config.cross_document_attention = false;
  const Error error = error_of([&] { (void)open_tokens(config); });
  CHECK(error.id() == "sequence-packing");
  CHECK(error.exit_code() == 4);
  config.train = {{.path = megatron}};
  CHECK(open_tokens(config)->size() == 1);
}

TEST_CASE("data that are too short are refused with counts (litgpt 603)", "[data]") {
  const TempDir folder;
  DataConfig config = config_of({write_megatron(folder.path(), "a", {ids_from(0, 10)})}, 64);
  CHECK_THAT(error_of([&] { (void)open_tokens(config); }).what(),
             Contains("10 tokens, seq_length 64 needs at least 65"));
  config = config_of({write_megatron(folder.path(), "b", {{1}, {2}, {}, {3}})}, 64);
  config.packing = Packing::pad;
  const Error error = error_of([&] { (void)open_tokens(config); });
  CHECK(error.id() == "data-too-short");
  CHECK_THAT(error.what(), Contains("3 tokens") && Contains("at least 2 in one document"));
}

TEST_CASE("an id beyond the vocabulary stops the read that meets it, in any thread", "[data]") {
  const TempDir folder;
  Ids ids = ids_from(0, 100);
  ids[70] = 300;
  DataConfig config = config_of({write_megatron(folder.path(), "a", {ids})}, 10);
  const auto set = open_tokens(config, Split::train, 256);
  CHECK(read(*set, 5).labels.back() == 60);
  for (const std::int64_t index : {6, 7}) {  // a label of one sample, a token of the next
    CHECK_THAT(error_of([&] { (void)read(*set, index); }).what(),
               Contains("a.bin', byte 140: token id 300") && Contains("256 ids"));
  }
  Loader loader(*set,
                {.order = {.global_batch = 9, .seed = 1},
                 .micro_batch = 9,
                 .num_micro_batches = 1,
                 .workers = 2},
                {},
                {});
  CHECK(error_of([&] { (void)loader.next(); }).id() == "token-range");
  config.validate = DataValidation::full;
  CHECK(error_of([&] { (void)open_tokens(config, Split::train, 256); }).id() == "token-range");
}

TEST_CASE("documents are checked where they matter, also with validate none", "[data]") {
  const TempDir folder;
  const auto bin = write_megatron(folder.path(), "a", {ids_from(0, 10), ids_from(10, 20)});
  test::IndexFields fields = test::index_of({{10}, {20}});
  fields.boundaries[1] = 7;
  write_file(folder.path(), "a.idx", bytes_of(fields));
  DataConfig config = config_of({bin}, 4);
  CHECK(error_of([&] { (void)open_tokens(config); }).id() == "token-file");
  config.validate = DataValidation::none;
  CHECK(open_tokens(config)->size() == 7);
  config.packing = Packing::pad;
  CHECK(error_of([&] { (void)open_tokens(config); }).id() == "token-file");
}

TEST_CASE("the fingerprint follows ids and documents, not names", "[data]") {
  const TempDir folder;
  const auto print = [&](const std::string& name, const std::vector<Ids>& documents) {
    return open_tokens(config_of({write_megatron(folder.path(), name, documents)}, 4))
        ->fingerprint();
  };
  const std::string base = print("a", {ids_from(1, 5), ids_from(6, 5)});
  CHECK(base == print("b", {ids_from(1, 5), ids_from(6, 5)}));
  CHECK(base != print("c", {ids_from(1, 6), ids_from(7, 4)}));
  CHECK(base != print("d", {ids_from(1, 5), ids_from(7, 5)}));
}

}  // namespace
}  // namespace colossal
