// How does a stage run its blocks? Implementation over autograd's engine: one small graph per
// block.
#include "train/stage.hpp"

#include "core/trace.hpp"
#include "train/foreign.hpp"
#include "train/host_inputs.hpp"
#include "train/recompute.hpp"

#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace colossal {
namespace {

using torch::autograd::Edge;

/// What one block keeps of one micro-batch between forward and backward. A block that runs again
/// keeps its input at most, and the rest from then on.
struct Tape {
  Activation input;           // leaves; undefined gradients until the block's graph has run
  std::vector<Edge> outputs;  // one per output tensor; invalid where no gradient can come back
  Edge loss;                  // valid only for a block that returns the loss
  at::Tensor loss_sum;        // its value, the model of its gradient's shape and dtype
  bool ran = false;           // its graph is there
};

/// One micro-batch between forward and backward.
struct Pass {
  Batch batch;  // for blocks that run again
  std::vector<Tape> tapes;
  std::map<int, HostInput> away;  // inputs in host memory, by the first block of their segment
};

/// What a block must return, as this rank sees it.
struct Boundary {
  std::string name;
  Shape shape;
  at::ScalarType dtype;
};

/// Torch's failure inside a block as our error: names the block and tells memory from mistakes.
[[noreturn]] void rethrow(const c10::Error& error,
                          std::string_view what,
                          const std::string& block) {
  const std::string text = error.what_without_backtrace();
  if (tells_out_of_memory(text)) {
    fail(ErrorKind::memory,
         "out-of-memory",
         "{} of block {} found no memory ({}); a smaller micro_batch_size needs less",
         what,
         block,
         text);
  }
  check(
      text.find("deterministic implementation") == std::string::npos,
      ErrorKind::config,
      "nondeterministic-op",
      "{} of block {} needs an operation whose results do not repeat ({}); run.deterministic: true "
      "refuses it",
      what,
      block,
      text);
  fail(ErrorKind::internal, "torch-error", "{} of block {} failed: {}", what, block, text);
}

/// The same values as leaves of a graph of their own.
Activation cut(const Activation& activation) {
  Activation leaves;
  for (const auto& [name, tensor] : activation.tensors()) {
    at::Tensor leaf = tensor.detach();
    if (tensor.requires_grad()) {
      leaf.requires_grad_(true);
    }
    leaves.set(name, std::move(leaf));
  }
  return leaves;
}

/// Where a gradient of `tensor` enters its graph; invalid for a tensor without one.
Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

/// What backward needs of a block that ran from `in`, which are leaves, to `out`.
Tape tape_of(const Activation& in, const Activation& out) {
  Tape tape;
  tape.input = in;
  tape.ran = true;
  for (const auto& [name, tensor] : out.tensors()) {
    tape.outputs.push_back(edge_of(tensor));
  }
  if (out.loss_sum.defined()) {
    tape.loss = edge_of(out.loss_sum);
    tape.loss_sum = out.loss_sum.detach();
  }
  return tape;
}

/// Takes the gradients of leaves, leaving none behind; undefined where none arrived.
std::vector<at::Tensor> take_gradients(const Activation& leaves) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(leaves.tensors().size());
  for (const auto& [name, leaf] : leaves.tensors()) {
    gradients.push_back(leaf.requires_grad() ? std::exchange(leaf.mutable_grad(), at::Tensor())
                                             : at::Tensor());
  }
  return gradients;
}

}  // namespace

struct BlockStage::Impl {
  Impl(std::span<const std::unique_ptr<Block>> stage_blocks,
       ChunkStore& chunks,
       const ParallelContext& context,
       ActivationCheckpointConfig again)
      : blocks(stage_blocks), store(chunks), mesh(context.mesh()), recompute(std::move(again)) {
    if (recompute.offload == InputOffload::cpu) {
      host_inputs.emplace(context.device());
    }
    check(!blocks.empty(), ErrorKind::internal, "empty-stage", "a stage needs at least one block");
  }

  std::span<const std::unique_ptr<Block>> blocks;
  ChunkStore& store;
  const Mesh& mesh;
  ActivationCheckpointConfig recompute;
  std::optional<HostInputs> host_inputs;  // of recompute.offload; outlives what is kept
  double loss_factor = 1;
  std::map<int, Pass> kept;  // by micro-batch
  BatchShape shape;          // the shape `expected` was computed for
  std::vector<std::vector<Boundary>> expected;
  std::vector<int> segments;  // of recompute_segments()

