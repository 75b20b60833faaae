// Stand-in for gloo/common/error.h: c10d's header includes it but uses nothing of it.
#pragma once
