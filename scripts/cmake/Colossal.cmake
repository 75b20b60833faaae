# How a folder becomes a library and a test file becomes a CTest entry.
include(CMakeParseArguments)

set(COLOSSAL_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual)
# A class of one file with members of that file: g++ takes a unity build's file for a header.
list(APPEND COLOSSAL_WARNINGS -Wno-subobject-linkage)
if(COLOSSAL_WERROR)
  list(APPEND COLOSSAL_WARNINGS -Werror)
endif()

# Tests are compiled as libraries are: the linker may take an inline function's code from either, and -O0 took
# as much time from rank tests as it saved of the build. g++ 12 sees bounds crossed inside std::string where none are
# (GCC bug 105651), once headers are precompiled.
set(COLOSSAL_TEST_OPTIONS -g0 -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)

# colossal_library(<folder> SOURCES a.cpp ... [DEPENDS folder ...] [LIBS target ...] [PRECOMPILED])
# Static library colossal_<folder>. DEPENDS lists other folders and must agree with src/LAYERS. PRECOMPILED: its files
# start from precompiled headers of others (src/CMakeLists.txt); not where sanitizers run, so that missing includes show.
function(colossal_library folder)
  cmake_parse_arguments(ARG "PRECOMPILED" "" "SOURCES;DEPENDS;LIBS" ${ARGN})
  add_library(colossal_${folder} STATIC ${ARG_SOURCES})
  target_compile_options(colossal_${folder} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${COLOSSAL_WARNINGS}>")
  target_include_directories(colossal_${folder} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(colossal_${folder} PUBLIC colossal_${dependency})
  endforeach()
  target_link_libraries(colossal_${folder} PUBLIC ${ARG_LIBS})
  if(ARG_PRECOMPILED AND TARGET colossal_source_headers)
    target_precompile_headers(colossal_${folder} REUSE_FROM colossal_source_headers)
  endif()
endfunction()

# colossal_cuda_sources(<folder> CUDA a.cpp b.cu ... [NONE none.cpp])
# What a folder adds to itself: CUDA in a build with CUDA, else NONE. Only those files see CUDA's headers, and the flags
# of all others are the same in every preset, so that the compiler cache shares their objects.
function(colossal_cuda_sources folder)
  cmake_parse_arguments(ARG "" "" "CUDA;NONE" ${ARGN})
  if(NOT COLOSSAL_CUDA)
    target_sources(colossal_${folder} PRIVATE ${ARG_NONE})
    return()
  endif()
  target_sources(colossal_${folder} PRIVATE ${ARG_CUDA})
  # -isystem: their warnings are not ours.
  set(glue ${ARG_CUDA})
  list(FILTER glue EXCLUDE REGEX "\\.cu$")
  foreach(include ${COLOSSAL_CUDA_INCLUDES})
    set_property(SOURCE ${glue} APPEND PROPERTY COMPILE_OPTIONS -isystem${include})
  endforeach()
  target_link_libraries(colossal_${folder} PUBLIC torch::cuda)
endfunction()

# colossal_test(<name> KIND unit|ranks|golden|e2e|cuda SOURCES ... [DEPENDS folder ...] [LIBS target ...] [APART tag ...]
#               [COST seconds] [EACH])
# One test program and one CTest entry, labelled with KIND. The cases of each tag of APART are an entry of their own, which
# may run beside the others; entries of a high COST start first, so that none is left to run alone at the end. With EACH,
# the cases of each x_test.cpp are the entry KIND.x.
# The program also gets tests/support on its include path,
# COLOSSAL_BINARY (the path of colossal-train), COLOSSAL_SOURCE_DIR and COLOSSAL_TEST_DATA (the test's own folder).
function(colossal_test name)
  cmake_parse_arguments(ARG "EACH" "COST;KIND;TIMEOUT" "APART;SOURCES;DEPENDS;LIBS" ${ARGN})
  set(target ${ARG_KIND}_${name}_test)
  add_executable(${target} ${ARG_SOURCES})
  target_compile_options(${target} PRIVATE ${COLOSSAL_WARNINGS})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE COLOSSAL_BINARY="${CMAKE_BINARY_DIR}/colossal-train"
                                               COLOSSAL_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                               COLOSSAL_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}")
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${target} PRIVATE colossal_${dependency})
  endforeach()
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} fmt::fmt colossal_catch_main)
  # Catch, JSON and tensors are read once: half of the time that tests take to compile.
  target_compile_options(${target} PRIVATE ${COLOSSAL_TEST_OPTIONS})
  if(ARG_KIND STREQUAL "e2e" OR "${ARG_DEPENDS}" MATCHES "^(core|config)?$")
    target_precompile_headers(${target} REUSE_FROM colossal_plain_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM colossal_tensor_headers)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # Limits of time mean nothing where every access is checked.
  set(unlimited $<$<BOOL:${COLOSSAL_SANITIZE}>:~[speed]~[.]>)
  set(entries "")
  set(rest "")
  foreach(tag ${ARG_APART})
    list(APPEND entries ${ARG_KIND}.${name}.${tag})
    add_test(NAME ${ARG_KIND}.${name}.${tag} COMMAND ${target} [${tag}]${unlimited})
    string(APPEND rest "~[${tag}]~[.]") # a filter that only takes out would let hidden cases in
  endforeach()
  if(ARG_EACH)
    foreach(source ${ARG_SOURCES})
      if(source MATCHES "([a-z_]*)_test\\.cpp$")
        list(APPEND entries ${ARG_KIND}.${CMAKE_MATCH_1})
        add_test(NAME ${ARG_KIND}.${CMAKE_MATCH_1} COMMAND ${target} --filenames-as-tags [\#${CMAKE_MATCH_1}_test]${unlimited})
      endif()
    endforeach()
  else()
    list(APPEND entries ${ARG_KIND}.${name})
    add_test(NAME ${ARG_KIND}.${name} COMMAND ${target} ${rest}${unlimited})
  endif()
  if(COLOSSAL_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}") # slow, and at the lowest priority in scripts/test.sh
  endif()
  set_tests_properties(${entries} PROPERTIES LABELS ${ARG_KIND} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_COST)
    set_tests_properties(${entries} PROPERTIES COST ${ARG_COST})
  endif()
  if(ARG_KIND STREQUAL "cuda")
    set_tests_properties(${entries} PROPERTIES RESOURCE_LOCK gpu)
  endif()
  if(ARG_KIND STREQUAL "ranks" OR ARG_KIND STREQUAL "e2e")
    set_tests_properties(${entries} PROPERTIES PROCESSORS 2)
  else()
    # Tiny tensors on shared cores: waiting for a second thread costs more than the work (11 s instead of 1 s).
    set_tests_properties(
      ${entries} PROPERTIES ENVIRONMENT
      "OMP_NUM_THREADS=1;LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/scripts/cmake/leaks.supp:print_suppressions=0")
  endif()
endfunction()
