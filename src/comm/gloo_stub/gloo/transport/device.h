// Stand-in for gloo/transport/device.h: types that c10d's header holds by pointer only.
#pragma once

namespace gloo::transport {

class Device {
 public:
  virtual ~Device() = default;
};

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

}  // namespace gloo::transport
