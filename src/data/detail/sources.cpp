// How are names with wildcards resolved, and does the tokenizer fit the model?
#include "data/detail/sources.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <glob.h>
#include <system_error>

namespace colossal::detail {
namespace {

std::vector<std::string> expand(const std::string& name) {
  std::error_code ignored;
  if (name.find_first_of("*?[") == std::string::npos || std::filesystem::exists(name, ignored)) {
    return {name};
  }
  glob_t found = {};
  const int status = ::glob(name.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv,
                                 found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  check(!files.empty(),
        ErrorKind::data,
        "data-empty",
        "no file matches '{}' (0 files)\n  fix   check the pattern (in a configuration it is "
        "relative "
        "to that file)",
        name);
  return files;
}

}  // namespace

std::vector<std::string> files_of(const DatasetRequest& request) {
  const std::vector<DataSource>& items = items_of(request);
  check(!items.empty(),
        ErrorKind::data,
        "data-empty",
        "data.{} names no file\n  fix   give a file, a list of files or a pattern such as "
        "'data/*.txt'",
        request.split == Split::train ? "train" : "eval");
  std::vector<std::string> files;
  for (const DataSource& item : items) {
    for (std::string& file : expand(item.path)) {
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::unique_ptr<Tokenizer> tokenizer_of(const DatasetRequest& request) {
  const TokenizerConfig& config = *request.data.tokenizer;
  std::unique_ptr<Tokenizer> tokenizer =
      blaming("data.tokenizer.path", [&] { return open_tokenizer(config); });
  blaming("model.vocab_size", [&] {
    check(
        request.vocab_size >= tokenizer->size(),
        ErrorKind::data,
        "vocab-too-small",
        "tokenizer {} has {} ids, model.vocab_size is {}\n  fix   set it to auto, or to {} or more",
        config.path.empty() ? "byte" : config.path,
        tokenizer->size(),
        request.vocab_size,
        tokenizer->size());
  });
  return tokenizer;
}

std::string shown(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path relative = std::filesystem::proximate(path, failed);
  return failed || relative.native().starts_with("..") ? path.string() : relative.string();
}

std::string shown_files(const std::vector<std::string>& files) {
  const std::string others = files.size() == 1 ? "" : fmt::format(" and {} more", files.size() - 1);
  return shown(files.front()) + others;
}

}  // namespace colossal::detail
