// How do the bytes of a chunk lie? Whole buffers that are lent memory, and this rank's part.
#include "memory/detail/chunk.hpp"

#include "core/error.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "nn/gradient.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace colossal::detail {
namespace {

/// A tensor on this memory with its own version counter: writes to the chunk do not trip autograd's
/// checks of saved tensors, and its version tells whether a gradient was added to it.
at::Tensor alias(const at::Tensor& data) {
  at::Tensor tensor = at::empty({0}, data.options());
  tensor.set_data(data);
  return tensor;
}

}  // namespace

Chunk::Chunk(const ChunkSpec& spec, const ChunkShared& shared)
    : spec_(spec),
      shared_(shared),
      comm_(shared.context.comm(spec.reduce_axes)),
      part_begin_(shared.context.mesh().index(spec.shard_axes) *
                  part_numel(spec, shared.context.mesh())),
      part_numel_(part_numel(spec, shared.context.mesh())),
      keeps_gradients_(shared.options.training && !shared.shard_grads),
      lends_gradients_(keeps_gradients_ && shared.options.lend_grads),
      weights_(spec.numel, shared.options.compute, shared.context.device()) {
  shard_.shard_axes = spec.shard_axes;
  cut_segments();
  allocate_master();
  for (std::size_t i = 0; i < spec_.params.size(); ++i) {
    initialize_master(i);
  }
  if (shared_.options.training) {
    allocate_gradients();
  }
  for (std::size_t i = 0; i < spec_.params.size(); ++i) {
    attach(i);
  }
  start_publish(true);
  finish_publish();
  bringing_.finish();  // whoever loads a checkpoint writes masters next
}

at::Tensor Chunk::allocate(at::ScalarType dtype, Tier tier) const {
  return tier == Tier::device
             ? allocate_flat(part_numel_, dtype, shared_.context.device())
             : host_empty(part_numel_, dtype, apart() ? HostPages::pinned : HostPages::plain);
}

at::Tensor Chunk::own_part(const at::Tensor& whole) const {
  return whole.narrow(0, part_begin_, part_numel_);
}

/// Segments of the parameters that fall into this rank's part.
void Chunk::cut_segments() {
  for (std::size_t i = 0; i < spec_.params.size(); ++i) {
    const ParamSpec& param = shared_.owners[static_cast<std::size_t>(spec_.params[i])]->spec();
    const std::int64_t length =
        numel(local_shape(param.layout, param.padded, shared_.context.mesh()));
    const std::int64_t begin = std::max<std::int64_t>(0, part_begin_ - spec_.offsets[i]);
    const std::int64_t end = std::min(length, part_begin_ + part_numel_ - spec_.offsets[i]);
    if (begin < end) {
      shard_.segments.push_back({.param = spec_.params[i],
                                 .begin = begin,
                                 .end = end,
                                 .offset = spec_.offsets[i] + begin - part_begin_});
    }
  }
}

/// A parameter is its own master where dtype and place allow it: then the part of the weights is
/// the master and no byte is held twice.
void Chunk::allocate_master() {
  const StoreOptions& options = shared_.options;
  const bool mixed = options.master != options.compute;
  if (spec_.resident) {
    weights_.fill(allocate_flat(weights_.bytes(), at::kByte, shared_.context.device()));
    const bool own_master = !mixed && spec_.optim_home == Tier::device;
    shard_.master =
        own_master ? own_part(weights_.tensor()) : allocate(options.master, spec_.optim_home);
    shard_.working = mixed ? own_part(weights_.tensor()) : at::Tensor();
  } else {
    shard_.master = allocate(options.master, spec_.optim_home);
    const bool own_home = !mixed && spec_.optim_home == spec_.param_home;
    home_ = own_home ? shard_.master : allocate(options.compute, spec_.param_home);
    shard_.working = mixed ? home_ : at::Tensor();
  }
  keep_working_by_master();
  if (options.training && !spec_.states_on_disk) {
    for (const std::string_view state : shared_.optimizer_states) {
      shard_.state.emplace(state, allocate(options.state, spec_.optim_home));
    }
  }
}

/// An update on the host writes the 16-bit copy there; publish brings it to the device.
void Chunk::keep_working_by_master() {
  if (shard_.working.defined() && shard_.working.device() != shard_.master.device()) {
    working_on_device_ =
        std::exchange(shard_.working, allocate(shared_.options.compute, spec_.optim_home));
  }
}

