// Which Catch2 is used? Whichever is present: 2.13 (Debian 12) or 3.x (Ubuntu 24.04).
#pragma once

// c10 has a CHECK of its own, which aborts. Its header comes first, so that Catch's CHECK is the
// one tests see whatever the order of their includes.
#if __has_include(<c10/util/Logging.h>)
#include <c10/util/Logging.h>
#undef CHECK
#endif

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
