// What can the command line say about the launcher that started a process?
#pragma once

#include <string>

namespace colossal {

/// For detect_launch(); the defaults leave everything to the environment.
struct LaunchFlags {
  std::string mode = "auto";     ///< --launch: auto, single, torchrun, openmpi, pmi, slurm
  std::string master_addr = {};  ///< --master-addr; empty: by the launcher
  int master_port = 0;           ///< --master-port; 0: by the launcher
  std::string rendezvous = {};   ///< --rendezvous file:PATH; empty: none
};

}  // namespace colossal
