// Is this machine fit to train? Findings about it, each with what to do if it is bad.
#pragma once

#include "train/host_facts.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// How bad a finding is: a run works; works badly or may fail later; cannot work.
enum class Verdict : std::uint8_t { ok, warn, fail };

/// "ok", "warn", "fail".
[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

/// One line of the report.
struct Finding {
  std::string topic;  ///< "cpu"
  Verdict verdict = Verdict::ok;
  std::string detail;    ///< what was found, with its values
  std::string fix = {};  ///< what to do; empty if ok
};

/// Judges facts. Pure: same facts, same findings, in the order of the report.
[[nodiscard]] std::vector<Finding> judge(const HostFacts& facts);

/// Writes a small checkpoint into a temporary folder, reads it back and compares.
[[nodiscard]] Finding check_checkpoints();

/// What rank 0 of a test of the network measured.
struct NetworkTest {
  std::int64_t num_ranks = 1;
  std::int64_t bytes = 0;      ///< of the all-reduced tensor
  double seconds = 0;          ///< median of its all-reduces
  double latency_seconds = 0;  ///< median of all-reduces of one number
  bool correct = false;        ///< every element of every sum
};

/// Finding about a test: `exit_code` of its processes, `test` as to_json() wrote it (or nothing).
[[nodiscard]] Finding judge_network(int num_ranks, int exit_code, const std::string& test);

/// One JSON object.
[[nodiscard]] std::string to_json(const NetworkTest& test);

/// The report for people, and as one JSON object {"verdict", "findings": [{topic, verdict, detail,
/// fix}]}; both end in a newline.
[[nodiscard]] std::string to_text(const std::vector<Finding>& findings);
[[nodiscard]] std::string to_json(const std::vector<Finding>& findings);

/// The worst verdict.
[[nodiscard]] Verdict worst(const std::vector<Finding>& findings);

}  // namespace colossal
