// Is saving fast enough not to be noticed? Limits are generous: they catch a wrong method, not a
// slow machine.
#include "checkpoint/detail/index_file.hpp"
#include "checkpoint/detail/rank_file.hpp"
#include "core/hash.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <algorithm>
#include <chrono>

namespace colossal::test {
namespace {

double seconds(const std::function<void()>& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double best_of_three(const std::function<void()>& body) {
  return std::min({seconds(body), seconds(body), seconds(body)});
}

}  // namespace

TEST_CASE("the index of 500 tensors on 8 ranks takes at most 0.3 s", "[speed]") {
  const TempDir dir;
  detail::Manifest manifest;
  for (int rank = 0; rank < 8; ++rank) {
    manifest.files.push_back({detail::rank_file_name(rank), 0});
  }
  for (int i = 0; i < 500; ++i) {
    detail::StoredTensor tensor{
        "model/blocks." + std::to_string(i) + ".weight", at::kFloat, {64, 32}, {}};
    for (int rank = 0; rank < 8; ++rank) {
      tensor.boxes.push_back({rank, "/" + tensor.name + "#0", {{8 * rank, 0}, {8, 32}}, 0});
    }
    manifest.tensors.push_back(tensor);
  }
  const double best =
      best_of_three([&] { static_cast<void>(detail::write_index(dir.path(), manifest)); });
  const double text = best_of_three([&] { static_cast<void>(detail::to_text(manifest)); });
  INFO("index " << best << " s, manifest text " << text << " s");
  CHECK(best <= 0.3);
  CHECK(text <= 0.1);
}

TEST_CASE("a model of 0.8M parameters with two states is saved in 50 ms", "[speed]") {
  const TempDir dir;
  std::vector<TensorRecord> records;
  for (int i = 0; i < 40; ++i) {
    for (const char* group : {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"}) {
      records.push_back(whole(group + std::to_string(i), counting({100, 200})));
    }
  }
  std::int64_t step = 0;
  const double save = best_of_three([&] { save_one(dir.path(), ++step, records); });
  std::vector<TensorRecord> into = blank(records);
  const double load =
      best_of_three([&] { load_tensors(folder_of(dir.path(), step), into, Comm()); });
  INFO("save " << save << " s, load " << load << " s");
  CHECK(save <= 0.05);
  CHECK(load <= 0.05);
}

TEST_CASE("checksums cost a fraction of a save", "[speed]") {
  const TempDir dir;
  const std::vector<TensorRecord> records = {whole("model/large", counting({4096, 4096}))};
  const at::Tensor& values = records[0].local;
  const auto bytes = std::span(static_cast<const std::byte*>(values.const_data_ptr()),
                               static_cast<std::size_t>(values.nbytes()));
  std::uint32_t sum = 0;
  const double alone = best_of_three([&] { sum ^= crc32c(bytes); });
  std::int64_t step = 0;
  const auto save = [&](bool checksum) {
    return best_of_three(
        [&] { save_one(dir.path(), ++step, records, {.keep_last = 1, .checksum = checksum}); });
  };
  double with = save(true);
  double without = save(false);
  for (int round = 0; round < 2; ++round) {  // in turns: the kernel writes pages back in between
    with = std::min(with, save(true));
    without = std::min(without, save(false));
  }
  const double gigabytes = static_cast<double>(bytes.size()) / 1e9;
  INFO("checksum " << gigabytes / alone << " GB/s, saving with " << gigabytes / with
                   << " GB/s of processor time, without " << gigabytes / without << " GB/s, "
                   << sum);
  CHECK(gigabytes / alone >= 1);
  CHECK(with <= without + 3 * alone + 0.05);
}

}  // namespace colossal::test
