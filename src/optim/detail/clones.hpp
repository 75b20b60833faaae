// How is one loop compiled for several instruction sets? By attributes: the best one for the
// machine is chosen when the program starts.
#pragma once

/// Compiles a function three times. What it calls must be COLOSSAL_INLINE to be compiled with it.
#define COLOSSAL_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define COLOSSAL_INLINE __attribute__((always_inline)) inline
