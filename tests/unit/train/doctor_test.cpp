// Does the doctor see what is wrong with a machine, and leave a healthy one alone?
#include "train/doctor.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// A machine without a fault.
HostFacts healthy() {
  HostFacts facts;
  facts.host = "node";
  facts.system = "Linux 6.1 x86_64";
  facts.processor = "Some CPU";
  facts.cores = 8;
  facts.usable_cores = 8;
  facts.instructions = "avx2";
  facts.memory_bytes = 32 * kGiB;
  facts.available_bytes = 20 * kGiB;
  facts.torch_library = "/torch/lib/libtorch_cpu.so";
  facts.torch_version = "2.11.0";
  facts.torch_built = "2.11.0";
  facts.hdf5 = {.version = "1.10.8", .built_version = "1.10.8"};
  facts.open_files = 4096;
  facts.shared_memory_bytes = kGiB;
  facts.clock_source = "tsc";
  facts.unix_seconds = 1'764'288'000;
  facts.first_port = 32768;
  facts.last_port = 60999;
  facts.output = "/work";
  facts.output_free_bytes = 100 * kGiB;
  facts.temporary = "/tmp";
  return facts;
}

Finding find(const HostFacts& facts, const std::string& topic) {
  const std::vector<Finding> findings = judge(facts);
  const auto found = std::find_if(
      findings.begin(), findings.end(), [&](const Finding& f) { return f.topic == topic; });
  REQUIRE(found != findings.end());
  return *found;
}

/// A change of the healthy machine and what the doctor must say.
struct Case {
  const char* topic;
  Verdict verdict;
  const char* words;  ///< part of the detail
  std::function<void(HostFacts&)> hurt;
};

using F = HostFacts;
constexpr auto kOk = Verdict::ok;
constexpr auto kWarn = Verdict::warn;
constexpr auto kFail = Verdict::fail;

/// What the machine is made of.
std::vector<Case> hardware_cases() {
  return {
      {"torch", kFail, "runs with 2.10.0", [](F& f) { f.torch_version = "2.10.0"; }},
      {"torch", kOk, "an unknown version", [](F& f) { f.torch_version = ""; }},
      {"hdf5", kFail, "virtual datasets no", [](F& f) { f.hdf5.version = "1.8.21"; }},
      {"hdf5",
       kWarn,
       "1.12.2 (built with 1.10.8)",
       [](F& f) {
         f.hdf5.version = "1.12.2";
         f.hdf5.same_as_built = false;
       }},
      {"cpu", kWarn, "4 of 8 cores usable", [](F& f) { f.usable_cores = 4; }},
      {"cpu", kWarn, "a quota of 1.5 cores", [](F& f) { f.quota_cores = 1.5; }},
      {"cpu", kOk, "8 of 8", [](F& f) { f.quota_cores = 8; }},
      {"cpu", kWarn, "kernels for default", [](F& f) { f.instructions = "default"; }},
      {"memory", kWarn, "1.0 GiB of 32.0 GiB", [](F& f) { f.available_bytes = kGiB; }},
      {"memory", kFail, "256 MiB of", [](F& f) { f.available_bytes = kGiB / 4; }},
      {"memory", kFail, "group 128 MiB", [](F& f) { f.memory_limit_bytes = kGiB / 8; }},
      {"memory", kOk, "unknown of", [](F& f) { f.available_bytes = -1; }},
      {"gpu", kOk, "2 present, unused", [](F& f) { f.num_gpus = 2; }},
  };
}

/// How the machine is set up.
std::vector<Case> setup_cases() {
  return {
      {"limits", kWarn, "open files 512", [](F& f) { f.open_files = 512; }},
      {"limits", kFail, "open files 64", [](F& f) { f.open_files = 64; }},
      {"limits", kWarn, "processes 100", [](F& f) { f.processes = 100; }},
      {"limits", kWarn, "file size 1 MiB", [](F& f) { f.file_bytes = 1 << 20; }},
      {"shm", kWarn, "63 MiB free", [](F& f) { f.shared_memory_bytes = 63 << 20; }},
      {"shm", kWarn, "no /dev/shm", [](F& f) { f.shared_memory_bytes = -1; }},
      {"clock", kWarn, "86400 s since 1970", [](F& f) { f.unix_seconds = 86400; }},
      {"clock", kWarn, "source hpet", [](F& f) { f.clock_source = "hpet"; }},
      {"ports", kFail, "Permission denied", [](F& f) { f.port_problem = "Permission denied"; }},
      {"ports", kWarn, "has no address", [](F& f) { f.host_resolves = false; }},
      {"ports", kWarn, "32768 to 32800", [](F& f) { f.last_port = 32800; }},
      {"disk", kWarn, "1.0 GiB free in /work", [](F& f) { f.output_free_bytes = kGiB; }},
      {"disk", kFail, "/work (not writable)", [](F& f) { f.output_writable = false; }},
      {"disk", kFail, "/tmp (not writable)", [](F& f) { f.temporary_writable = false; }},
      {"environment",
       kFail,
       "MASTER_PORT not set",
       [](F& f) { f.launch_problem = "MASTER_PORT not set"; }},
      {"environment",
       kFail,
       "no such network interface",
       [](F& f) {
         f.environment["GLOO_SOCKET_IFNAME"] = "eth9";
         f.interface_known = false;
       }},
      {"environment",
       kWarn,
       "OMP_NUM_THREADS=64 exceeds 8 cores",
       [](F& f) { f.environment["OMP_NUM_THREADS"] = "64"; }},
      {"environment",
       kWarn,
       "'many' is no number",
       [](F& f) { f.environment["MKL_NUM_THREADS"] = "many"; }},
      {"environment",
       kOk,
       "OMP_NUM_THREADS=8",
       [](F& f) { f.environment["OMP_NUM_THREADS"] = "8"; }},
      {"environment",
       kWarn,
       "COLOSSAL_FAULT=kind=nan",
       [](F& f) { f.environment["COLOSSAL_FAULT"] = "kind=nan"; }},
  };
}

}  // namespace

