// Does a document get the same logits and gradients alone and in a row with others?
#include "support/close.hpp"
#include "support/local_model.hpp"
#include "support/one_thread.hpp"
#include "support/tiny_models.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <map>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::int64_t kVocabulary = 61;

/// tiny_gpt() without dropout: masks are drawn by place in the batch, which differs here.
Config documents_config(AttentionKind attention) {
  Config config = tiny_gpt();
  config.model.dropout = 0;
  config.model.attention_dropout = 0;
  config.model.attention = attention;
  return config;
}

/// A document of its own, [1,S].
Batch document(std::int64_t key, std::int64_t length) {
  const at::Tensor place = at::arange(length).add(7 * key);
  Batch batch;
  batch.fields["tokens"] = place.mul(place.add(17)).remainder(kVocabulary).view({1, length});
  batch.fields["labels"] = place.mul(place.add(31)).remainder(kVocabulary).view({1, length});
  return batch;
}

/// All documents in one row, apart.
Batch packed(const std::vector<Batch>& documents) {
  std::map<std::string, std::vector<at::Tensor>> parts;
  std::int64_t begin = 0;
  for (const Batch& one : documents) {
    const std::int64_t length = one.at("tokens").size(1);
    parts["tokens"].push_back(one.at("tokens"));
    parts["labels"].push_back(one.at("labels"));
    parts["document_starts"].push_back(at::full({1, length}, begin, at::kLong));
    begin += length;
  }
  Batch batch;
  for (const auto& [name, tensors] : parts) {
    batch.fields[name] = at::cat(tensors, 1);
  }
  return batch;
}

/// Loss sum and gradients of all batches together.
std::pair<double, std::map<std::string, at::Tensor>> run(const Config& config,
                                                         const std::vector<Batch>& batches) {
  const LocalModel model(config);
  double loss = 0;
  for (const Batch& batch : batches) {
    const at::Tensor sum = model.forward(batch).loss_sum;
    sum.backward();
    loss += sum.item<double>();
  }
  std::map<std::string, at::Tensor> grads;
  for (const Parameter* const parameter : model.parameters()) {
    grads[parameter->spec().name] = parameter->tensor().grad();
  }
  return {loss, grads};
}

at::Tensor logits_of(const LocalModel& model, Batch batch) {
  const at::NoGradGuard no_grad;
  batch.fields.erase("labels");
  return model.forward(batch)["logits"];
}

}  // namespace

TEST_CASE("packed documents have the logits, losses and gradients of separate ones", "[models]") {
  const OneThread one_thread;
  for (const AttentionKind attention : {AttentionKind::automatic, AttentionKind::math}) {
    const Config config = documents_config(attention);
    const std::vector<Batch> documents = {document(1, 5), document(2, 1), document(3, 6)};
    const LocalModel model(config);
    std::vector<at::Tensor> separate;
    for (const Batch& one : documents) {
      separate.push_back(logits_of(model, one));
    }
    const Batch row = packed(documents);
    require_close(at::cat(separate, 1), logits_of(model, row), 1e-12, "logits");
    Batch joined = row;
    joined.fields.erase("document_starts");
    REQUIRE(scaled_distance(at::cat(separate, 1), logits_of(model, joined)) > 1e-3);

    const auto [loss, grads] = run(config, documents);
    const auto [packed_loss, packed_grads] = run(config, {row});
    require_relative(loss, packed_loss, 1e-12, "loss");
    for (const auto& [name, grad] : grads) {
      require_close(grad, packed_grads.at(name), 1e-12, name);
    }
  }
}

TEST_CASE("packed documents stay apart in fp32 too", "[models]") {
  const OneThread one_thread;
  Config config = documents_config(AttentionKind::automatic);
  config.train.precision = Precision::fp32;
  config.model.hidden_size = 32;  // heads of 16: the row kernel
  const std::vector<Batch> documents = {document(1, 4), document(2, 8)};
  const auto [loss, grads] = run(config, documents);
  const auto [packed_loss, packed_grads] = run(config, {packed(documents)});
  require_relative(loss, packed_loss, 1e-6, "loss");
  for (const auto& [name, grad] : grads) {
    require_close(grad, packed_grads.at(name), 1e-5, name);
  }
}

}  // namespace colossal::test
