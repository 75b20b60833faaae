// How do the tests of sweeps load a text? Beside a base configuration, in a folder of their own.
#pragma once

#include "config/sweep.hpp"
#include "config_sandbox.hpp"

#include <string>

namespace colossal::test {

/// The line that names the base of SweepSandbox.
inline const std::string kHead = "base: base.yaml\n";

/// A folder with a base configuration, in which sweep files are loaded.
class SweepSandbox {
 public:
  explicit SweepSandbox(const std::string& base = kSynthetic) { box.write("base.yaml", base); }

  [[nodiscard]] Sweep load(const std::string& text, const std::string& name = "s.yaml") const {
    return load_sweep(box.write(name, text));
  }
  [[nodiscard]] const std::filesystem::path& path() const { return box.path(); }
  ConfigSandbox box;
};

/// "id line col" of every diagnostic.
inline std::string summary(const Sweep& sweep) {
  Loaded loaded;
  loaded.diagnostics = sweep.diagnostics;
  return colossal::test::summary(loaded);
}

}  // namespace colossal::test
