// Are HDF5 files of token ids read wherever the library has put the ids, and refused with a reason?
#include "support/token_hdf5.hpp"

#include "data/inspect.hpp"
#include "data/token_file.hpp"
#include "data/tokens.hpp"
#include "data_helpers.hpp"
#include "support/temp_dir.hpp"
#include "support/token_files.hpp"

#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace colossal {
namespace {

using Catch::Matchers::Contains;
using test::error_of;
using test::ids_from;
using test::TempDir;
using test::TokenHdf5;
using test::write_hdf5;

TokenFileOptions hdf5_options(std::int64_t vocabulary = 100'000,
                              DataValidation validate = DataValidation::header,
                              TokenFormat format = TokenFormat::automatic) {
  return {.format = format, .vocab_size = vocabulary, .validate = validate};
}

std::vector<std::int64_t> ids_of(const TokenStream& stream,
                                 std::int64_t begin,
                                 std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  stream.copy(begin, ids);
  return ids;
}

/// The error of opening such a file, which must be of the data kind and name it.
Error refused(const TokenHdf5& form, const TokenFileOptions& how = hdf5_options()) {
  const TempDir folder;
  const std::filesystem::path path = write_hdf5(folder.path() / "a.h5", form);
  Error error = error_of([&] { (void)open_token_file(path, how); });
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(), Contains(path.string()));
  return error;
}

TEST_CASE("ids of HDF5 are read contiguous and in chunks, in every whole type", "[data]") {
  const TempDir folder;
  struct Type {
    hid_t id;
    const char* name;
  };
  for (const Type& type : {Type{H5T_STD_U8LE, "uint8"},
                           Type{H5T_STD_I8BE, "int8"},  // one byte has no order
                           Type{H5T_STD_I16LE, "int16"},
                           Type{H5T_STD_U16LE, "uint16"},
                           Type{H5T_STD_I32LE, "int32"},
                           Type{H5T_STD_U32LE, "uint32"},
                           Type{H5T_STD_I64LE, "int64"}}) {
    for (const hsize_t chunk : {0, 1, 7, 64, 120}) {
      INFO(type.name << ", chunks of " << chunk);
      const TokenHdf5 form{.ids = ids_from(3, 120), .type = type.id, .chunk = chunk};
      const auto file = open_token_file(write_hdf5(folder.path() / "a.h5", form),
                                        hdf5_options(123, DataValidation::full));
      CHECK(file->kind() == std::string("HDF5, ") + type.name);
      REQUIRE(file->num_tokens() == 120);
      CHECK(ids_of(*file, 0, 120) == form.ids);
      CHECK(ids_of(*file, 5, 17) == ids_from(8, 17));
      CHECK(ids_of(*file, 119, 1) == ids_from(122, 1));
      CHECK(file->num_documents() == 0);
      CHECK(file->document_begin(0) == 120);
    }
  }
}

TEST_CASE("documents of HDF5 are those of doc_offsets", "[data]") {
  const TempDir folder;
  const auto path = write_hdf5(
      folder.path() / "a.h5",
      {.ids = ids_from(0, 20), .documents = {0, 8, 8, 12, 20}, .chunk = 6, .version = 0});
  const auto file = open_token_file(path, hdf5_options());
  REQUIRE(file->num_documents() == 4);
  CHECK(file->document_begin(1) == 8);
  CHECK(file->document_begin(2) == 8);
  CHECK(file->document_begin(4) == 20);

  DataConfig config;
  config.type = DataType::tokens;
  config.train = {{.path = path.string()}};
  config.packing = Packing::pad;
  config.seq_length = 9;
  const auto dataset = make_tokens_dataset({.data = config, .vocab_size = 20});
  REQUIRE(dataset->size() == 3);
  const std::vector<std::int64_t> row = {1};
  CHECK(test::row_of(dataset->read(row), "tokens", 0)[3] == 11);
  CHECK(test::row_of(dataset->read(row), "labels", 0)[3] == kIgnoreLabel);
}

TEST_CASE("a file of HDF5 is the same data as a pair of Megatron-LM", "[data]") {
  const TempDir folder;
  const auto h5 = write_hdf5(folder.path() / "a.h5",
                             {.ids = ids_from(0, 60), .documents = {0, 20, 60}, .chunk = 16});
  test::write_megatron(folder.path(), "b", {ids_from(0, 20), ids_from(20, 40)});
  const auto bin = open_token_file(folder.path() / "b.bin", hdf5_options());
  const auto file = open_token_file(h5, hdf5_options());
  REQUIRE(file->num_tokens() == bin->num_tokens());
  CHECK(ids_of(*file, 0, 60) == ids_of(*bin, 0, 60));
  CHECK(file->num_documents() == bin->num_documents());
  CHECK(file->document_begin(1) == bin->document_begin(1));
}

