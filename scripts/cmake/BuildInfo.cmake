# How does the binary know its git revision? Run as a script on every build: writes build_info.hpp only when it changes,
# so that nothing is recompiled or linked again without need.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision unknown)
endif()
file(STRINGS ${TORCH_DIR}/version.py torch_version REGEX "^__version__")
string(REGEX REPLACE "^__version__ = '(.*)'$" "\\1" torch_version "${torch_version}")
set(text "// Written by scripts/cmake/BuildInfo.cmake: what was this program built from?
#pragma once

namespace colossal {
inline constexpr const char* kVersion = \"${VERSION}\";
inline constexpr const char* kRevision = \"${revision}\";
inline constexpr const char* kTorchVersion = \"${torch_version}\";
inline constexpr const char* kHdf5Version = \"${HDF5_VERSION}\";
inline constexpr const char* kCompiler = \"${COMPILER}\";
}  // namespace colossal
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
