// Do exported weights mean the same to other programs, and do all commands take what comes back?
#include "e2e/program.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

const Arguments kGreedy = {"--prompt", "in the ", "--temperature", "0", "--max-tokens", "40"};

/// A byte model trained for some steps, its data, and its weights as a file.
class TrainedText {
 public:
  explicit TrainedText(const Arguments& sets = {}, const std::string& processes = "1") {
    write_file(config(), read_file(data_file("text.yaml")));
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += i % 3 == 0 ? "in the beginning was the word " : "and the word was light. ";
    }
    write_file(path("train.txt"), text);
    write_file(path("eval.txt"), "the light was in the beginning. " + text.substr(0, 700));
    run_expecting(0, train({"--output-dir", path("run").string(), "--nproc", processes}, sets));
    sets_ = sets;
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] fs::path config() const { return path("text.yaml"); }
  [[nodiscard]] fs::path file() const { return path("out/model.safetensors"); }

  /// `train` on the configuration of this model; `sets` over those it was trained with.
  [[nodiscard]] Arguments train(const Arguments& more, const Arguments& sets = {}) const {
    Arguments arguments = {"train", config().string()};
    for (const Arguments& some : {Arguments{"train.steps=20",
                                            "optimizer.lr=1e-2",
                                            "data.eval=[" + path("eval.txt").string() + "]"},
                                  sets_,
                                  sets}) {
      for (const std::string& set : some) {
        arguments.insert(arguments.end(), {"--set", set});
      }
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  void export_weights(const Arguments& more = {}) const {
    Arguments arguments = {"export", "--checkpoint", path("run").string(), "-o", file().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CHECK(run_expecting(0, arguments).out == file().string() + "\n");
  }

  /// The arguments of `import` of the exported file.
  [[nodiscard]] Arguments import_weights(const std::string& into) const {
    Arguments arguments = {"import",
                           file().string(),
                           "--model",
                           config().string(),
                           "-o",
                           path(into).string(),
                           "--set",
                           "data.eval=[" + path("eval.txt").string() + "]"};
    for (const std::string& set : sets_) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return arguments;
  }

  [[nodiscard]] Json evaluated(const std::string& checkpoint) const {
    return Json::parse(run_expecting(0, {"eval", "--checkpoint", path(checkpoint).string()}).out);
  }

  [[nodiscard]] std::string continued(const std::string& checkpoint) const {
    Arguments arguments = {"generate", "--checkpoint", path(checkpoint).string()};
    arguments.insert(arguments.end(), kGreedy.begin(), kGreedy.end());
    return run_expecting(0, arguments).out;
  }

  /// What scripts/golden/exported.py finds out about the file.
  [[nodiscard]] Json by_python() const {
    const std::string command = std::string("'") + COLOSSAL_PYTHON + "' '" + COLOSSAL_SOURCE_DIR +
                                "/scripts/golden/exported.py' '" + file().string() + "' '" +
                                path("eval.txt").string() + "' >'" + path("python").string() + "'";
    REQUIRE(std::system(command.c_str()) == 0);  // NOLINT(concurrency-mt-unsafe): one thread
    return Json::parse(read_file(path("python")));
  }

 private:
  TempDir folder_;
  Arguments sets_;
};

void require_refused(const Arguments& arguments, int code, const std::string& id) {
  const Outcome outcome = run_expecting(code, arguments);
  INFO(outcome.err);
  CHECK(count(outcome.err, "[" + id + "]") == 1);
  CHECK(outcome.out.empty());
}

}  // namespace

TEST_CASE("Python's safetensors and a GPT-2 in PyTorch compute our loss from an exported file",
          "[exchange]") {
  for (const Arguments& sets :
       {Arguments{}, Arguments{"model.tie_embeddings=false", "model.activation=relu"}}) {
    const TrainedText trained(sets);
    trained.export_weights({"--to", "safetensors"});
    const Json python = trained.by_python();
    const Json ours = trained.evaluated("run");
    CHECK(python.at("labels") == ours.at("tokens"));
    CHECK(std::abs(python.at("loss").get<double>() - ours.at("loss").get<double>()) < 1e-5);
    CHECK(ours.at("loss").get<double>() < 4);  // it has learned something
    CHECK(python.at("tensors").at("transformer.wte.weight").at(0) == 256);
    CHECK(python.at("tensors").contains("lm_head.weight") == !sets.empty());
  }
}

TEST_CASE("weights that lie in parts on two processes leave whole", "[exchange]") {
  const Arguments policies[] = {
      {"parallel.zero.stage=3", "parallel.zero.bucket_size=4KiB"},
      {"parallel.zero.stage=2", "parallel.zero.offload=optimizer", "train.precision=bf16"}};
  for (const Arguments& sets : policies) {
    const TrainedText trained(sets, "2");
    trained.export_weights();
    const Json python = trained.by_python();
    // The masters leave; under bf16 the run itself computes with their rounded copies.
    const double tolerance = sets.size() == 2 ? 1e-5 : 2e-2;
    const double ours = trained.evaluated("run").at("loss").get<double>();
    CHECK(std::abs(python.at("loss").get<double>() - ours) < tolerance);
    CHECK(python.at("tensors").size() == 16);
  }
}

TEST_CASE("16 bits and a copied head are read by Python, too", "[exchange]") {
  const TrainedText trained;
  trained.export_weights({"--dtype", "bf16", "--untie"});
  const Json python = trained.by_python();
  CHECK(python.at("tensors").contains("lm_head.weight"));
  const double ours = trained.evaluated("run").at("loss").get<double>();
  CHECK(std::abs(python.at("loss").get<double>() - ours) < 2e-2);
  CHECK(std::abs(python.at("loss").get<double>() - ours) > 1e-7);  // it is not the fp32 file
}

TEST_CASE("what comes back is the model that left", "[exchange]") {
  const TrainedText trained;
  trained.export_weights();
  const Outcome import = run_expecting(0, trained.import_weights("back"));
  CHECK(import.out == (trained.path("back") / "step-00000000").string() + "\n");
  CHECK(count(import.err, "--resume") == 1);
  const Outcome same = run_expecting(0,
                                     {"inspect",
                                      trained.path("back").string(),
                                      "--verify",
                                      "--format",
                                      "json",
                                      "--diff",
                                      trained.path("run").string()});
  const Json diff = Json::parse(same.out).at("diff");
  CHECK(diff.at("only_here").empty());
  CHECK(diff.at("max_difference").empty());
  CHECK(trained.continued("back") == trained.continued("run"));
  CHECK(trained.evaluated("back").at("loss") == trained.evaluated("run").at("loss"));
  CHECK(trained.evaluated("back").at("step") == 0);
}

TEST_CASE("a run begins with imported weights and a fresh optimizer", "[exchange]") {
  const TrainedText trained;
  trained.export_weights();
  run_expecting(0, trained.import_weights("back"));
  const double loss = trained.evaluated("run").at("loss").get<double>();
  for (const char* processes : {"1", "2"}) {
    const fs::path run = trained.path(std::string("tuned-") + processes);
    const Arguments tune =
        trained.train({"--resume",
                       trained.path("back").string(),
                       "--output-dir",
                       run.string(),
                       "--nproc",
                       processes},
                      {"optimizer.type=lamb", "eval.at_start=true", "train.steps=4"});
    run_expecting(0, tune);
    const auto evals = records(run, "eval");
    REQUIRE(evals.contains(0));
    CHECK(std::abs(evals.at(0).at("loss").get<double>() - loss) < 1e-6);
    CHECK(records(run).rbegin()->first == 4);

    const Outcome again = run_expecting(0, tune);  // a job that is started twice goes on
    CHECK(count(again.err, "[init-ignored]") == 1);
    CHECK(count(again.err, "already holds step 4 of 4") == 1);
  }
  const Json whole = Json::parse(
      run_expecting(0,
                    {"inspect", trained.path("tuned-1").string(), "--format", "json", "--tensors"})
          .out);
  CHECK_FALSE(whole.at("state").contains("content"));  // what it saves can be resumed
}

TEST_CASE("weights begin another model only if it computes the same", "[exchange]") {
  const TrainedText trained;
  trained.export_weights();
  run_expecting(0, trained.import_weights("back"));
  const Arguments resume = {
      "--resume", trained.path("back").string(), "--output-dir", trained.path("other").string()};
  require_refused(trained.train(resume, {"model.activation=relu"}), 5, "resume-mismatch");
  require_refused(trained.train(resume, {"model.num_layers=2"}), 5, "resume-mismatch");
}

TEST_CASE("export and import say what they cannot do", "[exchange]") {
  const TrainedText trained;
  trained.export_weights();
  const std::string run = trained.path("run").string();
  require_refused({"export", "--checkpoint", run}, 2, "missing-argument");
  require_refused({"export", "-o", "x"}, 2, "missing-argument");
  require_refused({"export", "--checkpoint", run, "-o", "x", "--to", "onnx"}, 2, "usage");
  require_refused({"export", "--checkpoint", run, "-o", "x", "--dtype", "int8"}, 2, "usage");
  require_refused({"export", "--checkpoint", run, "-o", trained.file().string()}, 2, "file-exists");
  require_refused(
      {"export", "--checkpoint", trained.path("none").string(), "-o", "x"}, 5, "checkpoint-none");
  require_refused({"import", trained.file().string()}, 2, "missing-argument");
  require_refused({"import", "--model", "x", "-o", "y"}, 2, "missing-argument");

  run_expecting(0, trained.import_weights("back"));
  require_refused(trained.import_weights("back"), 3, "output-exists");
  Arguments other = trained.import_weights("other");
  other.insert(other.end(), {"--set", "model.num_layers=2"});
  require_refused(other, 5, "weights-mismatch");
  other.back() = "model.hidden=1";
  require_refused(other, 3, "unknown-key");
  CHECK_FALSE(fs::exists(trained.path("other")));
  fs::resize_file(trained.file(), fs::file_size(trained.file()) / 2);
  require_refused(trained.import_weights("other"), 5, "weights-damaged");
  fs::remove(trained.file());
  require_refused(trained.import_weights("other"), 4, "file-not-found");
}

TEST_CASE("a full disk leaves neither a half file nor a half checkpoint", "[exchange]") {
  const TrainedText trained;
  const auto limited = [&](const Arguments& arguments, const std::string& kib) {
    std::string command = "ulimit -f " + kib + "; exec '" + std::string(COLOSSAL_BINARY) + "'";
    for (const std::string& argument : arguments) {
      command += " '" + argument + "'";
    }
    command += " 2>'" + trained.path("err").string() + "' >/dev/null";
    const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    return WEXITSTATUS(status);
  };
  const Arguments leave = {
      "export", "--checkpoint", trained.path("run").string(), "-o", trained.file().string()};
  CHECK(limited(leave, "8") == 9);
  CHECK(count(read_file(trained.path("err")), "[output-write]") == 1);
  CHECK(fs::is_empty(trained.path("out")));
  trained.export_weights();
  CHECK(limited(trained.import_weights("back"), "8") == 5);
  CHECK(count(read_file(trained.path("err")), "[checkpoint-write]") == 1);
  CHECK(fs::is_empty(trained.path("back")));
  run_expecting(0, trained.import_weights("back"));
}
