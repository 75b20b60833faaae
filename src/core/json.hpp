// Where is JSON compiled? Once, in json.cpp: each file that reads or writes it would take a second
// longer otherwise.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace nlohmann {
extern template class basic_json<>;
extern template class basic_json<ordered_map>;

namespace detail {
/// What strings are read through.
using StringSource = decltype(input_adapter(std::declval<const std::string&>()));

extern template class serializer<json>;
extern template class serializer<ordered_json>;
extern template class lexer<json, StringSource>;
extern template class lexer<ordered_json, StringSource>;
extern template class parser<json, StringSource>;
extern template class parser<ordered_json, StringSource>;
extern template class json_sax_dom_parser<json>;
extern template class json_sax_dom_parser<ordered_json>;
extern template class json_sax_dom_callback_parser<json>;
extern template class json_sax_dom_callback_parser<ordered_json>;
}  // namespace detail
}  // namespace nlohmann
