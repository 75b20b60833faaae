// Which operations of a layer can be measured alone, and what does each move or compute at least?
#pragma once

#include "config/config.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace colossal {

/// The layer and the batch whose operations are tried.
struct TrialSizes {
  std::int64_t batch = 1;     ///< rows of a micro-batch
  std::int64_t sequence = 1;  ///< tokens of a row
  std::int64_t hidden = 0;
  std::int64_t num_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t ffn = 0;         ///< width of the feed-forward layer
  std::int64_t vocabulary = 0;  ///< rows of the embedding, padding included
  ActivationKind activation = ActivationKind::gelu_tanh;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
  /// Width of q, k and v together.
  [[nodiscard]] std::int64_t qkv() const {
    return hidden + 2 * num_kv_heads * (hidden / num_heads);
  }
};

/// A call that can be repeated, on random tensors of its own.
struct PreparedTrial {
  std::function<void()> call;
  double bytes = 0;  ///< that every call must read and write at least; 0: the arithmetic decides
  double flops = 0;  ///< of every call; 0: the memory decides
};

/// One operation. Its tensors exist only while what prepare() returned does.
struct Trial {
  std::string name;  ///< "qkv forward"
  std::string size;  ///< "1024 x 256 x 768"
  std::function<PreparedTrial()> prepare;
};

/// Products of the linear layers and the head, each forward and for both gradients, as layers call
/// them: [tokens, in] [in, out] and so on.
[[nodiscard]] std::vector<Trial> product_trials(const TrialSizes& sizes);

/// Causal attention forward and backward. Counted are the products of the half that is not masked:
/// 2 (backward 5) x tokens x sequence x hidden.
[[nodiscard]] std::vector<Trial> attention_trials(const TrialSizes& sizes);

/// What only moves bytes: norms, activations, dropout, sums, embedding and loss.
[[nodiscard]] std::vector<Trial> kernel_trials(const TrialSizes& sizes);

}  // namespace colossal
