// Are token files read as their specifications say, and is every damaged one refused with its
// place?
#include "data/token_file.hpp"

#include "data_helpers.hpp"
#include "support/temp_dir.hpp"
#include "support/token_files.hpp"

#include <limits>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Catch::Matchers::Contains;
using test::bytes_of;
using test::error_of;
using test::index_of;
using test::IndexFields;
using test::packed;
using test::TempDir;
using test::write_file;

std::vector<std::int64_t> ids_of(const TokenStream& stream) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(stream.num_tokens()));
  stream.copy(0, ids);
  return ids;
}

std::vector<std::int64_t> begins_of(const TokenStream& stream) {
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i <= stream.num_documents(); ++i) {
    begins.push_back(stream.document_begin(i));
  }
  return begins;
}

TokenFileOptions binary_options(std::int64_t vocabulary = 1000,
                                DataValidation validate = DataValidation::header,
                                TokenFormat format = TokenFormat::automatic) {
  return {.format = format, .vocab_size = vocabulary, .validate = validate};
}

/// The example of optimizers-and-recipes 7.1: sequences of 5, 3, 4 tokens, documents [0, 2, 3].
const std::vector<std::vector<std::int64_t>> kGolden = {{5, 3}, {4}};

/// A pair in a folder of its own.
class Pair {
 public:
  Pair() : Pair(index_of(kGolden), packed<std::uint16_t>(test::ids_from(100, 12))) {}
  Pair(const IndexFields& fields, const std::string& bin) : Pair(bytes_of(fields), bin) {}
  Pair(const std::string& index, const std::string& bin) {
    write_file(folder_.path(), "a.idx", index);
    bin_ = write_file(folder_.path(), "a.bin", bin);
  }
  [[nodiscard]] std::filesystem::path bin() const { return bin_; }
  [[nodiscard]] std::filesystem::path index() const { return folder_.path() / "a.idx"; }
  [[nodiscard]] std::filesystem::path prefix() const { return folder_.path() / "a"; }
  /// The error of opening it, which must be of the data kind and name the pair.
  [[nodiscard]] Error error(DataValidation validate = DataValidation::header) const {
    Error error = error_of([&] { (void)open_token_file(bin_, binary_options(1000, validate)); });
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains(prefix().string()));
    return error;
  }

 private:
  TempDir folder_;
  std::filesystem::path bin_;
};

TEST_CASE("the golden index of Megatron is read and written byte by byte", "[data]") {
  const std::string hex =
      "4d4d49444944580000"
      "0100000000000000"
      "08"
      "03000000000000000300000000000000"
      "050000000300000004000000"
      "00000000000000000a000000000000001000000000000000"
      "000000000000000002000000000000000300000000000000";
  std::string golden;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    golden += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  REQUIRE(golden.size() == 94);
  CHECK(bytes_of(index_of(kGolden)) == golden);
  const Pair pair(golden, packed<std::uint16_t>(test::ids_from(100, 12)));
  for (const auto& name : {pair.bin(), pair.index(), pair.prefix()}) {
    const auto file = open_token_file(name, binary_options());
    CHECK(file->kind() == "Megatron, uint16");
    CHECK(file->path() == pair.bin());
    CHECK(ids_of(*file) == test::ids_from(100, 12));
    CHECK(begins_of(*file) == std::vector<std::int64_t>{0, 8, 12});
  }
}

TEST_CASE("a prefix with a dot stays whole, also beside a folder of its name", "[data]") {
  const TempDir folder;
  const std::filesystem::path prefix = folder.path() / "books-v1.5";
  write_file(folder.path(), "books-v1.5.idx", bytes_of(index_of(kGolden)));
  write_file(folder.path(), "books-v1.5.bin", packed<std::uint16_t>(test::ids_from(100, 12)));
  const auto read = [&] { return ids_of(*open_token_file(prefix, binary_options())); };
  CHECK(read() == test::ids_from(100, 12));
  std::filesystem::create_directory(prefix);
  CHECK(read() == test::ids_from(100, 12));
  std::filesystem::remove(prefix);
  write_file(folder.path(), "books-v1.5", "not one of the pair");
  CHECK(read() == test::ids_from(100, 12));
}