TEST_CASE("threads read a file of HDF5 together", "[data]") {
  const TempDir folder;
  const auto path = write_hdf5(folder.path() / "a.h5", {.ids = ids_from(0, 50'000), .chunk = 777});
  const auto file = open_token_file(path, hdf5_options());
  std::vector<std::vector<std::int64_t>> read(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < read.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::int64_t begin = 0; begin < 50'000; begin += 500) {
          const auto part = ids_of(*file, begin, 500);
          read[t].insert(read[t].end(), part.begin(), part.end());
        }
      });
    }
  }
  for (const auto& ids : read) {
    CHECK(ids == ids_from(0, 50'000));
  }
}

TEST_CASE("an id outside the vocabulary is found in HDF5 with its byte", "[data]") {
  const TempDir folder;
  std::vector<std::int64_t> ids = ids_from(0, 100);
  ids[77] = 4321;
  for (const hsize_t chunk : {0, 30}) {
    const auto path = write_hdf5(folder.path() / "a.h5", {.ids = ids, .chunk = chunk});
    const auto file = open_token_file(path, hdf5_options(100));
    CHECK(ids_of(*file, 0, 77) == ids_from(0, 77));
    const Error late = error_of([&] { (void)ids_of(*file, 70, 20); });
    const Error early =
        error_of([&] { (void)open_token_file(path, hdf5_options(100, DataValidation::full)); });
    CHECK(late.id() == "token-range");
    CHECK(std::string(late.what()) == early.what());
    CHECK_THAT(late.what(), Contains("token id 4321 is outside the vocabulary of 100 ids"));
    // The byte that is named holds the id.
    const std::string text = late.what();
    const auto byte = std::stoll(text.substr(text.find("byte ") + 5));
    std::ifstream in(path, std::ios::binary);
    in.seekg(byte);
    std::uint16_t id = 0;
    in.read(reinterpret_cast<char*>(&id), sizeof(id));
    CHECK(id == 4321);
  }
  ids[77] = -5;
  const auto path = write_hdf5(folder.path() / "b.h5", {.ids = ids, .type = H5T_STD_I32LE});
  const auto negative = open_token_file(path, hdf5_options(100));
  CHECK_THAT(error_of([&] { (void)ids_of(*negative, 0, 100); }).what(), Contains("token id -5"));
}

TEST_CASE("files of HDF5 that cannot be used are refused by name", "[data]") {
  const std::vector<std::int64_t> ids = ids_from(0, 40);
  const auto check_format = [&](const TokenHdf5& form, const std::string& text) {
    const Error error = refused(form);
    CHECK(error.id() == "token-format");
    CHECK_THAT(error.what(), Contains(text));
  };
  check_format({.ids = ids, .type = H5T_IEEE_F32LE}, "'tokens' holds floating point");
  check_format({.ids = ids, .type = H5T_STD_U64LE}, "holds unsigned integers of 64 bits");
  check_format({.ids = ids, .type = H5T_STD_I32BE}, "'tokens' is big-endian");
  check_format({.ids = ids, .dims = 2}, "'tokens' has 2 dimensions; it must have one");
  check_format({.ids = ids, .chunk = 16, .deflate = true}, "'tokens' is compressed");
  check_format({.ids = ids, .name = "input_ids"}, "it has no dataset 'tokens'");
  check_format({.ids = ids, .version = 2}, "its attribute 'version' is 2");
  check_format({.ids = ids_from(0, 10'001), .chunk = 1}, "10001 chunks of 1 ids");
  CHECK(refused({.ids = {}}).id() == "data-empty");
}

TEST_CASE("only a file of our format has a version that counts, and one number of it", "[data]") {
  const std::vector<std::int64_t> ids = ids_from(0, 40);
  for (const bool variable : {false, true}) {
    for (const hsize_t versions : {2, 4096}) {  // more than there is room for
      const Error error = refused({.ids = ids, .versions = versions, .variable = variable});
      CHECK(error.id() == "token-format");
      CHECK_THAT(error.what(), Contains("its attribute 'version' is not one number"));
    }
    CHECK_THAT(refused({.ids = ids, .version = 2, .variable = variable}).what(),
               Contains("reads colossal-tokens version 1"));
    const TempDir folder;
    for (const char* format : {"", "tokens-of-others", "colossal"}) {
      for (const hsize_t versions : {1, 4096}) {
        const TokenHdf5 form{
            .ids = ids, .version = 7, .versions = versions, .format = format, .variable = variable};
        const auto file = open_token_file(write_hdf5(folder.path() / "a.h5", form), hdf5_options());
        CHECK(file->num_tokens() == 40);
      }
    }
  }
}

TEST_CASE("a file of HDF5 that is being written is not called damaged alone", "[data]") {
  const TempDir folder;
  const auto path = write_hdf5(folder.path() / "a.h5", {.ids = ids_from(0, 40)});
  const int writer = ::open(path.c_str(), O_RDWR);
  REQUIRE(writer >= 0);
  REQUIRE(::flock(writer, LOCK_EX) == 0);  // as the library does
  const Error error = error_of([&] { (void)open_token_file(path, hdf5_options()); });
  ::close(writer);
  CHECK(error.id() == "token-file");
  CHECK_THAT(error.what(), Contains("lock") && Contains("a process is writing it"));
  CHECK(open_token_file(path, hdf5_options())->num_tokens() == 40);
}

TEST_CASE("files of HDF5 that contradict themselves are refused", "[data]") {
  const std::vector<std::int64_t> ids = ids_from(0, 40);
  const auto check_file = [&](const TokenHdf5& form, const std::string& text) {
    const Error error = refused(form);
    CHECK(error.id() == "token-file");
    CHECK_THAT(error.what(), Contains(text));
  };
  check_file({.ids = ids, .chunk = 16, .filled = false}, "ids 0 and on of 'tokens' were never");
  check_file({.ids = ids, .filled = false}, "the ids of 'tokens' were never written");
  check_file({.ids = ids, .documents = {0}}, "'doc_offsets' has 1 entries");
  check_file({.ids = ids, .documents = {1, 40}}, "'doc_offsets' begins with 1, not with 0");
  check_file({.ids = ids, .documents = {0, 20, 10, 40}},
             "entry 2 of 'doc_offsets' is below the one before it");
  check_file({.ids = ids, .documents = {0, 20, 41}},
             "'doc_offsets' ends with 41, but there are 40 ids");
}

TEST_CASE("a file of HDF5 cut anywhere is refused, whatever is validated", "[data]") {
  const TempDir folder;
  const auto path = write_hdf5(folder.path() / "a.h5",
                               {.ids = ids_from(0, 3000), .documents = {0, 3000}, .chunk = 512});
  const auto size = std::filesystem::file_size(path);
  for (const DataValidation validate : {DataValidation::none, DataValidation::full}) {
    for (std::uintmax_t length = size - 1; length > 8; length = length * 3 / 4) {
      INFO(length << " of " << size << " bytes");
      const auto cut = folder.path() / "cut.h5";
      std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
      std::filesystem::resize_file(cut, length);
      const Error error =
          error_of([&] { (void)open_token_file(cut, hdf5_options(5000, validate)); });
      CHECK(error.id() == "token-file");
      CHECK(error.exit_code() == 4);
    }
  }
}

TEST_CASE("data.format says what a file must be", "[data]") {
  const TempDir folder;
  const auto h5 = write_hdf5(folder.path() / "a.bin", {.ids = ids_from(0, 40)});
  const auto open = [&](const std::filesystem::path& path, TokenFormat format) {
    return open_token_file(path, hdf5_options(1000, DataValidation::header, format));
  };
  CHECK(open(h5, TokenFormat::hdf5)->num_tokens() == 40);
  CHECK(open(h5, TokenFormat::automatic)->num_tokens() == 40);
  CHECK(error_of([&] { (void)open(h5, TokenFormat::llmc); }).id() == "token-format");
  const auto text = test::write_file(folder.path(), "text", "no ids at all");
  const Error error = error_of([&] { (void)open(text, TokenFormat::hdf5); });
  CHECK(error.id() == "token-format");
  CHECK_THAT(error.what(), Contains("does not begin as an HDF5 file"));
}

TEST_CASE("dataset inspect counts a file of HDF5", "[data]") {
  const TempDir folder;
  const auto path = write_hdf5(folder.path() / "a.h5",
                               {.ids = ids_from(10, 40), .documents = {0, 3, 3, 40}, .chunk = 9});
  const auto reports = inspect_datasets({.files = {path.string()}, .tokenizer = {}});
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].kind == "HDF5, uint16");
  CHECK(reports[0].statistics.num_tokens == 40);
  CHECK(reports[0].statistics.num_documents == 3);
  CHECK(reports[0].statistics.num_empty == 1);
  CHECK(reports[0].statistics.smallest == 10);
  CHECK(reports[0].statistics.largest == 49);
}

}  // namespace
}  // namespace colossal
