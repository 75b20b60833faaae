// What does `validate --data` do beside `validate`?
#include "train/commands.hpp"

#include "config/load.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "train/data.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <unistd.h>

namespace colossal {

namespace {

int check_loaded(Loaded loaded, bool json) {
  resolve_vocabulary(loaded);
  const OpenedData data = open_data(loaded.config);
  const DataFindings findings = check_with_data(loaded, *data.train);
  fmt::print("{}", render(findings.diagnostics, diagnostic_form(json, STDOUT_FILENO)));
  if (findings.exit_code != 0 || json) {
    return findings.exit_code;
  }
  fmt::print("{}\n", data.train->summary());
  if (data.eval != nullptr) {
    fmt::print("{}\n", data.eval->summary());
  }
  return 0;
}

}  // namespace

int check_data(const Loaded& loaded, bool json) {
  return with_places(loaded, [&] { return check_loaded(loaded, json); });
}

}  // namespace colossal
