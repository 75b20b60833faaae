// How is cuDNN told to write gradients of heads into a packed tensor? Its graph gets their strides.
#include "nn/kernels/cuda/packed_attention.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "nn/kernels/cuda/fastest.hpp"

#include <ATen/Context.h>
#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cudnn_frontend.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace colossal::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;

constexpr std::int64_t kCandidates = 12;

enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kGrad, kStats, kQGrad, kKGrad, kVGrad };

/// All that decides which kernel runs.
struct Key {
  int device = 0;
  at::ScalarType dtype = at::kBFloat16;
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
  bool deterministic = false;

  [[nodiscard]] auto tied() const {
    return std::tuple(device, dtype, batch, sequence, num_heads, head_dim, causal, deterministic);
  }
  bool operator<(const Key& other) const { return tied() < other.tied(); }
};

using Pointers = std::unordered_map<std::int64_t, void*>;

/// The graph of a shape and its chosen kernel; `index` is -1 where cuDNN has none.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::int64_t index = -1;
  std::int64_t workspace_bytes = 0;
};

/// The tensors of a call.
struct Call {
  QkvViews x;
  at::Tensor out;
  at::Tensor grad;
  at::Tensor log_sum;
  at::Tensor qkv_grad;
  QkvViews x_grad;

  [[nodiscard]] Pointers pointers() const {
    return {{kQ, x.q.data_ptr()},
            {kK, x.k.data_ptr()},
            {kV, x.v.data_ptr()},
            {kOut, out.data_ptr()},
            {kGrad, grad.data_ptr()},
            {kStats, log_sum.data_ptr()},
            {kQGrad, x_grad.q.data_ptr()},
            {kKGrad, x_grad.k.data_ptr()},
            {kVGrad, x_grad.v.data_ptr()}};
  }
};

fe::graph::Tensor_attributes described(Uid uid, const at::Tensor& x) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_dim(x.sizes().vec())
      .set_stride(x.strides().vec());
}

void describe_result(const std::shared_ptr<fe::graph::Tensor_attributes>& result,
                     Uid uid,
                     const at::Tensor& x) {
  result->set_output(true).set_uid(uid).set_dim(x.sizes().vec()).set_stride(x.strides().vec());
}

std::shared_ptr<fe::graph::Graph> make_graph(const Key& key, const Call& call) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(key.dtype == at::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto options = fe::graph::SDPA_backward_attributes()
                           .set_name("attention_backward")
                           .set_causal_mask(key.causal)
                           .set_deterministic_algorithm(key.deterministic)
                           .set_attn_scale(1.0F / std::sqrt(static_cast<float>(key.head_dim)));
  const auto results = graph->sdpa_backward(
      graph->tensor(described(kQ, call.x.q)),
      graph->tensor(described(kK, call.x.k)),
      graph->tensor(described(kV, call.x.v)),
      graph->tensor(described(kOut, call.out)),
      graph->tensor(described(kGrad, call.grad)),
      graph->tensor(described(kStats, call.log_sum).set_data_type(fe::DataType_t::FLOAT)),
      options);
  describe_result(results[0], kQGrad, call.x_grad.q);
  describe_result(results[1], kKGrad, call.x_grad.k);
  describe_result(results[2], kVGrad, call.x_grad.v);
  return graph;
}

/// What the library says against the graph; empty if it has plans for it.
std::string refusal(fe::graph::Graph& graph, cudnnHandle_t handle) {
  fe::error_t status = graph.validate();
  status = status.is_good() ? graph.build_operation_graph(handle) : status;
  status = status.is_good() ? graph.create_execution_plans({fe::HeurMode_t::A}) : status;
  status = status.is_good() ? graph.check_support(handle) : status;
  return status.is_good() ? std::string() : status.get_message();
}

at::Tensor workspace_of(std::int64_t bytes, const at::Tensor& like) {
  return at::empty({std::max<std::int64_t>(bytes, 16)}, like.options().dtype(at::kByte));
}

