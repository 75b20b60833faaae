// How does a configuration that starts from others become one file?
#pragma once

#include <map>
#include <string>

namespace colossal {

/// Texts that stand for files, by their normalized names.
using Texts = std::map<std::string, std::string>;

/// The configuration `name` of `texts` as one text that extends nothing: the comments at its top,
/// a line that says so, then every key that it or a file it extends writes, as they write it, with
/// the comment at the end of that line. Keys that a changed `type` drops are left out. A text
/// without `extends` comes back as it is; so does one that cannot be composed, so that loading it
/// tells why.
[[nodiscard]] std::string standalone(const std::string& name, const Texts& texts);

}  // namespace colossal
