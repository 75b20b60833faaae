// How does one group move tensors of the host and of a GPU? Through a backend for each.
#include "comm/detail/backend.hpp"

#include <utility>

namespace colossal::detail {
namespace {

class ByDevice final : public Backend {
 public:
  ByDevice(std::unique_ptr<Backend> host, std::unique_ptr<Backend> device)
      : host_(std::move(host)), device_(std::move(device)) {}

  std::unique_ptr<Work> all_reduce(at::Tensor& x, ReduceOp op) override {
    return of(x).all_reduce(x, op);
  }
  std::unique_ptr<Work> all_gather(at::Tensor& out, const at::Tensor& in) override {
    return of(out).all_gather(out, in);
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor& out, const at::Tensor& in) override {
    return of(out).reduce_scatter(out, in);
  }
  std::unique_ptr<Work> all_to_all(at::Tensor& out, const at::Tensor& in) override {
    return of(out).all_to_all(out, in);
  }
  std::unique_ptr<Work> broadcast(at::Tensor& x, int root) override {
    return of(x).broadcast(x, root);
  }
  std::unique_ptr<Work> barrier() override { return host_->barrier(); }

 private:
  [[nodiscard]] Backend& of(const at::Tensor& x) const { return x.is_cuda() ? *device_ : *host_; }

  std::unique_ptr<Backend> host_;
  std::unique_ptr<Backend> device_;  // ends first, while the host's still works
};

}  // namespace

std::unique_ptr<Backend> by_device(std::unique_ptr<Backend> host, std::unique_ptr<Backend> device) {
  return std::make_unique<ByDevice>(std::move(host), std::move(device));
}

}  // namespace colossal::detail
