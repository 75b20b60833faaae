// Why is a batch pinned first? From other memory a copy to a GPU would hold up the host.
#include "train/device_batch.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <span>

namespace colossal {
namespace {

std::span<const std::int64_t> values_of(const at::Tensor& contiguous) {
  return {contiguous.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(contiguous.numel())};
}

void check_tokens(const at::Tensor& tokens, std::int64_t vocabulary) {
  const at::Tensor flat = tokens.contiguous();
  const std::span<const std::int64_t> ids = values_of(flat);
  const auto wrong =
      std::ranges::find_if(ids, [&](std::int64_t id) { return id < 0 || id >= vocabulary; });
  check(wrong == ids.end(),
        ErrorKind::data,
        "token-range",
        "token {} of a batch is outside the vocabulary of {}; check the data or model.vocab_size",
        wrong == ids.end() ? 0 : *wrong,
        vocabulary);
}

void check_labels(const at::Tensor& labels, std::int64_t classes) {
  const at::Tensor flat = labels.contiguous();
  const std::span<const std::int64_t> ids = values_of(flat);
  const auto wrong = std::ranges::find_if(
      ids, [&](std::int64_t id) { return id != kIgnoreLabel && (id < 0 || id >= classes); });
  check(wrong == ids.end(),
        ErrorKind::data,
        "label-range",
        "label {} of a batch is outside the {} that the model knows; check the data or the model's "
        "sizes",
        wrong == ids.end() ? 0 : *wrong,
        classes);
}

}  // namespace

Batch to_device(Batch batch, const ModelConfig& model, at::Device device) {
  if (device.is_cpu()) {
    return batch;  // its kernels look at each index that they use
  }
  const bool gpt = model.type == ModelType::gpt;
  if (const at::Tensor tokens = batch.find("tokens"); tokens.defined()) {
    check_tokens(tokens, model.vocab_size);
  }
  if (const at::Tensor labels = batch.find("labels"); labels.defined()) {
    check_labels(labels, gpt ? model.vocab_size : model.out_features);
  }
  for (auto& [name, tensor] : batch.fields) {
    tensor = tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
  }
  return batch;
}

}  // namespace colossal
