// What changed between a checkpoint's configuration and this one?
#include "config/flatten.hpp"
#include "config/load.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal {
namespace {

const detail::FlatField* find(const std::vector<detail::FlatField>& fields,
                              const std::string& path) {
  const auto it = std::find_if(fields.begin(), fields.end(), [&](const detail::FlatField& field) {
    return field.path == path;
  });
  return it == fields.end() ? nullptr : &*it;
}

}  // namespace

std::string key_values(const Config& config) {
  std::string text;
  for (const detail::FlatField& field : detail::flatten(config)) {
    text += fmt::format("{} = {}\n", field.path, field.text);
  }
  return redact(config.secrets, text);
}

std::vector<Difference> diff(const Config& saved, const Config& now) {
  const auto before = detail::flatten(saved);
  const auto after = detail::flatten(now);
  std::vector<Difference> differences;
  for (const detail::FlatField& field : before) {
    const detail::FlatField* other = find(after, field.path);
    const std::string text = other == nullptr ? "(not a key now)" : other->text;
    if (text != field.text) {
      differences.push_back({field.path, field.text, text, field.resume});
    }
  }
  for (const detail::FlatField& field : after) {
    if (find(before, field.path) == nullptr) {
      differences.push_back({field.path, "(not a key then)", field.text, field.resume});
    }
  }
  return differences;
}

}  // namespace colossal
