// Do runs on token files use every sample as told, and end early and clearly on files that are
// wrong?
#include "e2e/program.hpp"
#include "support/token_files.hpp"
#include "support/token_hdf5.hpp"

#include <fmt/format.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

using Ids = std::vector<std::int64_t>;

/// `count` ids that look like something to learn, all below 256.
Ids text_ids(std::int64_t count) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back((i * i + 3 * i) % 11 + 40 * (i % 5));
  }
  return ids;
}

/// Documents of varied lengths.
std::vector<Ids> documents(std::int64_t count) {
  std::vector<Ids> all;
  for (std::int64_t i = 0; i < count; ++i) {
    all.push_back(text_ids(2 + i * 7 % 23));
  }
  return all;
}

/// tokens.yaml beside its data in a folder of its own.
class TokensRun {
 public:
  TokensRun() {
    write_file(config(), read_file(data_file("tokens.yaml")));
    write_megatron(
        path(), "train", {text_ids(900), text_ids(301)});  // 75 samples: 9 steps an epoch
    write_megatron(path(), "eval", {text_ids(50)});        // 4 samples
  }
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }
  [[nodiscard]] fs::path config() const { return path() / "tokens.yaml"; }
  [[nodiscard]] Arguments train(const std::string& name, const Arguments& more = {}) const {
    Arguments arguments = {"train", config().string(), "--output-dir", (path() / name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// The output of one and two processes and of `validate --data`, which must all end with
  /// exit code 4 before any step, each with `id` once.
  [[nodiscard]] std::vector<std::string> data_errors(const std::string& id,
                                                     const Arguments& sets = {}) const {
    std::vector<std::string> texts;
    Arguments validate = {"validate", "--data", config().string()};
    validate.insert(validate.end(), sets.begin(), sets.end());
    Arguments two = train("run", sets);
    two.insert(two.end(), {"--nproc", "2"});
    for (const Arguments& arguments : {train("run", sets), two, validate}) {
      const Outcome outcome = run_expecting(4, arguments);
      texts.push_back(outcome.out + outcome.err);  // `validate` writes what it finds to stdout
      INFO(texts.back());
      CHECK(count(texts.back(), "[" + id + "]") == 1);
      CHECK(records(path() / "run").empty());
    }
    return texts;
  }

 private:
  TempDir folder_;
};

Arguments set(const std::vector<std::string>& texts) {
  Arguments arguments;
  for (const std::string& text : texts) {
    arguments.insert(arguments.end(), {"--set", text});
  }
  return arguments;
}

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("a run on token files is the same on any processes and after a stop", "[tokens]") {
  const TokensRun tokens;
  const std::vector<std::vector<std::string>> variants = {{},
                                                          {"data.last_batch=wrap"},
                                                          {"data.packing=greedy",
                                                           "data.cross_document_attention=false",
                                                           "data.last_batch=pad",
                                                           "train.global_batch_size=4"}};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    INFO("variant " << i);
    const Arguments sets = set(variants[i]);
    const std::string one = fmt::format("one-{}", i);
    const std::string two = fmt::format("two-{}", i);
    const std::string halves = fmt::format("halves-{}", i);
    run_expecting(0, tokens.train(one, sets));
    run_expecting(0, tokens.train(two, with(sets, {"--nproc", "2"})));
    require_same_losses(tokens.path() / one, tokens.path() / two, 1e-5);
    run_expecting(0, tokens.train(halves, sets));
    fs::remove_all(tokens.path() / halves / "checkpoints" / "step-00000012");
    run_expecting(0, tokens.train(halves, sets));  // goes on at step 7, within an epoch
    CHECK(records(tokens.path() / halves).at(7).at("attempt") == 2);
    require_same_losses(tokens.path() / one, tokens.path() / halves, 0);
  }
}

TEST_CASE("a run on HDF5 files is that on Megatron's, and damaged ones end it before step 1",
          "[tokens][hdf5]") {
  const TokensRun tokens;
  Ids ids = text_ids(900);
  const Ids second = text_ids(301);
  ids.insert(ids.end(), second.begin(), second.end());
  const fs::path h5 = tokens.path() / "train.h5";
  const TokenHdf5 form{.ids = ids, .documents = {0, 900, 1201}, .chunk = 256};
  write_hdf5(h5, form);
  write_hdf5(tokens.path() / "eval.h5", {.ids = text_ids(50)});
  const Arguments sets = set({"data.train=[" + h5.string() + "]",
                              "data.eval=[" + (tokens.path() / "eval.h5").string() + "]",
                              "data.format=hdf5"});
  run_expecting(0, tokens.train("bin"));
  run_expecting(0, tokens.train("one", sets));
  require_same_losses(tokens.path() / "bin", tokens.path() / "one", 0);
  run_expecting(0, tokens.train("two", with(sets, {"--nproc", "2"})));
  require_same_losses(tokens.path() / "one", tokens.path() / "two", 1e-5);
  const Outcome inspected = run_expecting(0, {"dataset", "inspect", h5.string()});
  CHECK(count(inspected.out, "HDF5, uint16") == 1);
  CHECK(count(inspected.out, "1,201") >= 1);

  TokenHdf5 wrong = form;
  wrong.ids[700] = 300;
  write_hdf5(h5, wrong);
  const std::string range = "token id 300 is outside the vocabulary of 256";
  for (const std::string& text :
       tokens.data_errors("token-range", with(sets, set({"data.validate=full"})))) {
    CHECK(count(text, range) == 1);
  }
  const Outcome late = run_expecting(4, tokens.train("late", sets));  // met while reading
  CHECK(count(late.err, h5.string() + "', byte ") >= 1);
  CHECK(count(late.err, range) >= 1);
  wrong = form;
  wrong.type = H5T_IEEE_F64LE;
  write_hdf5(h5, wrong);
  (void)tokens.data_errors("token-format", sets);
  wrong = form;
  wrong.documents = {0, 900, 1300};
  write_hdf5(h5, wrong);
  (void)tokens.data_errors("token-file", sets);
  write_hdf5(h5, form);
  fs::resize_file(h5, fs::file_size(h5) / 2);
  (void)tokens.data_errors("token-file", sets);
}

TEST_CASE("weighted files are drawn by weight, and the plan says so", "[tokens]") {
  const TokensRun tokens;
  write_megatron(tokens.path(), "other", documents(40));
  const Arguments sets =
      set({"data.train=[{path: " + (tokens.path() / "train.bin").string() +
           ", weight: 3}, {path: " + (tokens.path() / "other.bin").string() + ", weight: 1}]"});
  const Outcome plan = run_expecting(0, with({"plan", tokens.config().string()}, sets));
  CHECK(count(plan.out, "75.00 % ") == 1);
  CHECK(count(plan.out, "25.00 % ") == 1);
  run_expecting(0, tokens.train("one", sets));
  run_expecting(0, tokens.train("two", with(sets, {"--nproc", "2"})));
  require_same_losses(tokens.path() / "one", tokens.path() / "two", 1e-5);
}

TEST_CASE("another seed is taken between epochs, which files drawn by weight do not share",
          "[tokens]") {
  const TokensRun tokens;
  write_megatron(tokens.path(), "other", {text_ids(5 * 16 + 1)});
  const std::string train = (tokens.path() / "train.bin").string();
  const std::string other = (tokens.path() / "other.bin").string();
  const Arguments stop = set({"train.steps=10"});  // 80 samples, as many as both files have
  const Arguments go_on = set({"train.steps=12", "run.seed=9"});
  const Arguments joined_files = set({"data.train=[" + train + ", " + other + "]"});
  run_expecting(0, tokens.train("joined", with(joined_files, stop)));
  run_expecting(0, tokens.train("joined", with(joined_files, go_on)));
  const Arguments drawn =
      set({"data.train=[{path: " + train + ", weight: 3}, {path: " + other + ", weight: 1}]"});
  run_expecting(0, tokens.train("drawn", with(drawn, stop)));
  const Outcome refused = run_expecting(5, tokens.train("drawn", with(drawn, go_on)));
  CHECK(count(refused.err, "[resume-needs-allow]") == 1);
  CHECK(count(refused.err, "run.seed") >= 1);
  run_expecting(0, tokens.train("drawn", with(with(drawn, go_on), {"--allow", "run.seed"})));
}

TEST_CASE("an id beyond the vocabulary is named with file and place (Megatron 2459)", "[tokens]") {
  const TokensRun tokens;
  Ids ids = text_ids(1200);
  ids[700] = 300;
  write_megatron(tokens.path(), "train", {ids});
  const std::string place = "train.bin', byte 1400: token id 300 is outside the vocabulary of 256";
  for (const std::string& text : tokens.data_errors("token-range", set({"data.validate=full"}))) {
    CHECK(count(text, place) == 1);
  }
  for (const char* processes : {"1", "2"}) {  // met while reading
    const Outcome outcome = run_expecting(4, tokens.train("late", {"--nproc", processes}));
    INFO(outcome.err);
    CHECK(count(outcome.err, place) >= 1);
    fs::remove_all(tokens.path() / "late");
  }
}

TEST_CASE("damaged token files end with exit code 4 before step 1", "[tokens]") {
  const TokensRun tokens;
  const fs::path bin = tokens.path() / "train.bin";
  const fs::path index = tokens.path() / "train.idx";
  SECTION("empty") {
    write_file(bin, "");
    (void)tokens.data_errors("data-empty");
  }
  SECTION("a cut .bin") {
    write_file(bin, read_file(bin).substr(0, 2001));
    (void)tokens.data_errors("token-file");
  }
  SECTION("a cut .idx") {
    write_file(index, read_file(index).substr(0, 60));
    (void)tokens.data_errors("token-file");
  }
  SECTION("a missing .idx") {
    fs::remove(index);
    (void)tokens.data_errors("token-format");
  }
  SECTION("a glob without a match") {
    (void)tokens.data_errors("data-empty",
                             set({"data.train=[" + (tokens.path() / "none-*.bin").string() + "]"}));
  }
  SECTION("ten tokens") {
    write_megatron(tokens.path(), "train", {text_ids(10)});
    for (const std::string& text :
         tokens.data_errors("data-too-short", set({"data.seq_length=64"}))) {
      CHECK(count(text, "10 tokens, seq_length 64 needs at least 65") == 1);
    }
  }
  SECTION("fewer samples than a batch, also more ranks than samples") {
    write_megatron(tokens.path(), "train", {text_ids(20)});
    for (const std::string& text : tokens.data_errors("data-too-small")) {
      CHECK(count(text, "has 1 samples") == 1);
    }
  }
  SECTION("files without documents") {
    write_file(tokens.path() / "plain.bin", llmc_bytes(text_ids(500)));
    (void)tokens.data_errors("sequence-packing",
                             set({"data.train=[" + (tokens.path() / "plain.bin").string() + "]",
                                  "data.packing=greedy"}));
  }
}

TEST_CASE("small sets are used whole and again (litgpt 603)", "[tokens]") {
  const TokensRun tokens;
  write_megatron(tokens.path(), "train", {text_ids(33)});  // 2 samples
  write_megatron(tokens.path(), "eval", {text_ids(9)});    // less than a sample
  for (const char* last_batch : {"wrap", "pad"}) {
    for (const char* processes : {"1", "2"}) {
      const std::string name = fmt::format("{}-{}", last_batch, processes);
      run_expecting(0,
                    tokens.train(name,
                                 with(set({fmt::format("data.last_batch={}", last_batch)}),
                                      {"--nproc", processes})));
      const Json last = records(tokens.path() / name).at(12);
      CHECK(last.at("epoch").get<double>() == Approx(last_batch[0] == 'w' ? 48 : 12));
      CHECK(records(tokens.path() / name, "eval").at(12).at("tokens") == 8);
      CHECK(records(tokens.path() / name, "eval").at(12).at("samples") == 1);
    }
  }
  require_same_losses(tokens.path() / "pad-1", tokens.path() / "pad-2", 1e-5);
}

TEST_CASE("an evaluation covers its set once, or says what it covers (Caffe 799)", "[tokens]") {
  const TokensRun tokens;
  const Outcome whole = run_expecting(0, tokens.train("whole", {"--nproc", "2"}));
  const Json all = records(tokens.path() / "whole", "eval").at(12);
  CHECK(all.at("samples") == 4);
  CHECK(all.at("tokens") == 49);
  CHECK(count(whole.err, " samples)") == 0);
  const Outcome part = run_expecting(
      0, tokens.train("part", set({"eval.max_batches=1", "eval.micro_batch_size=3"})));
  CHECK(count(part.err, "1 batch (3 of 4 samples)") == 1);
}
