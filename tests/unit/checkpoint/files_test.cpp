// Are the files what schemas/checkpoint.md says, seen through the HDF5 library itself?
#include "checkpoint/detail/durable.hpp"
#include "checkpoint/detail/folders.hpp"
#include "checkpoint/detail/hdf5.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <nlohmann/json.hpp>

namespace colossal::test {

using colossal::H5Dataset;
using colossal::detail::H5Access;
using colossal::detail::H5File;

namespace {

namespace fs = std::filesystem;

/// A dataset of a file as another program would read it.
at::Tensor read_plain(const fs::path& file, const std::string& name, const at::Tensor& like) {
  const H5File source(file, H5Access::read);
  const H5Dataset dataset(H5Dopen2(source.id(), name.c_str(), H5P_DEFAULT));
  REQUIRE(dataset.valid());
  at::Tensor out = at::zeros_like(like);
  const H5Type type = detail::h5_type(like.scalar_type());
  REQUIRE(H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.mutable_data_ptr()) >=
          0);
  return out;
}

/// Two boxes, the second rows first.
TensorRecord halves(const std::string& name, const at::Tensor& values) {
  TensorRecord record = whole(name, values);
  record.regions = {{{2, 0}, {2, 0}, {2, 3}}, {{0, 0}, {0, 0}, {2, 3}}};
  return record;
}

}  // namespace

TEST_CASE("stored types have the sizes and ranges of IEEE and bfloat16", "[files]") {
  const auto fields = [](at::ScalarType dtype) {
    const H5Type type = detail::h5_type(dtype);
    std::array<std::size_t, 5> where{};
    REQUIRE(H5Tget_fields(type.id(), &where[0], &where[1], &where[2], &where[3], &where[4]) >= 0);
    // Size, exponent bits, exponent bias, mantissa bits.
    return std::array<std::size_t, 4>{
        H5Tget_size(type.id()), where[2], H5Tget_ebias(type.id()), where[4]};
  };
  CHECK(fields(at::kDouble) == std::array<std::size_t, 4>{8, 11, 1023, 52});
  CHECK(fields(at::kFloat) == std::array<std::size_t, 4>{4, 8, 127, 23});
  CHECK(fields(at::kBFloat16) == std::array<std::size_t, 4>{2, 8, 127, 7});
  CHECK(fields(at::kHalf) == std::array<std::size_t, 4>{2, 5, 15, 10});
  const H5Type integer = detail::h5_type(at::kLong);
  CHECK(H5Tget_size(integer.id()) == 8);
  CHECK(H5Tget_sign(integer.id()) == H5T_SGN_2);
}

TEST_CASE("names of types go both ways", "[files]") {
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
    CHECK(detail::dtype_of(detail::dtype_name(dtype)) == dtype);
    CHECK(detail::is_storable(dtype));
  }
  CHECK(detail::dtype_of("int32") == at::ScalarType::Undefined);
  CHECK_FALSE(detail::is_storable(at::kInt));
  CHECK(detail::dtype_name(at::kInt) == "unsupported");
}

TEST_CASE("a rank file holds one dataset per box", "[files]") {
  const TempDir dir;
  const at::Tensor values = counting({4, 3});
  const fs::path checkpoint = save_one(dir.path(), 1, {halves("model/x", values)});
  const fs::path file = checkpoint / "rank-0000.h5";
  CHECK(at::equal(read_plain(file, "/model/x#0", counting({2, 3})), values.narrow(0, 2, 2)));
  CHECK(at::equal(read_plain(file, "/model/x#1", counting({2, 3})), values.narrow(0, 0, 2)));
}

TEST_CASE("the index shows whole tensors, also after the folder moved", "[files]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = {
      halves("model/x", counting({4, 3})),
      halves("optim/exp_avg/x", counting({4, 3}, at::kBFloat16, 5)),
      whole("model/scalar", counting({}, at::kFloat, 7)),
      whole("model/count", counting({6}, at::kLong, 1'000'000'000'000))};
  const fs::path checkpoint = save_one(dir.path(), 1, records);
  const fs::path moved = dir.path() / "elsewhere";
  fs::rename(checkpoint, moved);
  for (const TensorRecord& record : records) {
    INFO(record.name);
    CHECK(at::equal(read_plain(moved / "index.h5", "/" + record.name, record.local), record.local));
  }
}

