// Where do the templates of JSON that all files share become code?
#include "core/json.hpp"

namespace nlohmann {
template class basic_json<>;
template class basic_json<ordered_map>;

namespace detail {
template class serializer<json>;
template class serializer<ordered_json>;
template class lexer<json, StringSource>;
template class lexer<ordered_json, StringSource>;
template class parser<json, StringSource>;
template class parser<ordered_json, StringSource>;
template class json_sax_dom_parser<json>;
template class json_sax_dom_parser<ordered_json>;
template class json_sax_dom_callback_parser<json>;
template class json_sax_dom_callback_parser<ordered_json>;
}  // namespace detail
}  // namespace nlohmann