TEST_CASE("ids of every whole type are read", "[data]") {
  const std::vector<std::int64_t> ids = {0, 1, 100, 127, 3, 5};
  const auto check_type =
      [&](std::uint8_t code, std::int64_t item, const std::string& bin, const std::string& kind) {
        IndexFields fields = index_of({{2, 1}, {}, {3}}, item);
        fields.type = code;
        const Pair pair(fields, bin);
        const auto file = open_token_file(pair.bin(), binary_options());
        CHECK(file->kind() == "Megatron, " + kind);
        CHECK(ids_of(*file) == ids);
        CHECK(begins_of(*file) == std::vector<std::int64_t>{0, 3, 3, 6});
      };
  check_type(1, 1, packed<std::uint8_t>(ids), "uint8");
  check_type(2, 1, packed<std::int8_t>(ids), "int8");
  check_type(3, 2, packed<std::int16_t>(ids), "int16");
  check_type(4, 4, packed<std::int32_t>(ids), "int32");
  check_type(5, 8, packed<std::int64_t>(ids), "int64");
  check_type(8, 2, packed<std::uint16_t>(ids), "uint16");
}

TEST_CASE("files of llm.c are known by their number", "[data]") {
  const TempDir folder;
  const std::vector<std::int64_t> ids = {7, 65535, 0, 300};
  const auto path = write_file(folder.path(), "a.bin", test::llmc_bytes(ids));
  for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::llmc}) {
    const auto file = open_token_file(path, binary_options(65536, DataValidation::header, format));
    CHECK(file->kind() == "llm.c, uint16");
    CHECK(ids_of(*file) == ids);
    CHECK(file->num_documents() == 0);
  }
  CHECK(error_of([&] {
          (void)open_token_file(path,
                                binary_options(10, DataValidation::none, TokenFormat::megatron));
        }).id() == "file-not-found");
}

TEST_CASE("damaged files of llm.c are refused", "[data]") {
  const TempDir folder;
  const std::string good = test::llmc_bytes({1, 2, 3});
  const auto id_of = [&](const std::string& bytes, TokenFormat format = TokenFormat::automatic) {
    const auto path = write_file(folder.path(), "a.bin", bytes);
    const Error error = error_of(
        [&] { (void)open_token_file(path, binary_options(10, DataValidation::none, format)); });
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains(path));
    return std::string(error.id());
  };
  CHECK(id_of("") == "data-empty");
  CHECK(id_of("abc") == "token-format");
  CHECK(id_of("abc", TokenFormat::llmc) == "token-format");
  CHECK(id_of(test::llmc_bytes({1}, 20240521)) == "token-format");
  CHECK(id_of(test::llmc_bytes({1}, 20240520, 2)) == "token-format");
  CHECK(id_of(good.substr(0, 500)) == "token-file");
  CHECK(id_of(good.substr(0, good.size() - 1)) == "token-file");
  CHECK(id_of(good + "x") == "token-file");
  std::string negative = good;
  negative[11] = '\xff';
  CHECK(id_of(negative) == "token-file");
}

TEST_CASE("an index cut anywhere is refused, whatever is validated", "[data]") {
  const std::string whole = bytes_of(index_of(kGolden));
  const std::string bin = packed<std::uint16_t>(test::ids_from(100, 12));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Pair pair(whole.substr(0, size), bin);
    const Error error = pair.error(DataValidation::none);
    INFO(size << ": " << error.what());
    CHECK(error.id() == (size == 0 ? "data-empty" : size < 9 ? "token-format" : "token-file"));
  }
  CHECK(Pair(whole + "x", bin).error(DataValidation::none).id() == "token-file");
}

TEST_CASE("a .bin that is shorter or longer than its index says is refused", "[data]") {
  const std::string bin = packed<std::uint16_t>(test::ids_from(100, 12));
  for (const DataValidation validate : {DataValidation::none, DataValidation::header}) {
    const Pair shorter(index_of(kGolden), bin.substr(0, 23));
    CHECK(shorter.error(validate).id() == "token-file");
    CHECK_THAT(shorter.error(validate).what(), Contains("23 bytes"));
    CHECK(Pair(index_of(kGolden), bin + "xy").error(validate).id() == "token-file");
    CHECK(Pair(index_of(kGolden), "").error(validate).id() == "data-empty");
  }
  const Pair missing;
  std::filesystem::remove(missing.bin());
  CHECK(missing.error().id() == "file-not-found");
}

TEST_CASE("an index of another kind, version or type is refused by name", "[data]") {
  const std::string bin = packed<std::uint16_t>(test::ids_from(100, 12));
  IndexFields fields = index_of(kGolden);
  fields.magic[3] = 'X';
  CHECK(Pair(fields, bin).error().id() == "token-format");
  fields = index_of(kGolden);
  fields.version = 2;
  CHECK_THAT(Pair(fields, bin).error().what(), Contains("version 2"));
  for (const int type : {0, 6, 7, 9, 255}) {
    fields = index_of(kGolden);
    fields.type = static_cast<std::uint8_t>(type);
    const Error error = Pair(fields, bin).error();
    CHECK(error.id() == "token-format");
    CHECK_THAT(error.what(), Contains("byte 17") && Contains("type " + std::to_string(type)));
  }
}