  [[nodiscard]] std::string name(std::size_t block) const {
    return fmt::format("{} of {}", block, blocks.size());
  }

  /// Boundary tensors of all blocks for this batch, recomputed only when its shape changes.
  void expect(const Batch& batch) {
    const at::Tensor& field = batch.fields.begin()->second;  // [B,S,...], as every field
    const BatchShape now{.batch = field.size(0), .sequence = field.size(1)};
    if (!expected.empty() && now.batch == shape.batch && now.sequence == shape.sequence) {
      return;
    }
    shape = now;
    segments = recompute_segments(recompute, blocks, shape);
    expected.clear();
    for (const std::unique_ptr<Block>& block : blocks) {
      std::vector<Boundary>& outputs = expected.emplace_back();
      for (BoundarySpec& spec : block->outputs(shape)) {
        outputs.push_back({spec.name, local_shape(spec.layout, spec.global, mesh), spec.dtype});
      }
    }
  }

  /// Errors: internal "boundary" if a block returned something else than it declared.
  void check_outputs(std::size_t block, const Activation& out) const {
    const std::span<const std::pair<std::string, at::Tensor>> tensors = out.tensors();
    const std::vector<Boundary>& specs = expected[block];
    check(tensors.size() == specs.size(),
          ErrorKind::internal,
          "boundary",
          "block {} returned {} tensors and declares {}",
          name(block),
          tensors.size(),
          specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      check(tensors[i].first == specs[i].name && tensors[i].second.sizes() == specs[i].shape &&
                tensors[i].second.scalar_type() == specs[i].dtype,
            ErrorKind::internal,
            "boundary",
            "block {} returned '{}' of {} elements and declares '{}' of {}",
            name(block),
            tensors[i].first,
            tensors[i].second.numel(),
            specs[i].name,
            numel(specs[i].shape));
    }
  }

  Activation run_block(std::size_t block, const Activation& in, const Batch& batch, BlockUse use) {
    try {
      store.acquire(static_cast<int>(block), use);
      Activation out = blocks[block]->forward(in, batch);
      store.release(static_cast<int>(block));
      check_outputs(block, out);
      return out;
    } catch (const c10::Error& error) {
      rethrow(error, "forward", name(block));
    }
  }

  /// Runs the first block of a segment; its input goes to host memory meanwhile, if inputs do, or
  /// stays on the tape.
  Activation begin_segment(std::size_t block, const Activation& in, Pass& pass) {
    if (!host_inputs) {
      pass.tapes[block].input = in;
      return run_block(block, in, pass.batch, BlockUse::forward);
    }
    HostInput& parked = pass.away[static_cast<int>(block)] = host_inputs->park(in);
    Activation out = run_block(block, in, pass.batch, BlockUse::forward);
    host_inputs->left(parked);
    return out;
  }

  /// Brings back the input of the segment that ends with `block`, if it is one, and begins to bring
  /// the next one.
  void fetch_inputs(std::size_t block, Pass& pass) {
    if (pass.away.empty()) {
      return;
    }
    try {
      if (const auto own = pass.away.find(segments[block]); own != pass.away.end()) {
        pass.tapes[static_cast<std::size_t>(own->first)].input =
            host_inputs->take(std::move(own->second));
        pass.away.erase(own);
      }
      if (const auto next = segment_ahead(segments, static_cast<int>(block))) {
        host_inputs->begin_return(pass.away.at(*next));
      }
    } catch (const c10::Error& error) {
      rethrow(error, "recomputation", name(block));
    }
  }

  /// Fills the tapes of the segment that ends with `last` by running it again from its input. The
  /// last block's parameters are acquired already.
  void run_again(std::size_t last, int index, Pass& pass) {
    const auto first = static_cast<std::size_t>(segments[last]);
    Activation out;
    for (std::size_t block = first; block <= last; ++block) {
      const trace::Scope scope(trace::Phase::recompute, static_cast<int>(block), index);
      Tape& tape = pass.tapes[block];
      const Activation in = block == first ? tape.input : cut(out);
      out = run_block(block, in, pass.batch, BlockUse::forward);
      tape = tape_of(in, out);
    }
  }

