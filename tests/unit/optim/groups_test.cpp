// Does every parameter get the settings that its name asks for?
#include "core/error.hpp"
#include "optim/optimizer.hpp"
#include "support/catch.hpp"

#include <ostream>
#include <string>
#include <vector>

namespace colossal {

/// For the messages of failed checks.
std::ostream& operator<<(std::ostream& out, const ParamGroup& group) {
  return out << "{lr_scale " << group.lr_scale << ", weight_decay " << group.weight_decay << "}";
}

namespace {

const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"embed.tokens.weight",
                                               "blocks.0.norm1.weight",
                                               "blocks.0.attn.qkv.weight",
                                               "blocks.0.attn.qkv.bias",
                                               "blocks.1.mlp.up.weight",
                                               "norm.weight"};
  return all;
}

std::string id_of(const OptimizerConfig& config) {
  try {
    (void)param_groups(config, names());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::config);
    return std::string(error.id());
  }
  return "";
}

TEST_CASE("biases and norms are not decayed by default", "[optim]") {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  const std::vector<ParamGroup> expected = {{1, 0.1}, {1, 0}, {1, 0.1}, {1, 0}, {1, 0.1}, {1, 0}};
  CHECK(param_groups(config, names()) == expected);
}

TEST_CASE("the first matching group wins, no_decay beats its weight decay", "[optim]") {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  config.groups = {{.match = "blocks.0.*", .lr_scale = 0.5, .weight_decay = 0.3},
                   {.match = "blocks.*", .lr_scale = 2, .weight_decay = {}}};
  const std::vector<ParamGroup> expected = {
      {1, 0.1}, {0.5, 0}, {0.5, 0.3}, {0.5, 0}, {2, 0.1}, {1, 0}};
  CHECK(param_groups(config, names()) == expected);
}

TEST_CASE("a pattern without effect is refused if the user wrote it", "[optim]") {
  OptimizerConfig config;
  config.no_decay = {"*.bias", "*layernorm*"};
  CHECK(id_of(config).empty());
  config.no_decay_given = true;
  CHECK(id_of(config) == "pattern-unused");
  config.no_decay = {"*.bias", "*norm*"};
  CHECK(id_of(config).empty());
  config.groups = {{.match = "layers.*", .lr_scale = 1, .weight_decay = {}}};
  CHECK(id_of(config) == "pattern-unused");
}

TEST_CASE("a group that an earlier one hides is refused", "[optim]") {
  OptimizerConfig config;
  config.groups = {{.match = "*", .lr_scale = 1, .weight_decay = {}},
                   {.match = "norm.*", .lr_scale = 3, .weight_decay = {}}};
  CHECK(id_of(config) == "pattern-unused");
}

}  // namespace
}  // namespace colossal
