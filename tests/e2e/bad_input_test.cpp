// Does every wrong input end with one clear error, the right exit code, and no training?
#include "e2e/program.hpp"
#include "support/free_port.hpp"

#include <algorithm>
#include <netinet/in.h>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A configuration beside its data in a folder of its own.
class TextRun {
 public:
  TextRun() { write_file(config(), read_file(data_file("text.yaml"))); }
  [[nodiscard]] fs::path config() const { return folder_.path() / "text.yaml"; }
  [[nodiscard]] fs::path data() const { return folder_.path() / "train.txt"; }
  [[nodiscard]] Arguments train(const Arguments& more = {}) const {
    Arguments arguments = {
        "train", config().string(), "--output-dir", (folder_.path() / "run").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Fails the test unless one process, two processes and `validate --data` all find `id`, exit 4,
  /// and say `part`.
  void require_data_error(const std::string& id, const std::string& part) const {
    for (const Arguments& arguments :
         {train(), train({"--nproc", "2"}), {"validate", "--data", config().string()}}) {
      const Outcome outcome = run_expecting(4, arguments);
      INFO(outcome.err);
      CHECK(count(outcome.err, "[" + id + "]") == 1);
      CHECK(count(outcome.err, "train.txt") >= 1);
      CHECK(count(outcome.err, part) == 1);
      CHECK(count(outcome.err, "launch:") == 0);
      CHECK_FALSE(fs::exists(folder_.path() / "run"));
    }
  }

 private:
  TempDir folder_;
};

/// Fails the test unless `train` with these --set texts ends with `code` and names `id` once.
Outcome require_config_error(int code, const std::string& id, const Arguments& sets) {
  const TempDir folder;
  Arguments more;
  for (const std::string& set : sets) {
    more.insert(more.end(), {"--set", set});
  }
  Outcome outcome = run_expecting(code, train_tiny(folder.path() / "run", more));
  INFO(outcome.err);
  CHECK(count(outcome.err, "[" + id + "]") == 1);
  CHECK(outcome.out.empty());
  CHECK_FALSE(fs::exists(folder.path() / "run"));
  return outcome;
}

/// A run in fp16 as its users start it.
Arguments train_fp16(const fs::path& folder, const Arguments& more = {}) {
  Arguments arguments = train_tiny(folder, {"--set", "train.precision=fp16"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Rest of the line that starts with `mark`; empty if there is none.
std::string header(const std::string& text, const std::string& mark) {
  const std::size_t at = text.find(mark);
  const std::size_t begin = at + mark.size();
  return at == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

/// The ids that a file of the corpus of wrong configurations expects: "id line col [file]; ...".
std::set<std::string> expected_ids(const std::string& text) {
  std::set<std::string> ids;
  std::istringstream items(header(text, "# expect: "));
  for (std::string item; std::getline(items, item, ';');) {
    std::istringstream words(item);
    std::string id;
    words >> id;
    ids.insert(id);
  }
  return ids;
}

/// Whether schemas/errors.md says that an id ends a command with exit code 3.
bool is_config_error(const std::string& id) {
  static const std::string table = read_file(data_file("../../schemas/errors.md"));
  const std::string codes = header(table, "| `" + id + "` | ");
  REQUIRE_FALSE(codes.empty());
  return codes.substr(0, codes.find('|')).find('3') != std::string::npos;
}

/// A listening socket on a port that the system chose.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket_, generic, length) == 0);
    REQUIRE(::listen(socket_, 1) == 0);
    REQUIRE(::getsockname(socket_, generic, &length) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  [[nodiscard]] int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

}  // namespace

TEST_CASE("an unknown key is an error with place and suggestion, before any process", "[bad]") {
  const TempDir folder;
  const fs::path config = folder.path() / "config.yaml";
  write_file(config, read_file(data_file("tiny.yaml")) + "lr: 5e-5\n");
  for (const char* processes : {"1", "2"}) {
    const Outcome outcome = run_expecting(3, {"train", config.string(), "--nproc", processes});
    CHECK(count(outcome.err, "config.yaml:12:1: error:") == 1);
    CHECK(count(outcome.err, "[unknown-key]") == 1);
    CHECK(count(outcome.err, "optimizer.lr") >= 1);
    CHECK(count(outcome.err, "launch:") == 0);
    CHECK(outcome.out.empty());
  }
  const Outcome set = require_config_error(3, "unknown-key", {"optimizer.wieght_decay=0.1"});
  CHECK(count(set.err, "weight_decay") >= 2);
}

TEST_CASE("validate prints its diagnostics on stdout", "[bad]") {
  const TempDir folder;
  const fs::path bad = folder.path() / "bad.yaml";
  write_file(bad, "model: {type: gpt, hidden_sise: 4}\n");
  const Outcome outcome = run_expecting(3, {"validate", data_file("tiny.yaml"), bad.string()});
  CHECK(count(outcome.out, "tiny.yaml: ok\n") == 1);
  CHECK(count(outcome.out, "[unknown-key]") == 1);
  CHECK(count(outcome.out, "hidden_size") >= 1);
}

TEST_CASE("files that are no configuration end with exit code 3", "[bad]") {
  const TempDir folder;
  const fs::path file = folder.path() / "config.yaml";
  struct Bad {
    std::string text;
    std::string id;
  };
  const std::vector<Bad> all = {{"", "empty-config"},
                                {"model:\n\ttype: gpt\n", "tab-indent"},
                                {"run: {name: 'tiny}\n", "unclosed-quote"},
                                {"run: {seed: 1}\nrun: {seed: 2}\n", "duplicate-key"},
                                {"version: 2\n", "version-newer"}};
  for (const Bad& bad : all) {
    write_file(file, bad.text);
    const Outcome outcome = run_expecting(3, {"train", file.string(), "--nproc", "2"});
    INFO(outcome.err);
    CHECK(count(outcome.err, "[" + bad.id + "]") == 1);
  }
  const Outcome missing =
      run_expecting(3, {"train", (folder.path() / "missing.yaml").string(), "--nproc", "auto"});
  CHECK(count(missing.err, "[file-not-found]") == 1);
}

TEST_CASE("batches and worlds that do not fit are refused before any process", "[bad]") {
  const Outcome batch = require_config_error(
      3,
      "batch-mismatch",
      {"train.global_batch_size=8", "train.micro_batch_size=2", "train.gradient_accumulation=1"});
  CHECK(count(batch.err, "no launcher environment found") == 1);
  require_config_error(3, "world-size", {"parallel.data=2"});
  const TempDir folder;
  const Outcome world = run_expecting(
      3, train_tiny(folder.path() / "run", {"--nproc", "3", "--set", "parallel.data=2"}));
  CHECK(count(world.err, "[world-size]") == 1);
  CHECK(count(world.err, "--nproc 3") >= 1);
  const Outcome divide = run_expecting(3, train_tiny(folder.path() / "run", {"--nproc", "3"}));
  CHECK(count(divide.err, "[batch-mismatch]") == 1);
}

TEST_CASE("data that cannot be used end with exit code 4", "[bad]") {
  const TextRun text;
  SECTION("missing") {
    text.require_data_error("file-not-found", "does not exist");
  }
  SECTION("empty") {
    write_file(text.data(), "");
    text.require_data_error("data-empty", "is empty (0 bytes)");
  }
  SECTION("a pattern that nothing matches") {
    std::string config = read_file(text.config());
    config.replace(config.find("train.txt"), 9, "'no-*/train.txt'");
    write_file(text.config(), config);
    text.require_data_error("data-empty", "(0 files)");
  }
  SECTION("shorter than one sample") {
    write_file(text.data(), "0123456789");
    text.require_data_error("data-too-short", "10 tokens, seq_length 64 needs at least 65");
  }
  SECTION("a separator byte in the text") {
    write_file(text.data(), std::string(500, 'a') + std::string(1, '\0') + std::string(500, 'b'));
    text.require_data_error("separator-in-text", "offset 500");
  }
  SECTION("a folder") {
    fs::create_directories(text.data());
    text.require_data_error("data-unreadable", "is a directory");
  }
}

TEST_CASE("an output folder that cannot be written ends with exit code 3", "[bad]") {
  const TempDir folder;
  write_file(folder.path() / "file", "");
  for (const fs::path& target : {folder.path() / "file", folder.path() / "file" / "run"}) {
    for (const char* processes : {"1", "2"}) {
      const Outcome outcome = run_expecting(3, train_tiny(target, {"--nproc", processes}));
      CHECK(count(outcome.err, "[output-not-writable]") == 1);
    }
  }
}

TEST_CASE("a folder of checkpoints that cannot be written was noticed after training", "[bad]") {
  const TempDir folder;
  for (const char* name : {"checkpoints", "logs"}) {
    fs::create_directories(folder.path() / name);
    fs::create_symlink("/nowhere/at/all", folder.path() / name / name);
    const fs::path inner = folder.path() / name / name;
    for (const char* processes : {"1", "2"}) {
      const Outcome outcome =
          run_expecting(3, train_tiny(folder.path() / name, {"--nproc", processes}));
      CHECK(times_told(outcome, "[output-not-writable]") == 1);
      CHECK(count(outcome.err, "cannot write " + inner.string()) >= 1);
      CHECK(count(outcome.err, "step  1") == 0);
    }
  }
}

TEST_CASE("a second run in the same folder is refused and names the first", "[bad]") {
  const TempDir folder;
  Program first(train_endless(folder.path()));
  first.await_stderr("step  2/");
  const Outcome second = run_expecting(3, train_tiny(folder.path()));
  CHECK(count(second.err, "[output-in-use]") == 1);
  CHECK(count(second.err, std::to_string(first.pid())) == 1);
  const Outcome several = run_expecting(3, train_tiny(folder.path(), {"--nproc", "2"}));
  CHECK(times_told(several, "[output-in-use]") == 1);
  CHECK(count(several.err, "[output-in-use]") == 1);  // by the launcher, before a rank is there
  CHECK(count(several.err, "launch:") == 0);
}

TEST_CASE("a wrong launcher environment names what is missing", "[bad]") {
  const TempDir folder;
  const Outcome partial = run_expecting(
      9, train_tiny(folder.path() / "run"), {.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}}});
  CHECK(count(partial.err, "[launch-env]") == 1);
  CHECK(count(partial.err, "MASTER_ADDR") >= 1);
  const Setting world_2 = torchrun_rank(0, 2, free_port());
  const Outcome nested =
      run_expecting(2, train_tiny(folder.path() / "run", {"--nproc", "2"}), world_2);
  CHECK(count(nested.err, "[launch-nested]") == 1);
  const Outcome alone = run_expecting(
      8, train_tiny(folder.path() / "run", {"--set", "parallel.comm.init_timeout=3s"}), world_2);
  CHECK(count(alone.err, "[rendezvous]") == 1);
}

TEST_CASE("a port in use is one clear error", "[bad]") {
  const TempDir folder;
  const TakenPort taken;
  const Outcome outcome =
      run_expecting(9, train_tiny(folder.path() / "run"), torchrun_rank(0, 2, taken.port()));
  CHECK(count(outcome.err, "[port-in-use]") == 1);
  CHECK(count(outcome.err, std::to_string(taken.port())) >= 1);
}

TEST_CASE("keys that only a GPU can serve name themselves and end before any step", "[bad]") {
  const TempDir folder;
  const auto refused = [&](int code, const std::string& set, const std::string& key) {
    const fs::path run_dir = folder.path() / "run";
    const Outcome outcome = run_expecting(code, train_tiny(run_dir, {"--set", set}));
    INFO(outcome.err);
    CHECK(count(outcome.err, key + " = ") == 1);  // where it was set
    CHECK(count(outcome.err, "--set#") >= 1);
    CHECK(count(outcome.err, "step  1/") == 0);
    CHECK_FALSE(fs::exists(run_dir / "metrics.jsonl"));
    return outcome.err;
  };
  CHECK(count(refused(3, "train.precision=tf32", "train.precision"), "[gpu-only]") == 1);
  CHECK(count(refused(3, "parallel.comm.backend=nccl", "parallel.comm.backend"), "[gpu-only]") ==
        1);
  if (!fs::exists("/dev/nvidia0")) {  // what `auto` takes is known when the run starts
    const Outcome outcome =
        run_expecting(3,
                      train_tiny(folder.path() / "auto",
                                 {"--set", "run.device=auto", "--set", "train.precision=tf32"}));
    INFO(outcome.err);
    CHECK(count(outcome.err, "[gpu-only]") == 1);
    CHECK(count(outcome.err, "train.precision = tf32") == 1);
    CHECK(count(outcome.err, "step  1/") == 0);
    const std::string text = refused(9, "run.device=cuda", "run.device");
    CHECK(count(text, "[no-cuda-build]") + count(text, "[no-gpu]") == 1);
  }
}

TEST_CASE("a loss that is not finite ends with exit code 7 on every number of ranks", "[bad]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const Outcome outcome = run_expecting(7,
                                          train_tiny(folder.path() / processes,
                                                     {"--nproc",
                                                      processes,
                                                      "--set",
                                                      "optimizer.lr=1e30",
                                                      "--set",
                                                      "scheduler={type: constant}"}));
    INFO(outcome.err);
    CHECK(count(outcome.err, "[nonfinite-") >= 1);
    const Json status = Json::parse(read_file(folder.path() / processes / "status.json"));
    CHECK(status.at("state") == "failed");
    CHECK(status.at("exit") == 7);
  }
}

TEST_CASE("a scale of the loss that only falls ends with exit code 7, told once", "[bad]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    const Outcome outcome = run_expecting(
        7,
        train_fp16(run_dir, {"--nproc", processes, "--set", "train.max_skipped_steps=3"}),
        with_fault("rank=0,step=3,kind=inf"));
    INFO(outcome.err);
    CHECK(times_told(outcome, "[too-many-skipped]") == 1);
    CHECK(times_told(outcome, "step 3: 4 updates in a row were skipped") == 1);
    CHECK(times_told(outcome, "first non-finite gradient: '") == 1);
    const Json status = Json::parse(read_file(run_dir / "status.json"));
    CHECK(status.at("state") == "failed");
    CHECK(status.at("exit") == 7);
    CHECK(status.at("step") == 2);
  }
}