  /// Runs the block's graph with the gradients of its outputs, and that of the loss.
  void run_graph(std::size_t block,
                 const Tape& tape,
                 std::vector<at::Tensor> gradients,
                 double loss_gradient) {
    torch::autograd::edge_list roots;
    torch::autograd::variable_list values;
    for (std::size_t i = 0; i < tape.outputs.size(); ++i) {
      if (tape.outputs[i].is_valid() && gradients[i].defined()) {
        roots.push_back(tape.outputs[i]);
        values.push_back(std::move(gradients[i]));
      }
    }
    if (tape.loss.is_valid()) {
      roots.push_back(tape.loss);
      values.push_back(at::full_like(tape.loss_sum, loss_gradient));
    }
    if (roots.empty()) {
      return;  // nothing after this block depends on it
    }
    try {
      torch::autograd::Engine::get_default_engine().execute(roots,
                                                            values,
                                                            /*keep_graph=*/false,
                                                            /*create_graph=*/false,
                                                            /*accumulate_grad=*/true,
                                                            /*outputs=*/{});
    } catch (const c10::Error& error) {
      rethrow(error, "backward", name(block));
    }
  }
};

BlockStage::BlockStage(std::span<const std::unique_ptr<Block>> blocks,
                       ChunkStore& store,
                       const ParallelContext& context,
                       const ActivationCheckpointConfig& recompute)
    : impl_(std::make_unique<Impl>(blocks, store, context, recompute)) {}

BlockStage::~BlockStage() = default;

void BlockStage::begin_step(double loss_factor) {
  impl_->loss_factor = loss_factor;
  impl_->kept.clear();
}

Activation BlockStage::forward(int index, const Batch& batch) {
  impl_->expect(batch);
  Pass& pass = impl_->kept[index];
  pass = {.batch = batch, .tapes = {}, .away = {}};
  Activation out;
  for (std::size_t block = 0; block < impl_->blocks.size(); ++block) {
    const trace::Scope scope(trace::Phase::forward, static_cast<int>(block), index);
    const Activation in = cut(out);
    Tape& tape = pass.tapes.emplace_back();
    const bool begins = impl_->segments[block] == static_cast<int>(block);
    out = begins ? impl_->begin_segment(block, in, pass)
                 : impl_->run_block(block, in, batch, BlockUse::forward);
    if (impl_->segments[block] == kKept) {
      tape = tape_of(in, out);
    } else {
      // The graph that autograd made goes now; without autograd other kernels might have run, and
      // the results must be those of the second run to the last bit.
      out = cut(out);
    }
  }
  Activation result = cut(out);
  result.loss_sum = pass.tapes.back().loss_sum;
  return result;
}

void BlockStage::backward(int index, bool last) {
  const auto kept = impl_->kept.find(index);
  check(kept != impl_->kept.end(),
        ErrorKind::internal,
        "stage-order",
        "backward of micro-batch {} without its forward",
        index);
  Pass pass = std::move(kept->second);
  impl_->kept.erase(kept);
  std::vector<Tape>& tapes = pass.tapes;
  std::vector<at::Tensor> gradients(
      impl_->expected.back().size());  // none comes back from the last block's outputs
  while (!tapes.empty()) {
    const std::size_t at = tapes.size() - 1;
    const auto block = static_cast<int>(at);
    const trace::Scope scope(trace::Phase::backward, block, index);
    impl_->store.acquire(block, BlockUse::backward);
    impl_->fetch_inputs(at, pass);
    if (impl_->segments[at] != kKept && !tapes[at].ran) {
      impl_->run_again(at, index, pass);
    }
    impl_->run_graph(
        at, tapes[at], std::move(gradients), pass.batch.loss.factor.value_or(impl_->loss_factor));
    gradients = take_gradients(tapes[at].input);
    impl_->store.gradients_ready(block, last);
    impl_->store.release(block);
    tapes.pop_back();  // inputs and graph of this block go before the next one needs memory
  }
}

Activation BlockStage::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  impl_->expect(batch);
  Activation out;
  for (std::size_t block = 0; block < impl_->blocks.size(); ++block) {
    const trace::Scope scope(trace::Phase::eval, static_cast<int>(block));
    out = impl_->run_block(block, out, batch, BlockUse::eval);
  }
  return out;
}

}  // namespace colossal
