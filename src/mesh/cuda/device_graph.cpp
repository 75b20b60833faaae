// Which stream is recorded? One of its own: work on the default stream cannot be.
#include "mesh/device_graph.hpp"

#include "core/error.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace colossal {
namespace {

class RecordedGraph : public DeviceGraph {
 public:
  RecordedGraph(c10::Device device, const std::function<void()>& work)
      : device_(device), pool_(at::cuda::graph_pool_handle()) {
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();  // the graph's memory is not taken from there
    const c10::cuda::CUDAStreamGuard guard(
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
    // Backward runs on a thread of autograd's, loaders on others: only this one is held to rules.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      end_failed();
      std::rethrow_exception(error);
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  /// The stream must not stay in recording; that the record is no good is known. LibTorch's own end
  /// stops at the first thing that fails, and would take memory for the graph for ever.
  void end_failed() noexcept {
    try {
      graph_.capture_end();
      return;
    } catch (const c10::Error&) {
      static_cast<void>(cudaGetLastError());
    }
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool_);
    } catch (const c10::Error&) {
      static_cast<void>(cudaGetLastError());  // it had come so far
    }
  }

  c10::Device device_;
  c10::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> record_graph(c10::Device device, const std::function<void()>& work) {
  std::string why;
  try {
    return std::make_unique<RecordedGraph>(device, work);
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  } catch (const Error& error) {
    // Which a recording that has ended already refuses; the second is what a block makes of
    // torch's.
    if (error.id() != "cuda-launch" && error.id() != "torch-error") {
      throw;
    }
    why = error.what();
  } catch (const std::exception& error) {  // of libraries
    why = error.what();
  }
  fail(ErrorKind::internal,
       "cuda-graph",
       "the work of a step could not be recorded: {}\n  fix   train.cuda_graph: false",
       why);
}

}  // namespace colossal