TEST_CASE("the first scale of the loss costs a run in fp16 few steps", "[bad]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    run_expecting(0, train_fp16(run_dir, {"--nproc", processes}));
    const Json last = records(run_dir).at(12);
    CHECK(last.at("skipped").get<int>() <= 3);
    CHECK(last.at("loss").get<double>() < records(run_dir).at(1).at("loss").get<double>());
  }
}

TEST_CASE("validate knows every wrong configuration of the corpus by id and exit code", "[bad]") {
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(data_file("../unit/config/bad"))) {
    if (!entry.is_regular_file()) {
      continue;
    }
    const std::string text = read_file(entry.path());
    Arguments validate = {"validate", entry.path().string()};
    if (const std::string world = header(text, "# world: "); !world.empty()) {
      validate.insert(validate.end(), {"--world-size", world});
    }
    const std::set<std::string> ids = expected_ids(text);
    REQUIRE_FALSE(ids.empty());
    const bool wrong = std::any_of(ids.begin(), ids.end(), is_config_error);
    const Outcome outcome = run_expecting(wrong ? 3 : 0, validate);
    INFO(entry.path() << "\n" << outcome.out);
    for (const std::string& id : ids) {
      CHECK(count(outcome.out, "[" + id + "]") >= 1);
    }
    ++num_files;
  }
  CHECK(num_files > 150);
}
