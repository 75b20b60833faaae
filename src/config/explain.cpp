// How is a key explained: by the registry, and by the layers that set it?
#include "config/explain.hpp"

#include "config/flatten.hpp"
#include "config/help.hpp"
#include "config/suggest.hpp"
#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal {
namespace detail {
namespace {

std::string_view resume_text(ResumeClass resume) {
  switch (resume) {
    case ResumeClass::must_match:
      return "must match the checkpoint";
    case ResumeClass::noted:
      return "may change, with a note";
    case ResumeClass::allow:
      return "may change with --allow";
    case ResumeClass::free:
      break;
  }
  return "may change freely";
}

/// KeyDoc::standard behind the word "default".
std::string_view standard_of(const KeyDoc& doc) {
  std::string_view text = doc.standard;
  for (const std::string_view word : {"default: ", "default "}) {
    if (text.starts_with(word)) {
      text.remove_prefix(word.size());
      break;
    }
  }
  return text;
}

std::string explained(const KeyDoc& doc) {
  return fmt::format("  type     {}\n  default  {}{}\n  resume   {}\n  meaning  {}\n",
                     doc.type,
                     standard_of(doc),
                     doc.variant.empty() ? "" : fmt::format(" ({} only)", doc.variant),
                     resume_text(doc.resume),
                     doc.help);
}

/// "optimizer.groups[3].match" -> "optimizer.groups[0].match", as the registry has it.
std::string registry_path(std::string_view key) {
  std::string path;
  for (std::size_t i = 0; i < key.size(); ++i) {
    path += key[i];
    if (key[i] == '[') {
      path += '0';
      i = std::min(key.find(']', i), key.size()) - 1;
    }
  }
  return path;
}

/// Whether `path` is `key` or lies below it.
bool covers(std::string_view key, std::string_view path) {
  return path.starts_with(key) &&
         (path.size() == key.size() || path[key.size()] == '.' || path[key.size()] == '[');
}

/// What the layers wrote, lowest first, then what was made of it.
std::string chain(const Loaded& loaded, const std::string& path) {
  std::string text;
  const auto layers = loaded.layers.find(path);
  const auto origin = loaded.origins.find(path);
  if (layers != loaded.layers.end()) {
    for (const Related& layer : layers->second) {
      const std::string whole =
          layer.path == path ? "" : fmt::format(" (the whole of {})", layer.path);
      text += fmt::format("  set      {:<30} {}{}\n", place(layer.origin), layer.value, whole);
    }
  }
  const bool written = layers != loaded.layers.end() && origin != loaded.origins.end() &&
                       !layers->second.empty() &&
                       place(layers->second.back().origin) == place(origin->second);
  if (!written) {
    text += fmt::format("  set      {}\n",
                        origin == loaded.origins.end() ? "<default>" : place(origin->second));
  }
  return text;
}

}  // namespace
}  // namespace detail

std::optional<std::string> explain_key(std::string_view key) {
  const std::string wanted = detail::registry_path(key);
  std::string text;
  for (const detail::KeyDoc& doc : detail::key_docs()) {
    if (detail::covers(wanted, doc.path)) {
      text += fmt::format("{}\n{}", doc.path, detail::explained(doc));
    }
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

std::optional<std::string> explain(const Loaded& loaded, std::string_view key) {
  const std::vector<detail::KeyDoc> docs = detail::key_docs();
  std::string text;
  for (const detail::FlatField& field : detail::flatten(loaded.config)) {
    const std::string path = detail::registry_path(field.path);
    const auto doc = std::find_if(
        docs.begin(), docs.end(), [&](const detail::KeyDoc& d) { return d.path == path; });
    if (detail::covers(key, field.path) && doc != docs.end()) {
      text += fmt::format("{} = {}\n{}{}",
                          field.path,
                          field.text,
                          detail::chain(loaded, field.path),
                          detail::explained(*doc));
    }
  }
  return text.empty() ? explain_key(key) : std::optional(text);
}

std::optional<std::string> nearest_key(std::string_view key) {
  std::vector<std::string> paths;
  for (const detail::KeyDoc& doc : detail::key_docs()) {
    paths.push_back(doc.path);
  }
  const auto whole = nearest(key, paths);
  return whole ? whole : detail::suggest_key("", key.substr(key.rfind('.') + 1), {}, paths);
}

}  // namespace colossal
