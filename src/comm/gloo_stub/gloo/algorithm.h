// Stand-in for gloo/algorithm.h: c10d's header includes it but uses nothing of it.
#pragma once
