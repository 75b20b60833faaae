// What would load() find by itself? Needed to write only the keys that say something.
#include "config/derive.hpp"
#include "config/fields.hpp"

#include <algorithm>
#include <array>

namespace colossal::detail {
namespace {

/// Unsets every value that has a rule, except the numbers that the batch rule starts from.
class Forget : public PathVisitor {
 public:
  Forget() : PathVisitor(false) {}

 protected:
  void on_field(std::string_view key, const Slot& slot, const Spec& spec) override {
    constexpr std::array<std::string_view, 4> kKept = {
        "data.seq_length", "parallel.data", "train.global_batch_size", "train.micro_batch_size"};
    const std::string path = path_of(key);
    if (!spec.derived.empty() && std::find(kKept.begin(), kKept.end(), path) == kKept.end()) {
      std::visit([](auto value) { unset(value); }, slot);
    }
  }

 private:
  template <class T>
  static void unset(T* value) {
    *value = T{};
  }
  static void unset(const EnumSlot& slot) { *slot.value = 0; }
};

}  // namespace

Config rederive(const Config& config) {
  Config open = config;
  open.secrets = {};  // a value that must not be shown is never found by itself
  Forget forget;
  describe(forget, open);
  Origins origins;
  Report unused;
  derive(open, origins, {.stem = config.run.name, .world_size = {}, .world_origin = {}}, unused);
  // Without a file name and a world size, these have no rule.
  open.run.name.clear();
  open.parallel.data = 0;
  open.train.global_batch_size = 0;
  open.train.micro_batch_size = 0;
  if (open.model.type != ModelType::mlp) {
    open.data.seq_length = 0;
  }
  return open;
}

}  // namespace colossal::detail