TEST_CASE("files that cannot be opened or made are named", "[files]") {
  const TempDir dir;
  const Failure read = failure_of([&] { H5File(dir.path() / "none.h5", H5Access::read); });
  CHECK(read.id == "checkpoint-incomplete");
  CHECK(contains(read.text, "none.h5"));
  const Failure made = failure_of([&] { H5File(dir.path() / "no" / "x.h5", H5Access::create); });
  CHECK(made.id == "checkpoint-write");
  CHECK(contains(made.text, "No such file or directory"));
}

TEST_CASE("a created file that was not closed is left empty", "[files]") {
  const TempDir dir;
  const fs::path path = dir.path() / "x.h5";
  {
    H5File first(path, H5Access::create);
    const H5File file(std::move(first));
    CHECK(file.path() == path);
  }
  CHECK(fs::file_size(path) == 0);
  H5File again(path, H5Access::create);
  again.close();
  CHECK(fs::file_size(path) > 0);
}

TEST_CASE("the manifest holds what its description lists", "[files]") {
  const TempDir dir;
  const fs::path checkpoint = save_one(dir.path(), 1, {halves("model/x", counting({4, 3}))});
  const auto json = nlohmann::json::parse(read_file(checkpoint / "manifest.json"));
  CHECK(json.at("format") == "colossal-checkpoint");
  CHECK(json.at("version") == 1);
  CHECK(json.at("world_size") == 1);
  CHECK(json.at("state").at("config_sha256").get<std::string>().size() == 64);
  REQUIRE(json.at("files").size() == 2);
  for (const auto& file : json.at("files")) {
    CHECK(file.at("bytes") == fs::file_size(checkpoint / file.at("name").get<std::string>()));
  }
  const auto& tensor = json.at("tensors").at(0);
  CHECK(tensor.at("dtype") == "float32");
  CHECK(tensor.at("shape") == nlohmann::json({4, 3}));
  CHECK(tensor.at("boxes").at(0).at("offset") == nlohmann::json({2, 0}));
  CHECK(tensor.at("boxes").at(0).at("extent") == nlohmann::json({2, 3}));
  CHECK(tensor.at("boxes").at(1).at("dataset") == "/model/x#1");
}

TEST_CASE("text is replaced whole, folders are named by step", "[files]") {
  const TempDir dir;
  detail::write_text(dir.path() / "latest", "1234567\n");
  detail::write_text(dir.path() / "latest", "9\n");
  CHECK(read_file(dir.path() / "latest") == "9\n");
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest"});
  CHECK(detail::folder_name(1000) == "step-00001000");
  CHECK(detail::temporary_name(1000, 3) == "step-00001000.tmp-3");
  CHECK(detail::step_of("step-00001000") == 1000);
  CHECK_FALSE(detail::step_of("step-00001000.tmp-3"));
  CHECK_FALSE(detail::step_of("stop-1"));
}

TEST_CASE("a latest that cannot be written neither undoes nor fails the save", "[files]") {
  const TempDir dir;
  save_one(dir.path(), 3, small_model());
  fs::remove(dir.path() / "latest");
  fs::create_directories(dir.path() / "latest" / "in-the-way");
  const Failure failure =
      failure_of([&] { save_one(dir.path(), 4, small_model(), {.keep_last = 1}); });
  INFO(failure.text);
  CHECK(failure.id.empty());
  require_loads(folder_of(dir.path(), 4), small_model());
  CHECK_FALSE(fs::exists(folder_of(dir.path(), 3)));  // retention goes on
  fs::remove_all(dir.path() / "latest");
  save_one(dir.path(), 5, small_model());
  CHECK(read_file(dir.path() / "latest") == "5\n");
}

}  // namespace colossal::test
