// Does every parameter get the settings that its name asks for?
#include "optim/optimizer.hpp"
#include "support/catch.hpp"

#include <ostream>
#include <span>
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

/// "KEY PATTERN" of each pattern without effect.
std::vector<std::string> unused(const OptimizerConfig& config) {
  std::vector<std::string> texts;
  for (const UnusedPattern& found : unused_patterns(config, names())) {
    texts.push_back(found.path + " " + found.pattern);
  }
  return texts;
}

using Texts = std::vector<std::string>;

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

TEST_CASE("a pattern without effect is found if the user wrote it", "[optim]") {
  OptimizerConfig config;
  config.no_decay = {"*.bias", "*layernorm*"};
  CHECK(unused(config).empty());
  config.no_decay_given = true;
  CHECK(unused(config) == Texts{"optimizer.no_decay *layernorm*"});
  config.no_decay = {"*.bias", "*norm*"};
  CHECK(unused(config).empty());
  config.groups = {{.match = "layers.*", .lr_scale = 1, .weight_decay = {}}};
  CHECK(unused(config) == Texts{"optimizer.groups[0].match layers.*"});
}

TEST_CASE("parameters in no_adapt have no rate of their own", "[optim]") {
  OptimizerConfig config;
  config.no_adapt = {"*norm*", "embed.*"};
  const std::vector<ParamGroup> groups = param_groups(config, names());
  std::vector<bool> adapt;
  for (const ParamGroup& group : groups) {
    adapt.push_back(group.adapt);
  }
  CHECK(adapt == std::vector<bool>{false, false, true, true, true, false});
  CHECK(unused(config).empty());
  config.no_adapt.emplace_back("*layernorm*");
  CHECK(unused(config) == Texts{"optimizer.no_adapt *layernorm*"});
}

TEST_CASE("each parameter has a key of its own, the same in every list", "[optim]") {
  const std::vector<ParamGroup> groups = param_groups({}, names());
  CHECK(groups[2].key != groups[3].key);
  CHECK(param_groups({}, std::span(names()).subspan(2))[0].key == groups[2].key);
}

TEST_CASE("a group that an earlier one hides is without effect", "[optim]") {
  OptimizerConfig config;
  config.groups = {{.match = "*", .lr_scale = 1, .weight_decay = {}},
                   {.match = "norm.*", .lr_scale = 3, .weight_decay = {}}};
  CHECK(unused(config) == Texts{"optimizer.groups[1].match norm.*"});
}

TEST_CASE("every pattern without effect is listed", "[optim]") {
  OptimizerConfig config;
  config.groups = {{.match = "a", .lr_scale = 1, .weight_decay = {}},
                   {.match = "blocks.*", .lr_scale = 1, .weight_decay = {}},
                   {.match = "b", .lr_scale = 1, .weight_decay = {}}};
  config.no_decay = {"c", "*.bias", "d"};
  config.no_decay_given = true;
  CHECK(unused(config) == Texts{"optimizer.groups[0].match a",
                                "optimizer.groups[2].match b",
                                "optimizer.no_decay c",
                                "optimizer.no_decay d"});
}

}  // namespace
}  // namespace colossal
