# LOCKSTEP_QUICK_BUILD makes a full build far cheaper (bench/results/ci). External headers that most
# sources include are compiled once. A target's sources are compiled in groups of six, so that
# templates are instantiated once per group. List a source in ONE_BY_ONE if its local names clash
# with those of its group, or while you work on it. Missing includes show only where sources are
# compiled separately: those of the programs with the preset worker, which has TESTS here, and in
# tools/check.
set(LOCKSTEP_QUICK_BUILD OFF CACHE STRING
  "Compile with precompiled headers and sources in groups: ON for all sources, TESTS for tests and benches, OFF")

set(quick_headers
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <filesystem>
  <fstream> <functional> <map> <memory> <mutex> <optional> <random> <regex> <set> <span> <sstream>
  <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
  <nlohmann/json.hpp>)

# Precompiled headers only serve targets with the same flags, so there is one set per kind of
# target.
function(lockstep_quick_headers name)
  cmake_parse_arguments(arg "TEST;UNOPTIMISED" "" "" ${ARGN})
  if(NOT EXISTS "${CMAKE_BINARY_DIR}/quick/${name}.cc")
    file(WRITE "${CMAKE_BINARY_DIR}/quick/${name}.cc" "")
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/quick/${name}.cc")
  target_link_libraries(${name} PRIVATE third_json Threads::Threads)
  set(headers ${quick_headers})
  if(arg_TEST)
    target_link_libraries(${name} PRIVATE gtest_main_local)
    list(APPEND headers <gtest/gtest.h>)
  endif()
  if(arg_UNOPTIMISED)
    target_compile_options(${name} PRIVATE -O0 -U_FORTIFY_SOURCE)
  endif()
  lockstep_warnings(${name})
  target_precompile_headers(${name} PRIVATE ${headers})
endfunction()

# Sets up the quick build of a target. Takes the arguments of lockstep_library and the like.
function(lockstep_quicken name)
  if(NOT LOCKSTEP_QUICK_BUILD)
    return()
  endif()
  file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  if(LOCKSTEP_QUICK_BUILD STREQUAL "TESTS" AND NOT folder MATCHES "^(tests|bench)(/|$)")
    return()
  endif()
  lockstep_arguments(${ARGN})
  set(headers quick)
  set(kind)
  if(arg_TEST OR "gtest_main_local" IN_LIST arg_DEPS)
    string(APPEND headers _test)
    list(APPEND kind TEST)
  endif()
  if(arg_UNOPTIMISED OR LOCKSTEP_UNOPTIMISED)
    string(APPEND headers _unoptimised)
    list(APPEND kind UNOPTIMISED)
  endif()
  if(NOT TARGET ${headers})
    lockstep_quick_headers(${headers} ${kind})
  endif()
  target_precompile_headers(${name} REUSE_FROM ${headers})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  # g++ 12 has more false positives about strings in larger sources (gcc.gnu.org/PR105651), and
  # treats the sources of a group as headers.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
      -Wno-subobject-linkage)
  endif()
  set_source_files_properties(${arg_ONE_BY_ONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
