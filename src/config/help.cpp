// What does the command line say about the keys of the file? The registry as text.
#include "config/convert.hpp"
#include "config/fields.hpp"
#include "config/flatten.hpp"
#include "config/load.hpp"
#include "config/tree.hpp"

#include <fmt/format.h>

namespace colossal {
namespace detail {
namespace {

std::string_view number_word(const Spec& spec) {
  return spec.form == Form::count ? "count" : "integer";
}

std::string_view real_word(const Spec& spec) {
  return spec.form == Form::duration ? "duration" : "number";
}

/// Name of the type of a member, as in the key tables.
struct TypeWord {
  const Spec& spec;

  std::string operator()(const bool* /*value*/) const { return "true or false"; }
  std::string operator()(const std::int64_t* /*value*/) const {
    return std::string(number_word(spec));
  }
  std::string operator()(const double* /*value*/) const { return std::string(real_word(spec)); }
  std::string operator()(const std::string* /*value*/) const {
    const std::string text = spec.form == Form::path ? "path" : "text";
    return spec.words.empty()        ? text
           : spec.form == Form::path ? fmt::format("{} or path", join(spec.words))
                                     : fmt::format("one of {}", join(spec.words));
  }
  std::string operator()(const EnumSlot& slot) const {
    return fmt::format("one of {}", join(slot.words));
  }
  template <class T>
  std::string operator()(const std::optional<T>* /*value*/) const {
    const T* none = nullptr;
    return (*this)(none);
  }
  template <class T>
  std::string operator()(const std::vector<T>* /*value*/) const {
    const T* none = nullptr;
    const std::string items = spec.length == 0 ? "list" : fmt::format("list of {}", spec.length);
    return fmt::format("{}, each {}", items, (*this)(none));
  }
};

class HelpWriter : public PathVisitor {
 public:
  HelpWriter() : PathVisitor(true) {}

  [[nodiscard]] std::string take() { return std::move(out_); }

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    const bool ranged = spec.range.min > -std::numeric_limits<double>::infinity();
    std::string type = std::visit(TypeWord{spec}, slot);
    type += ranged ? " " + range_text(spec.range) : "";
    type += spec.auto_word ? " or auto" : "";
    std::string standard = slot_text(slot, spec);
    if (spec.required) {
      standard = spec.unless.empty() ? "required" : fmt::format("required without {}", spec.unless);
    } else if (!spec.derived.empty()) {
      standard = fmt::format("default: {}", spec.derived);
    } else {
      standard = "default " + standard;
    }
    if (!spec.variant.empty()) {
      standard += fmt::format("; type {} only", either_word(spec.variant));
    }
    out_ += fmt::format("{}  ({}; {})\n    {}\n", path_of(key), type, standard, spec.help);
  }

 private:
  std::string out_;
};

}  // namespace
}  // namespace detail

std::string key_help() {
  Config defaults;
  detail::HelpWriter writer;
  describe(writer, defaults);
  return writer.take();
}

}  // namespace colossal
