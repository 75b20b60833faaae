// How are the named tensors of a block boundary kept and found?
#include "nn/block.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace colossal {

const at::Tensor& Activation::operator[](std::string_view name) const {
  const auto it = std::ranges::find(tensors_, name, &std::pair<std::string, at::Tensor>::first);
  check(it != tensors_.end(),
        ErrorKind::internal,
        "activation-name",
        "the activation has no tensor '{}'",
        name);
  return it->second;
}

void Activation::set(std::string_view name, at::Tensor tensor) {
  const auto it = std::ranges::find(tensors_, name, &std::pair<std::string, at::Tensor>::first);
  if (it != tensors_.end()) {
    it->second = std::move(tensor);
  } else {
    tensors_.emplace_back(name, std::move(tensor));
  }
}

}  // namespace colossal
