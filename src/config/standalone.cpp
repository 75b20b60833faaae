// How are composed keys written with the comments that stood beside them?
#include "config/standalone.hpp"

#include "config/bind.hpp"
#include "config/compose.hpp"
#include "config/config.hpp"
#include "config/flatten.hpp"
#include "config/interpolate.hpp"
#include "config/origins.hpp"
#include "config/slips.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace colossal {
namespace detail {
namespace {

/// A line of a file.
using Place = std::pair<std::string, int>;

Place place_of(const Origin& origin) {
  return {origin.file, origin.line};
}

/// The comment at the end of a line, with its mark; empty if there is none or nothing before it.
std::string_view trailing_comment(std::string_view line) {
  char quote = 0;
  bool begun = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && begun && line[i - 1] == ' ') {
      return line.substr(i);
    }
    begun = begun || c != ' ';
  }
  return {};
}

/// The comment lines at the top of a text.
std::string_view head_of(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && text[end] == '#') {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return text.substr(0, end);
}

/// A value as it was written; in quotes where brackets around it would cut it.
std::string flow(const Node& node) {
  if (node.kind == Node::Kind::null) {
    return "null";
  }
  if (node.kind == Node::Kind::scalar) {
    const bool cut = node.text.find_first_of(",[]{}") != std::string::npos;
    return node.quoted || cut ? quoted_yaml(node.text) : node.text;
  }
  const bool map = node.kind == Node::Kind::map;
  std::string text;
  for (const Node& child : node.children) {
    text += text.empty() ? "" : ", ";
    text += (map ? child.key + ": " : "") + flow(child);
  }
  return map ? "{" + text + "}" : "[" + text + "]";
}

class Emitter {
 public:
  Emitter(const Texts& texts, std::set<std::string> dropped)
      : texts_(texts), dropped_(std::move(dropped)) {}

  [[nodiscard]] std::string write(const Node& root) {
    count(root, "");
    write_keys(root, "", 0);
    return std::move(out_);
  }

 private:
  /// How many values of each line are to be written: its comment follows the last of them.
  void count(const Node& map, const std::string& path) {
    for (const Node& child : map.children) {
      const std::string at = join_path(path, child.key);
      if (dropped_.contains(at)) {
        continue;
      }
      if (child.kind == Node::Kind::map) {
        count(child, at);
      } else {
        ++left_[place_of(child.key_origin)];
      }
    }
  }

  void write_keys(const Node& map, const std::string& path, std::size_t depth) {
    for (const Node& child : map.children) {
      const std::string at = join_path(path, child.key);
      if (dropped_.contains(at)) {
        continue;
      }
      const Place place = place_of(child.key_origin);
      const bool section = child.kind == Node::Kind::map && !child.children.empty();
      left_[place] -= child.kind == Node::Kind::map ? 0 : 1;
      out_ +=
          fmt::format("{:{}}{}:{}{}\n",
                      "",
                      2 * depth,
                      child.key,
                      section ? "" : " " + flow(child),
                      left_[place] == 0 && child.kind != Node::Kind::null ? comment(place) : "");
      if (section) {
        write_keys(child, at, depth + 1);
      }
    }
  }

  /// The comment of a line, once.
  [[nodiscard]] std::string comment(const Place& place) {
    const auto text = texts_.find(place.first);
    if (text == texts_.end() || !told_.insert(place).second) {
      return "";
    }
    const std::string_view found = trailing_comment(line_of(text->second, place.second));
    return found.empty() ? "" : "  " + std::string(found);
  }

  const Texts& texts_;
  std::set<std::string> dropped_;
  std::map<Place, int> left_;
  std::set<Place> told_;
  std::string out_;
};

/// Paths of keys that a later `type` has made meaningless.
std::set<std::string> dropped_keys(Node root, const std::string& name) {
  Report report;
  Config config;
  Origins origins;
  const std::string stem = std::filesystem::path(name).stem().string();
  static_cast<void>(interpolate(root, {stem, "00000000-000000"}, report));
  bind(root, false, config, origins, report);
  std::set<std::string> paths;
  for (const Diagnostic& item : report.items()) {
    if (item.id == "dropped-by-type") {
      paths.insert(item.path);
    }
  }
  return paths;
}

}  // namespace
}  // namespace detail

std::string standalone(const std::string& name, const Texts& texts) {
  const std::string& text = texts.at(name);
  detail::Report report;
  detail::Composer composer(report, &texts);
  const std::optional<detail::Node> root = composer.load(name);
  // What was loaded for the text itself has the last layer; more than one means that it extends.
  if (!root || report.has_errors() || composer.next_layer() == 2) {
    return text;
  }
  return std::string(detail::head_of(text)) + "# What it extends is written out here.\n" +
         detail::Emitter(texts, detail::dropped_keys(*root, name)).write(*root);
}

}  // namespace colossal