TEST_CASE("a healthy machine has only good findings, without advice", "[doctor]") {
  const std::vector<Finding> findings = judge(healthy());
  CHECK(findings.size() == 12);
  for (const Finding& finding : findings) {
    INFO(finding.topic << ": " << finding.detail);
    CHECK(finding.verdict == Verdict::ok);
    CHECK(finding.fix.empty());
    CHECK_FALSE(finding.detail.empty());
  }
  CHECK(worst(findings) == Verdict::ok);
}

TEST_CASE("every fault is named with its values and a fix", "[doctor]") {
  std::vector<Case> cases = hardware_cases();
  const std::vector<Case> more = setup_cases();
  cases.insert(cases.end(), more.begin(), more.end());
  for (const Case& one : cases) {
    HostFacts facts = healthy();
    one.hurt(facts);
    const Finding finding = find(facts, one.topic);
    INFO(one.topic << ": wanted '" << one.words << "', got '" << finding.detail << "'");
    CHECK(finding.verdict == one.verdict);
    CHECK(finding.detail.find(one.words) != std::string::npos);
    CHECK(finding.fix.empty() == (one.verdict == Verdict::ok));
    for (const Finding& other : judge(facts)) {  // and nothing else is blamed
      CHECK((other.topic == one.topic || other.verdict == Verdict::ok));
    }
  }
}

TEST_CASE("the threads to ask for follow from the quota", "[doctor]") {
  HostFacts facts = healthy();
  facts.quota_cores = 2.5;
  CHECK(find(facts, "cpu").fix.find("is 2 or less") != std::string::npos);
  facts.quota_cores = 0.5;
  CHECK(find(facts, "cpu").fix.find("is 1 or less") != std::string::npos);
}

TEST_CASE("the report counts verdicts and ends with the worst", "[doctor]") {
  const std::vector<Finding> findings = {{"a", Verdict::ok, "fine", ""},
                                         {"b", Verdict::warn, "so so", "mend it"},
                                         {"c", Verdict::ok, "fine", ""}};
  CHECK(to_text(findings) ==
        "ok    a             fine\n"
        "warn  b             so so\n"
        "                    fix: mend it\n"
        "ok    c             fine\n"
        "2 ok, 1 warn, 0 fail\n");
  const nlohmann::json json = nlohmann::json::parse(to_json(findings));
  CHECK(json.at("verdict") == "warn");
  REQUIRE(json.at("findings").size() == 3);
  CHECK(json.at("findings")[1].at("topic") == "b");
  CHECK(json.at("findings")[1].at("verdict") == "warn");
  CHECK(json.at("findings")[1].at("detail") == "so so");
  CHECK(json.at("findings")[1].at("fix") == "mend it");
}

TEST_CASE("the network is judged by what its processes measured", "[doctor]") {
  const NetworkTest test{
      .num_ranks = 2, .bytes = 64 << 20, .seconds = 0.05, .latency_seconds = 1e-4, .correct = true};
  const Finding good = judge_network(2, 0, to_json(test));
  CHECK(good.verdict == Verdict::ok);
  CHECK(good.detail ==
        "all-reduce of 64 MiB over 2 processes (gloo): 50.0 ms, 1.34 GB/s; of one number: 100 us");
  NetworkTest wrong = test;
  wrong.correct = false;
  CHECK(judge_network(2, 0, to_json(wrong)).verdict == Verdict::fail);
  CHECK(judge_network(2, 8, to_json(test)).detail.find("exit code 8") != std::string::npos);
  CHECK(judge_network(2, 0, "").verdict == Verdict::fail);
  CHECK(judge_network(1, 0, to_json(test)).detail.find("GB/s") == std::string::npos);
  CHECK(judge_network(2, 0, "half a {").verdict == Verdict::fail);
}

TEST_CASE("a checkpoint survives the way through this machine's files", "[doctor]") {
  const Finding finding = check_checkpoints();
  INFO(finding.detail);
  CHECK(finding.verdict == Verdict::ok);
  CHECK(finding.detail.find("4.2 MB written in") == 0);
}

TEST_CASE("facts about this machine are there", "[doctor]") {
  const HostFacts facts = read_host_facts();
  CHECK(facts.cores > 0);
  CHECK(facts.usable_cores > 0);
  CHECK(facts.usable_cores <= facts.cores);
  CHECK(facts.memory_bytes > facts.available_bytes);
  CHECK(facts.available_bytes > 0);
  CHECK(facts.torch_version == facts.torch_built);
  CHECK(facts.torch_library.find("libtorch_cpu.so") != std::string::npos);
  CHECK(facts.open_files > 0);
  CHECK(facts.output_free_bytes > 0);
  CHECK(facts.port_problem.empty());
  CHECK(facts.unix_seconds > 1'735'689'600);
  CHECK_FALSE(facts.host.empty());
}

}  // namespace colossal::test