void Chunk::allocate_gradients() {
  const StoreOptions& options = shared_.options;
  // Gradients that are summed after each micro-batch need no wider type before that.
  grads_ = SwapBuffer(
      spec_.numel, keeps_gradients_ ? options.grad : options.compute, shared_.context.device());
  if (keeps_gradients_ && !lends_gradients_) {
    grads_.fill(allocate_flat(grads_.bytes(), at::kByte, shared_.context.device()));
  }
  if (grads_.tensor().scalar_type() != options.reduce) {
    staging_ = SwapBuffer(spec_.numel, options.reduce, shared_.context.device());
  }
  const bool in_place = keeps_gradients_ && spec_.optim_home == Tier::device;
  shard_.grad = in_place ? own_part(grads_.tensor()) : allocate(options.grad, spec_.optim_home);
}

/// Draws the values of a parameter and keeps this rank's part of them; one parameter at a time has
/// temporary memory.
void Chunk::initialize_master(std::size_t index) {
  const ParamSpec& param = shared_.owners[static_cast<std::size_t>(spec_.params[index])]->spec();
  const auto mine = std::ranges::find(shard_.segments, spec_.params[index], &Segment::param);
  if (mine == shard_.segments.end()) {
    return;
  }
  const Shape shape = local_shape(param.layout, param.padded, shared_.context.mesh());
  at::Tensor values = host_empty(numel(shape), shared_.options.master).view(shape);
  initialize(values, param, shared_.context);
  shard_.master.narrow(0, mine->offset, mine->end - mine->begin)
      .copy_(values.view(-1).narrow(0, mine->begin, mine->end - mine->begin));
}

/// The parameter becomes a leaf of autograd inside the buffer of the whole chunk. AccumulateGrad
/// adds into the gradient that is already there.
void Chunk::attach(std::size_t index) {
  Parameter& parameter = *shared_.owners[static_cast<std::size_t>(spec_.params[index])];
  const Shape shape =
      local_shape(parameter.spec().layout, parameter.spec().padded, shared_.context.mesh());
  const std::int64_t offset = spec_.offsets[index];
  at::Tensor leaf = alias(weights_.tensor().narrow(0, offset, numel(shape)).view(shape));
  if (shared_.options.training) {
    leaf.requires_grad_(true);
    at::Tensor grad = alias(grads_.tensor().narrow(0, offset, numel(shape)).view(shape));
    leaf.mutable_grad() = grad;
    if (replaces_gradients()) {
      zero_before_accumulating(leaf);
    }
    leaves_.push_back({.param = spec_.params[index], .grad = std::move(grad)});
  }
  parameter.attach(std::move(leaf));
  parameter.set_available(false);
}

/// Both ways on one stream: a home that publish has sent to the host is gathered from there next.
void Chunk::bring(const at::Tensor& to, const at::Tensor& from, bool now) {
  if (to.device() == from.device()) {
    to.copy_(from);
    return;
  }
  bringing_ = shared_.to_device->copy(to, from);
  if (now) {
    bringing_.join();
  }
}

void Chunk::start_gather() {
  weights_.fill(shared_.pool.get(weights_.bytes()));
  (void)gauge(MemoryKind::gathered).try_add(weights_.bytes());  // which has no limit
  at::Tensor whole = weights_.tensor();
  if (home_.device() != whole.device()) {
    at::Tensor part = own_part(whole);
    bring(part, home_, comm_.size() > 1);
    gathering_ = comm_.all_gather(whole, part);
  } else {
    gathering_ = comm_.all_gather(whole, home_);
  }
}

void Chunk::land() {
  landing_.finish();
  bringing_.finish();
}

void Chunk::finish_gather() {
  bringing_.join();
  gathering_.wait();
}

void Chunk::drop() {
  gauge(MemoryKind::gathered).remove(weights_.bytes());
  shared_.pool.put(weights_.empty());
}

void Chunk::drop_gradients() {
  if (lends_gradients_ && grads_.filled()) {
    shared_.pool.put(grads_.empty());
  }
}

void Chunk::begin_gradients() {
  summed_ = false;
  drop_gradients();
  if (keeps_gradients_ && !lends_gradients_) {
    expect_gradients();
  }
  for (Leaf& leaf : leaves_) {
    leaf.version = static_cast<std::uint32_t>(leaf.grad._version());
  }
}

/// Makes all gradients of the buffer zero, or lets the first write of each replace it: what lies
/// between them stays zero.
void Chunk::expect_gradients() {
  if (!replaces_gradients()) {
    grads_.tensor().zero_();
    return;
  }
  for (Leaf& leaf : leaves_) {
    mark_unwritten(leaf.grad);
    leaf.version = static_cast<std::uint32_t>(leaf.grad._version());
  }
}

bool Chunk::sums_in_place() const {
  return comm_.size() == 1 && spec_.optim_home == Tier::device && !summed_ &&
         shard_.grad.scalar_type() == grads_.tensor().scalar_type();
}

