// How does the composed tree fill the structs (phase P3)?
#pragma once

#include "config/config.hpp"
#include "config/origins.hpp"
#include "config/tree.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

class Visitor;

/// A tree of keys, and how messages call it.
struct KeyTree {
  const Node& root;
  std::string_view what;           ///< "the configuration"
  std::vector<std::string> paths;  ///< of keys elsewhere that an unknown one may mean
  bool stored = false;             ///< LoadOptions::stored
};

/// Reads every key that `walk` shows to its visitor from the tree, and records origins. Returns by
/// key path what to write out instead of values that hold a secret. Reports
/// unknown-key, required, one-of, wrong-type, unused-section, the ids of convert(), and the note
/// dropped-by-type.
std::map<std::string, std::string> bind_keys(const KeyTree& tree,
                                             const std::function<void(Visitor&)>& walk,
                                             Origins& origins,
                                             Report& report);

/// bind_keys() for a configuration; `stored` as in LoadOptions. Reports version-newer, too.
void bind(const Node& root, bool stored, Config& config, Origins& origins, Report& report);

}  // namespace colossal::detail
