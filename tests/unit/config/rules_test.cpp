// Does every rule across keys hold exactly at its boundary, and say what would be legal?
#include "config/rules/rules.hpp"

#include "config_sandbox.hpp"
#include "support/catch.hpp"

namespace colossal::test {
namespace {

/// One row: overrides on the synthetic (or text) base and the ids that must come out.
struct RuleRow {
  std::vector<std::string> sets;
  std::string ids;
};

std::string ids_of(const Loaded& loaded) {
  std::string ids;
  for (const Diagnostic& item : loaded.diagnostics) {
    ids += (ids.empty() ? "" : " ") + item.id;
  }
  return ids;
}

void check_rows(const std::string& base, std::int64_t world, const std::vector<RuleRow>& rows) {
  const ConfigSandbox box;
  for (const RuleRow& row : rows) {
    const Loaded loaded = box.load(base, options(row.sets, world));
    std::string sets;
    for (const std::string& set : row.sets) {
      sets += set + " ";
    }
    INFO(sets << "\n" << render(loaded.diagnostics));
    CHECK(ids_of(loaded) == row.ids);
  }
}

Diagnostic only(const std::string& base, std::vector<std::string> sets, std::int64_t world = 0) {
  const ConfigSandbox box;
  const Loaded loaded = box.load(base, options(std::move(sets), world));
  INFO(render(loaded.diagnostics));
  REQUIRE(loaded.diagnostics.size() == 1);
  return loaded.diagnostics[0];
}

}  // namespace

TEST_CASE("heads divide the hidden size", "[config]") {
  check_rows(
      kSynthetic,
      0,
      {{{"model.num_heads=64"}, ""},
       {{"model.num_heads=1"}, ""},
       {{"model.num_heads=3"}, "heads-divisible"},
       {{"model.num_heads=128"}, "heads-divisible"},
       {{"model.num_kv_heads=1"}, ""},
       {{"model.num_kv_heads=2"}, ""},
       {{"model.num_kv_heads=3"}, "kv-heads-divisible"},
       {{"model.num_kv_heads=8"}, "kv-heads-divisible"},
       {{"model.num_heads=5", "model.num_kv_heads=2"}, "heads-divisible kv-heads-divisible"}});
}

TEST_CASE("the fix lists the divisors (ColossalAI 605)", "[config]") {
  CHECK(only(kSynthetic, {"model.hidden_size=25", "model.num_heads=4"}).fix ==
        "num_heads: 1 | 5 | 25");
  CHECK(only(kSynthetic, {"model.num_heads=12", "model.hidden_size=768", "model.num_kv_heads=8"})
            .fix == "num_kv_heads: 1 | 2 | 3 | 4 | 6 | 12");
}

TEST_CASE("nearest divisors are at most eight, ascending", "[config]") {
  CHECK(detail::nearest_divisors(1, 7) == "1");
  CHECK(detail::nearest_divisors(13, 5) == "1 | 13");
  CHECK(detail::nearest_divisors(5040, 100) == "72 | 80 | 84 | 90 | 105 | 112 | 120 | 126");
}

TEST_CASE("positions cover the sequence", "[config]") {
  check_rows(kSynthetic,
             0,
             {{{"model.max_seq_length=64"}, ""},
              {{"model.max_seq_length=63"}, "seq-too-long"},
              {{"data.seq_length=1k"}, ""},
              {{"model.preset=gpt2-124m", "data.seq_length=1024"}, ""},
              {{"model.preset=gpt2-124m", "data.seq_length=1025"}, "seq-too-long"}});
}

TEST_CASE("the vocabulary covers the tokenizer", "[config]") {
  check_rows(kText,
             0,
             {{{"model.vocab_size=256"}, ""},
              {{"model.vocab_size=255"}, "vocab-too-small"},
              {{"model.vocab_size=50257"}, ""},
              {{"model.vocab_size=auto"}, ""},
              // Its files are read with the data, not here.
              {{"data.tokenizer={type: bpe, path: none}", "model.vocab_size=9"}, ""},
              {{"data.tokenizer={type: bpe, path: none}", "model.vocab_size=auto"}, ""}});
  check_rows(
      kSynthetic, 0, {{{"model.vocab_size=2"}, ""}, {{"model.vocab_size=auto"}, "required"}});
}

TEST_CASE("ranks with a log of their own are ranks of the run", "[config]") {
  check_rows(kSynthetic,
             2,
             {{{"logging.ranks=zero"}, ""},
              {{"logging.ranks=all"}, ""},
              {{"logging.ranks=[]"}, ""},
              {{"logging.ranks=[1]"}, ""},
              {{"logging.ranks=[0, 2]"}, "out-of-range"},
              {{"logging.ranks=[-1]"}, "out-of-range"},
              {{"logging.ranks=none"}, "bad-enum"},
              {{"logging.ranks=1"}, "bad-enum"},
              {{"logging.ranks=[all]"}, "bad-int"}});
  check_rows(kSynthetic, 0, {{{"logging.ranks=[7]"}, ""}});  // nobody knows how many there are
  CHECK(only(kSynthetic, {"logging.ranks=2"}).fix == "one of: zero, all; or a list, as [2]");
}

TEST_CASE("weights belong to training data, whose items then never end", "[config]") {
  check_rows(kText,
             0,
             {{{"data.train=[{path: a, weight: 1}, b]"}, ""},
              {{"data.train=[{path: a, weight: null}, b]"}, ""},
              {{"data.train=[{path: a, weihgt: null}, b]"}, "unknown-key"},
              {{"data.train=[{path: a, weight:!3}, b]"}, "unknown-key"},
              {{"data.eval=[a, b]"}, ""},
              {{"data.eval=[{path: a, weight: 1}]"}, "data-weights"},
              {{"data.last_batch=pad"}, ""},
              {{"data.train=[{path: a, weight: 1}, b]", "data.last_batch=wrap"}, ""},
              {{"data.train=[{path: a, weight: 1}, b]", "data.last_batch=pad"}, "unused-section"},
              {{"data.train=[{path: a, weight: 1}]", "data.last_batch=pad"}, ""}});
}

TEST_CASE("a collective library fits the device that is asked for", "[config]") {
  check_rows(kSynthetic,
             0,
             {{{"run.device=cuda"}, ""},
              {{"parallel.comm.backend=nccl"}, ""},
              {{"run.device=cuda", "parallel.comm.backend=nccl"}, ""},
              {{"run.device=cpu", "parallel.comm.backend=nccl"}, "gpu-only"},
              {{"run.device=cpu", "parallel.comm.backend=gloo"}, ""},
              {{"run.device=cuda", "parallel.comm.backend=gloo"}, "comm-backend"}});
}

TEST_CASE("steps that must be recorded need a device that is not said to be a cpu", "[config]") {
  check_rows(kSynthetic,
             0,
             {{{"train.cuda_graph=true"}, ""},
              {{"run.device=cuda", "train.cuda_graph=true"}, ""},
              {{"run.device=cpu", "train.cuda_graph=auto"}, ""},
              {{"run.device=cpu", "train.cuda_graph=true"}, "gpu-only"}});
}

TEST_CASE("replicas fill the world", "[config]") {
  check_rows(kSynthetic,
             3,
             {{{}, ""},
              {{"parallel.data=3"}, ""},
              {{"parallel.data=auto"}, ""},
              {{"parallel.data=2"}, "world-size"},
              {{"parallel.data=4"}, "world-size"}});
  check_rows(kSynthetic, 0, {{{"parallel.data=7"}, ""}});
  const Diagnostic error = only(kSynthetic, {"parallel.data=2"}, 3);
  CHECK(error.message == "parallel.data 2 does not fill 3 processes");
  CHECK(error.why.find("world size 3: no launcher environment found") != std::string::npos);
}

TEST_CASE("warm-up ends within the run, whatever counts its length", "[config]") {
  check_rows(
      kSynthetic,
      1,
      {{{"scheduler.warmup_steps=50"}, ""},
       {{"scheduler.warmup_steps=51"}, "warmup-too-long"},
       {{"scheduler.warmup_steps=51", "train.steps=null", "train.samples=204"}, ""},
       {{"scheduler.warmup_steps=51", "train.steps=null", "train.samples=200"}, "warmup-too-long"},
       {{"scheduler.warmup_steps=51", "train.steps=null", "train.tokens=12800"}, "warmup-too-long"},
       {{"scheduler.warmup_steps=51", "train.steps=null", "train.epochs=1"}, ""},
       {{"scheduler.warmup_ratio=0.99"}, ""}});
  // Unknown world: the length of a token budget is unknown too.
  check_rows(
      kSynthetic, 0, {{{"scheduler.warmup_steps=51", "train.steps=null", "train.tokens=1"}, ""}});
}

TEST_CASE("warnings do not stop a run", "[config]") {
  check_rows(kText,
             1,
             {{{"optimizer.lr=1"}, ""},
              {{"optimizer.lr=1.01"}, "lr-too-large"},
              {{"data.eval=[b]", "eval.every_steps=50"}, ""},
              {{"data.eval=[b]", "eval.every_steps=51"}, "never-runs"},
              {{"logging.profiler={start_step: 50}"}, ""},
              {{"logging.profiler={start_step: 51}"}, "never-runs"},
              {{"checkpoint.at_end=false"}, "checkpoint-none"},
              {{"checkpoint.at_end=false", "checkpoint.every_steps=50"}, ""},
              {{"checkpoint.at_end=false", "checkpoint.every_steps=51"}, "checkpoint-none"}});
  const ConfigSandbox box;
  const Loaded loaded = box.load(kText, options({"optimizer.lr=2", "checkpoint.at_end=false"}));
  CHECK(loaded.diagnostics.size() == 2);
  CHECK_FALSE(loaded.has_errors());
}

TEST_CASE("the best checkpoint is told by a number that is measured when it is saved", "[config]") {
  const auto best = [](const std::string& metric) {
    return "checkpoint.keep_best={metric: " + metric + ", mode: min}";
  };
  check_rows(
      kText,
      1,
      {{{best("train/loss")}, ""},
       {{best("eval/loss")}, "keep-best-metric"},
       {{best("eval/loss"), "data.eval=[b]"}, ""},  // both at the end
       {{best("eval/ppl"), "data.eval=[b]"}, ""},
       {{"checkpoint.keep_best={metric: eval/accuracy, mode: max}", "data.eval=[b]"},
        "keep-best-metric"},
       {{best("eval/loss"), "data.eval=[b]", "eval.at_end=false"}, "keep-best-metric"},
       {{best("eval/loss"), "data.eval=[b]", "eval.at_end=false", "eval.at_start=true"},
        "keep-best-metric"},
       {{best("eval/loss"),
         "data.eval=[b]",
         "eval={at_end: false, every_steps: 10}",
         "checkpoint.every_steps=25"},
        ""},  // both at step 50, the last one
       {{best("eval/loss"), "data.eval=[b]", "eval={at_end: false, every_steps: 25}"}, ""},
       {{best("eval/loss"), "data.eval=[b]", "eval={at_end: false, every_steps: 20}"},
        "keep-best-metric"},
       {{best("eval/loss"), "data.eval=[b]", "checkpoint={at_end: false, every_steps: 25}"}, ""},
       {{best("eval/loss"),
         "data.eval=[b]",
         "eval={at_end: false, every_steps: 11}",
         "checkpoint.every_steps=10"},
        "keep-best-metric"},
       {{best("eval/loss"),
         "data.eval=[b]",
         "eval={at_end: false, every_steps: 11}",
         "checkpoint.every_time=1m"},
        ""},
       {{"checkpoint.keep_best={metric: eval/top1, mode: max}"}, "bad-enum"},
       {{"checkpoint.keep_best={metric: train/loss}"}, ""},
       {{"checkpoint.keep_best={metric: train/loss, mode: max}"}, "keep-best-metric"},
       {{"checkpoint.keep_best={mode: min}"}, "required"}});
  CHECK(only(kText, {"checkpoint.keep_best={metric: eval/accuracy, mode: max}", "data.eval=[b]"})
            .fix == "train/loss, eval/loss or eval/ppl");
}

TEST_CASE("a cpu without run.device_memory is a device without a limit", "[config]") {
  const auto placed = [](const std::string& keys) { return "parallel.gemini={" + keys + "}"; };
  check_rows(kSynthetic,
             1,
             {{{placed("placement: static, offload_optim_frac: 0.5")}, ""},
              {{placed("placement: cuda")}, ""},
              {{placed("placement: cpu")}, ""},
              {{placed("placement: const, const_budget: 1MiB")}, ""},
              {{placed("placement: auto")}, "gemini-device-memory"},
              {{placed("placement: auto"), "run.device_memory=1GiB"}, ""},
              {{placed("placement: auto"), "run.device=cuda"}, ""}});
}

TEST_CASE("saving beside training needs memory and something beside it", "[config]") {
  const std::string nvme = "parallel.gemini={placement: cpu, nvme: {path: /tmp, fraction: ";
  check_rows(kSynthetic,
             1,
             {{{"checkpoint.async=true", "checkpoint.every_steps=5"}, ""},
              {{"checkpoint.async=true", "checkpoint.every_time=5s"}, ""},
              {{"checkpoint.async=true"}, "unused-section"},
              {{"checkpoint.async=true", "checkpoint.every_steps=5", nvme + "0.5}}"}, "async-nvme"},
              {{"checkpoint.every_steps=5", nvme + "0.5}}"}, ""},
              {{"checkpoint.at_end=false", "checkpoint.every_time=1h"}, ""},
              {{"checkpoint.every_time=0s"}, "out-of-range"},
              {{"checkpoint.keep_every=0"}, "out-of-range"},
              {{"checkpoint.export_at_end=safetensors"}, ""},
              {{"checkpoint={export_at_end: safetensors, at_end: false, every_steps: 5}"},
               "export-at-end"},
              {{"checkpoint.content=weights"}, "weights-only-run"}});
}

TEST_CASE("a budget that is not whole is said, with the steps", "[config]") {
  check_rows(kSynthetic,
             1,
             {{{"train.steps=null", "train.tokens=512"}, ""},
              {{"train.steps=null", "train.tokens=513"}, "tokens-not-multiple"},
              {{"train.steps=null", "train.samples=8"}, ""},
              {{"train.steps=null", "train.samples=9"}, "tokens-not-multiple"}});
  const Diagnostic note = only(kSynthetic, {"train.steps=null", "train.samples=9"}, 1);
  CHECK(note.severity == Diagnostic::Severity::note);
  CHECK(note.message == "9 samples are rounded up to 3 steps of 4");
}

TEST_CASE("an evaluation needs data and settings need an evaluation", "[config]") {
  check_rows(kText,
             0,
             {{{"data.eval=[b]"}, ""},
              {{"eval.every_steps=5"}, "eval-needs-data"},
              {{"eval.at_start=true"}, "eval-needs-data"},
              {{"eval.at_end=true"}, "eval-needs-data"},
              {{"eval.at_end=false"}, ""},
              {{"data.eval=[b]", "eval.max_batches=1"}, ""},
              {{"data.eval=[b]", "eval.max_batches=1", "eval.at_end=false"}, "unused-section"},
              {{"eval.max_batches=1"}, "unused-section"}});
  // Synthetic data come with an evaluation split.
  check_rows(kSynthetic,
             0,
             {{{"eval.at_end=true"}, ""},
              {{"eval.every_steps=5"}, ""},
              {{"eval.every_steps=5", "eval.max_batches=1"}, ""}});
}

TEST_CASE("settings that nothing reads are refused, their defaults are not", "[config]") {
  check_rows(kSynthetic,
             0,
             {{{"train.max_skipped_steps=3"}, "unused-section"},
              {{"train.max_skipped_steps=50"}, ""},
              {{"train.max_skipped_steps=3", "train.nonfinite=skip"}, ""},
              {{"scheduler.warmup_start=0.5"}, "unused-section"},
              {{"scheduler.warmup_start=0.5", "scheduler.warmup_steps=0"}, "unused-section"},
              {{"scheduler.warmup_start=0.5", "scheduler.warmup_steps=1"}, ""},
              {{"scheduler.warmup_start=0.5", "scheduler.warmup_ratio=0.1"}, ""},
              {{"scheduler.warmup_start=0"}, ""},
              {{"scheduler.warmup_start=3", "scheduler.warmup_steps=5"}, ""},
              {{"scheduler.warmup_start=-0.1", "scheduler.warmup_steps=5"}, "out-of-range"},
              {{"scheduler.min_lr_ratio=0"}, "unused-section"},
              {{"scheduler.min_lr_ratio=null"}, ""},
              {{"scheduler.decay_steps=3"}, "unused-section"},
              {{"scheduler.decay_steps=3", "scheduler.type=cosine"}, ""}});
}

TEST_CASE("the run's name is a folder name, also when it is the file's", "[config]") {
  check_rows(kSynthetic,
             0,
             {{{"run.name=A-z_0.9"}, ""},
              {{"run.name=" + std::string(80, 'a')}, ""},
              {{"run.name=" + std::string(81, 'a')}, "bad-name"},
              {{"run.name=a/b"}, "bad-name"},
              {{"run.name=.."}, "bad-name"},
              {{"run.name=caf\xc3\xa9"}, "bad-name"}});
  const ConfigSandbox box;
  const auto path = box.write("my run.yaml", kSynthetic);
  CHECK(ids_of(load(path)) == "bad-name");
  CHECK(ids_of(load(path, options({"run.name=mine"}))).empty());
}

TEST_CASE("every value can be stored as UTF-8, wherever it came from", "[config]") {
  const ConfigSandbox box;
  const auto path = box.write("run.yaml", kSynthetic);
  LoadOptions flag = options({});
  flag.output_dir = "runs/caf\xc3\xa9";
  CHECK(ids_of(load(path, flag)).empty());
  for (const char* bytes : {"runs/caf\xe9", "runs/\xff", "runs/cut\xc3", "runs/\xc0\xaf"}) {
    flag.output_dir = bytes;
    const Loaded loaded = load(path, flag);
    INFO(render(loaded.diagnostics));
    REQUIRE(ids_of(loaded) == "not-utf8");
    CHECK(loaded.diagnostics[0].origin.file == "--output-dir");
    CHECK(loaded.diagnostics[0].path == "run.output_dir");
  }
  CHECK(ids_of(load(box.write("a\xff.yaml", kSynthetic))).starts_with("bad-name"));
}

TEST_CASE("rules of all topics report together", "[config]") {
  check_rows(kText,
             3,
             {{{"parallel.data=2",
                "model.num_heads=5",
                "model.vocab_size=7",
                "scheduler.warmup_steps=90",
                "eval.every_steps=4"},
               "world-size heads-divisible vocab-too-small warmup-too-long eval-needs-data"}});
}

TEST_CASE("the length of a run in epochs is judged when the data have said it", "[config]") {
  const ConfigSandbox box;
  const auto judged = [&](std::vector<std::string> sets, std::int64_t steps) {
    sets.insert(sets.end(), {"train.steps=null", "train.epochs=2"});
    const Loaded loaded = box.load(kSynthetic, options(std::move(sets), 1));
    INFO(render(loaded.diagnostics));
    REQUIRE_FALSE(loaded.has_errors());
    std::string ids;
    for (const Diagnostic& item : check_length(loaded, steps)) {
      ids += (ids.empty() ? "" : " ") + item.id;
    }
    return ids;
  };
  CHECK(judged({}, 1).empty());
  CHECK(judged({"scheduler.warmup_steps=9"}, 9).empty());
  CHECK(judged({"scheduler.warmup_steps=9"}, 8) == "warmup-too-long");
  CHECK(judged({"eval.every_steps=9"}, 9).empty());
  CHECK(judged({"eval.every_steps=9"}, 8) == "never-runs");
  CHECK(judged({"checkpoint.at_end=false", "checkpoint.every_steps=9"}, 9).empty());
  CHECK(judged({"checkpoint.at_end=false", "checkpoint.every_steps=9"}, 8) == "checkpoint-none");
  // Said by load() already, whatever the length.
  CHECK(judged({"optimizer.lr=2", "checkpoint.at_end=false"}, 8).empty());
}

TEST_CASE("a warm-up longer than the epochs names their key", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      kSynthetic, options({"train.steps=null", "train.epochs=2", "scheduler.warmup_steps=9"}, 1));
  const std::vector<Diagnostic> found = check_length(loaded, 8);
  REQUIRE(found.size() == 1);
  CHECK(found[0].origin.file.starts_with("--set"));
  CHECK(found[0].related.at(0).path == "train.epochs");
  CHECK(found[0].fix.starts_with("warmup_steps: 8 or less"));
}

}  // namespace colossal::test
