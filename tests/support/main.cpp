// Where is main() of the test programs? Catch2 2.13 compiles it here, once; 3.x brings it as a
// library.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