/// The number of the plan to run, -1 if none does.
std::int64_t choose(fe::graph::Graph& graph, const Key& key, const Call& call) {
  const cudnnHandle_t handle = at::native::getCudnnHandle();
  const std::int64_t count =
      std::min(graph.get_execution_plan_count(), key.deterministic ? 1 : kCandidates);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(count), -1);
  Pointers pointers = call.pointers();
  const auto run = [&](int i) {
    std::int64_t& own = bytes[static_cast<std::size_t>(i)];
    if (own < 0 && (graph.build_plan_at_index(handle, i).is_bad() ||
                    graph.get_workspace_size_plan_at_index(i, own).is_bad())) {
      own = -1;
      return false;
    }
    const at::Tensor workspace = workspace_of(own, call.qkv_grad);
    return graph.execute_plan_at_index(handle, pointers, workspace.mutable_data_ptr(), i).is_good();
  };
  return fastest(static_cast<int>(count), run);
}

Plan make_plan(const Key& key, const Call& call) {
  Plan plan;
  plan.graph = make_graph(key, call);
  std::string why_not = refusal(*plan.graph, at::native::getCudnnHandle());
  if (why_not.empty()) {
    plan.index = choose(*plan.graph, key, call);
    why_not = "none of its plans runs";
  }
  if (plan.index < 0 ||
      plan.graph->get_workspace_size_plan_at_index(plan.index, plan.workspace_bytes).is_bad()) {
    log::info(
        "gradients of attention are copied into place: cuDNN has no kernel for {} x {} heads "
        "of {} over {} tokens: {}",
        key.batch,
        key.num_heads,
        key.head_dim,
        key.sequence,
        why_not);
    plan.index = -1;
  }
  return plan;
}

/// Plans of this process, as the library's own handles are.
const Plan& plan_of(const Key& key, const Call& call) {
  static std::mutex mutex;
  static std::map<Key, Plan> plans;  // references stay valid
  const std::lock_guard lock(mutex);
  const auto found = plans.find(key);
  return found != plans.end() ? found->second
                              : plans.emplace(key, make_plan(key, call)).first->second;
}

/// [B,S,h] -> [B,n,S,d].
at::Tensor heads_of(const at::Tensor& x_bsh, const AttentionShape& shape) {
  return x_bsh.unflatten(2, {shape.num_heads, shape.head_dim}).transpose(1, 2);
}

}  // namespace

at::Tensor packed_attention_backward(const at::Tensor& grad_bsh,
                                     const at::Tensor& qkv_bsd,
                                     const AttentionResult& forward,
                                     const AttentionShape& shape) {
  if (shape.num_heads != shape.num_kv_heads) {
    return {};
  }
  const Key key{.device = qkv_bsd.get_device(),
                .dtype = qkv_bsd.scalar_type(),
                .batch = qkv_bsd.size(0),
                .sequence = qkv_bsd.size(1),
                .num_heads = shape.num_heads,
                .head_dim = shape.head_dim,
                .causal = shape.causal,
                .deterministic = at::globalContext().deterministicAlgorithms()};
  Call call{.x = split_heads(qkv_bsd, shape),
            .out = heads_of(forward.context_bsh, shape),
            .grad = heads_of(grad_bsh, shape),
            .log_sum = forward.log_sum.reshape({key.batch, key.num_heads, key.sequence, 1}),
            .qkv_grad = at::empty_like(qkv_bsd),
            .x_grad = {}};
  call.x_grad = split_heads(call.qkv_grad, shape);
  const Plan& plan = plan_of(key, call);
  if (plan.index < 0) {
    return {};
  }
  const at::Tensor workspace = workspace_of(plan.workspace_bytes, qkv_bsd);
  Pointers pointers = call.pointers();
  fe::error_t status = plan.graph->execute_plan_at_index(
      at::native::getCudnnHandle(), pointers, workspace.mutable_data_ptr(), plan.index);
  check(status.is_good(),
        ErrorKind::internal,
        "cuda-launch",
        "cuDNN's attention backward failed: {}; the device may have failed before",
        status.get_message());
  return call.qkv_grad;
}

}  // namespace colossal::kernels::cuda