TEST_CASE("every contradiction in an index is refused with its byte", "[data]") {
  const std::string bin = packed<std::uint16_t>(test::ids_from(100, 12));
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  struct Case {
    void (*damage)(IndexFields&);
    std::string place;
    std::string what;
  };
  const std::vector<Case> cases = {
      {[](IndexFields& f) { f.lengths[1] = -3; }, "byte 38:", "has -3 tokens"},
      {[](IndexFields& f) { f.lengths[1] = 4; }, "byte 62:", "the one before it ends at 18"},
      {[](IndexFields& f) { f.lengths[2] = 5; }, "byte 62:", "ends beyond the .bin of 24 bytes"},
      {[](IndexFields& f) { f.pointers[0] = 2; }, "byte 46:", "begins at byte 2"},
      {[](IndexFields& f) { f.pointers[1] = -10; }, "byte 54:", "begins at byte -10"},
      {[](IndexFields& f) { f.pointers[2] = kHuge; }, "byte 62:", "begins at byte 92233"},
      {[](IndexFields& f) { f.boundaries[0] = 1; }, "byte 70:", "begins at sequence 1"},
      {[](IndexFields& f) { f.boundaries[1] = 4; }, "byte 78:", "sequence 4"},
      {[](IndexFields& f) { f.boundaries[1] = -1; }, "byte 78:", "sequence -1"},
      {[](IndexFields& f) { f.boundaries[2] = 2; }, "byte 86:", "ends at sequence 2 of 3"}};
  for (const Case& one : cases) {
    IndexFields fields = index_of(kGolden);
    one.damage(fields);
    const Pair pair(fields, bin);
    const Error error = pair.error();
    INFO(error.what());
    CHECK(error.id() == "token-file");
    CHECK_THAT(error.what(), Contains(one.place) && Contains(one.what));
  }
}

TEST_CASE("counts that no file could hold are refused without arithmetic on them", "[data]") {
  for (const std::size_t at : {std::size_t{18}, std::size_t{26}}) {
    for (const std::uint64_t count :
         {std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{95}}) {
      std::string bytes = bytes_of(index_of(kGolden));
      std::memcpy(bytes.data() + at, &count, sizeof(count));
      CHECK(Pair(bytes, "ab").error(DataValidation::none).id() == "token-file");
    }
  }
  std::string no_boundary = bytes_of(index_of(kGolden));
  std::memset(no_boundary.data() + 26, 0, 8);
  CHECK(Pair(no_boundary, "ab").error().id() == "token-file");
}

TEST_CASE("an id outside the vocabulary is found with file, byte, id and size (Megatron 2459)",
          "[data]") {
  std::vector<std::int64_t> ids = test::ids_from(0, 20000);
  for (std::int64_t& id : ids) {
    id %= 256;
  }
  ids[9001] = 300;
  const Pair pair(index_of({{20000}}), packed<std::uint16_t>(ids));
  const Error full = error_of(
      [&] { (void)open_token_file(pair.bin(), binary_options(256, DataValidation::full)); });
  CHECK(full.id() == "token-range");
  CHECK(full.exit_code() == 4);
  CHECK_THAT(full.what(),
             Contains(pair.bin().string()) && Contains("byte 18002:") && Contains("id 300") &&
                 Contains("256 ids"));
  const auto file = open_token_file(pair.bin(), binary_options(256));
  std::vector<std::int64_t> out(10);
  file->copy(8991, out);
  CHECK(out.back() == 9000 % 256);
  CHECK(error_of([&] { file->copy(8992, out); }).what() == std::string(full.what()));
  CHECK(open_token_file(pair.bin(), binary_options(301, DataValidation::full))->num_tokens() ==
        20000);
}

TEST_CASE("negative ids are outside of any vocabulary", "[data]") {
  IndexFields fields = index_of({{3}}, 4);
  fields.type = 4;
  const Pair pair(fields, packed<std::int32_t>({1, -1, 2}));
  CHECK_THAT(error_of([&] {
               (void)open_token_file(pair.bin(), binary_options(1 << 30, DataValidation::full));
             }).what(),
             Contains("byte 4: token id -1"));
}

}  // namespace
}  // namespace colossal
