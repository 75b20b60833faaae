// Stand-in for gloo/context.h: the one member c10d's inline code names. The real class lives in
// libtorch_cpu.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