/// Memory for the gradients of a step. What lies between them, which nobody writes, is zero.
void Chunk::lend_gradients() {
  grads_.fill(shared_.pool.get(grads_.bytes()));
  expect_gradients();
  if (!replaces_gradients()) {
    return;
  }
  std::int64_t end = 0;
  for (std::size_t i = 0; i <= leaves_.size(); ++i) {
    const std::int64_t begin = i < leaves_.size() ? spec_.offsets[i] : spec_.numel;
    if (begin > end) {
      grads_.tensor().narrow(0, end, begin - end).zero_();
    }
    end = i < leaves_.size() ? begin + leaves_[i].grad.numel() : end;
  }
}

void Chunk::open_gradients() {
  if (grads_.filled()) {
    return;
  }
  if (lends_gradients_) {
    lend_gradients();
    return;
  }
  in_place_ = sums_in_place();
  if (in_place_) {
    grads_.fill(shard_.grad);
    expect_gradients();
  } else {
    grads_.fill(shared_.pool.get(grads_.bytes()));
    grads_.tensor().zero_();
  }
}

/// The gradient in the dtype of the reduction. The memory of a copy is lent: the backend's thread
/// may hold on to the tensor for a while after the reduction has ended.
at::Tensor Chunk::stage_gradients() {
  if (!staging_.tensor().defined()) {
    return grads_.tensor();
  }
  staging_.fill(at::empty({staging_.bytes()}, grads_.tensor().options().dtype(at::kByte)));
  return staging_.tensor().copy_(grads_.tensor());
}

/// Gradients that nobody wrote are zero; their parameters stay unused.
void Chunk::zero_unwritten() {
  for (Leaf& leaf : leaves_) {
    if (is_unwritten(leaf.grad)) {
      leaf.grad.zero_();
      leaf.version = static_cast<std::uint32_t>(leaf.grad._version());
    }
  }
}

void Chunk::start_reduce() {
  if (lends_gradients_) {
    open_gradients();  // if no backward has
  }
  zero_unwritten();
  at::Tensor whole = stage_gradients();
  sum_ = own_part(whole);
  if (spec_.shard_axes.none()) {
    reducing_ = comm_.all_reduce(whole);
  } else {
    reducing_ = comm_.reduce_scatter(sum_, whole);
  }
  if (sum_.device() != shard_.grad.device()) {
    send_sum();
  }
}

/// The sum goes to the host as soon as it is there, beside the rest of backward.
void Chunk::send_sum() {
  if (summed_ && !landed_.defined()) {
    landed_ = allocate(sum_.scalar_type(), Tier::host);
  }
  landing_ =
      shared_.to_host->copy(summed_ ? landed_ : shard_.grad, sum_, [this] { reducing_.wait(); });
}

void Chunk::finish_reduce() {
  reducing_.wait();
  landing_.join();  // the memory of the sum is used again after this
  if (sum_.device() != shard_.grad.device()) {
    if (summed_) {
      landing_.finish();
      shard_.grad.add_(landed_);
    }
  } else if (summed_) {
    shard_.grad.add_(sum_);
  } else if (sum_.const_data_ptr() != shard_.grad.const_data_ptr()) {
    shard_.grad.copy_(sum_);
  }
  summed_ = true;
  sum_ = at::Tensor();
  if (staging_.filled()) {
    static_cast<void>(staging_.empty());
  }
  if (in_place_) {
    static_cast<void>(grads_.empty());
  } else if (!keeps_gradients_) {
    shared_.pool.put(grads_.empty());
  }
}

int Chunk::first_unused() const {
  const auto unused = std::ranges::find_if(leaves_, [](const Leaf& leaf) {
    return static_cast<std::uint32_t>(leaf.grad._version()) == leaf.version;
  });
  return unused == leaves_.end() ? -1 : unused->param;
}

void Chunk::start_publish(bool cast) {
  if (shard_.working.defined()) {
    if (cast) {
      shard_.working.copy_(shard_.master);
    }
    if (working_on_device_.defined()) {
      bring(working_on_device_, shard_.working, comm_.size() > 1);
    }
  } else if (home_.defined() && !home_.is_same(shard_.master)) {
    bring(home_, shard_.master, comm_.size() > 1);
  } else if (spec_.resident && spec_.optim_home != Tier::device) {
    bring(own_part(weights_.tensor()), shard_.master, comm_.size() > 1);
  }
  if (spec_.resident && spec_.shard_axes.any()) {
    at::Tensor whole = weights_.tensor();
    gathering_ = comm_.all_gather(whole, own_part(whole));
  }
}

}  // namespace colossal::detail
