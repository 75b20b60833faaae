// Do the settings of the data fit each other?
#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace colossal::detail {
namespace {

bool weighted(const std::vector<DataSource>& items) {
  return std::ranges::any_of(items, [](const DataSource& item) { return item.weight.has_value(); });
}

void evaluation_has_no_weights(const RuleInput& in) {
  if (!weighted(in.config.data.eval)) {
    return;
  }
  Diagnostic& error =
      in.error("data-weights", "data.eval", "the weights of data.eval have no effect");
  error.why = "an evaluation visits every sample once";
  error.fix = "write the paths alone";
}

void weighted_data_has_no_last_batch(const RuleInput& in) {
  const DataConfig& data = in.config.data;
  if (data.train.size() < 2 || !weighted(data.train) || data.last_batch != LastBatch::pad) {
    return;
  }
  Diagnostic& error = in.error(
      "unused-section", "data.last_batch", "data.last_batch pad has no effect on weighted data");
  error.related.push_back(in.with("data.train"));
  error.why = "each item starts anew where its samples end, so no batch stays unfilled";
  error.fix = "remove it";
}

void documents_are_known(const RuleInput& in) {
  const DataConfig& data = in.config.data;
  const bool llmc = data.type == DataType::tokens && data.format == TokenFormat::llmc;
  const bool packed = data.packing != Packing::concat;
  if (!llmc || (!packed && data.cross_document_attention)) {
    return;
  }
  const char* key = packed ? "data.packing" : "data.cross_document_attention";
  Diagnostic& error =
      in.error("sequence-packing", key, fmt::format("{} needs to know where documents begin", key));
  error.related.push_back(in.with("data.format"));
  error.why = "files of llm.c hold tokens only, without document boundaries";
  error.fix = "use Megatron or HDF5 files, or packing: concat with cross_document_attention: true";
}

constexpr std::array<Rule, 3> kDataRules = {
    evaluation_has_no_weights, weighted_data_has_no_last_batch, documents_are_known};

}  // namespace

std::span<const Rule> data_rules() {
  return kDataRules;
}

}  // namespace colossal::detail
