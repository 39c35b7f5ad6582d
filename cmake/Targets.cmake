# lockstep_library(NAME SOURCES ... DEPS ...): a static library of ours, warnings as errors.
# lockstep_program(NAME SOURCES ... DEPS ...): a binary in build/bin.
# lockstep_test(NAME SOURCES ... DEPS ...): a GoogleTest binary in build/bin/tests, one ctest entry a
#   binary; LABELS and TIMEOUT_SECONDS may be given (a guard against hangs, never an assertion), and COST,
#   about how many seconds a long one takes, so that it begins early.
#
# UNOPTIMISED, or the folder's variable LOCKSTEP_UNOPTIMISED: what waits most of its time compiles in half
# the time so. ONE_BY_ONE SOURCES: see QuickBuild.cmake.
function(lockstep_warnings target)
  # Options structs with designated initialisers leave members at their defaults; g++ warns of that.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Werror
    -Wno-missing-field-initializers>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Werror,-Wno-missing-field-initializers>)
  # At -O3 g++ 12 warns without cause of `"literal" + std::string` (gcc.gnu.org/PR105651), of the strings of
  # `Spec{}` where Spec has structs with strings in it, and, where the library checks indices, of vectors with
  # contents that it knows. The other builds, at -O2, keep these warnings.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release>>:-Wno-restrict$<SEMICOLON>-Wno-maybe-uninitialized$<SEMICOLON>-Wno-free-nonheap-object>)
endfunction()

macro(lockstep_arguments)
  cmake_parse_arguments(arg "TEST;UNOPTIMISED" "TIMEOUT_SECONDS;COST"
    "SOURCES;DEPS;LABELS;ARGS;ONE_BY_ONE" ${ARGN})
endmacro()

# Sets the compile options of any of these targets. TEST: it includes GoogleTest.
function(lockstep_compile name)
  lockstep_arguments(${ARGN})
  if(arg_UNOPTIMISED OR LOCKSTEP_UNOPTIMISED)
    target_compile_options(${name} PRIVATE -O0 -U_FORTIFY_SOURCE)
  endif()
  lockstep_warnings(${name})
  lockstep_quicken(${name} ${ARGN})
endfunction()

function(lockstep_library name)
  lockstep_arguments(${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  lockstep_compile(${name} ${ARGN})
endfunction()

function(lockstep_program name)
  lockstep_arguments(${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  lockstep_compile(${name} ${ARGN})
endfunction()

function(lockstep_test name)
  lockstep_arguments(${ARGN})
  lockstep_program(${name} TEST ${ARGN})
  target_link_libraries(${name} PRIVATE gtest_main_local)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/tests")
  target_compile_definitions(${name} PRIVATE
    LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" LOCKSTEP_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  if(NOT arg_TIMEOUT_SECONDS)
    set(arg_TIMEOUT_SECONDS 300)
  endif()
  if(LOCKSTEP_SANITIZE)
    math(EXPR arg_TIMEOUT_SECONDS "5 * ${arg_TIMEOUT_SECONDS}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT_SECONDS})
  if(arg_COST)
    set_tests_properties(${name} PROPERTIES COST ${arg_COST})
  endif()
  if(arg_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
  endif()
endfunction()

# lockstep_label_folders(FOLDER): gives the tests of each folder below FOLDER the label that `tools/test -L` takes:
# the path of the folder, in tests/ the path of the folder that they test (agent/comm).
function(lockstep_label_folders folder)
  get_property(below DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(each ${below})
    file(RELATIVE_PATH label "${CMAKE_SOURCE_DIR}" "${each}")
    string(REGEX REPLACE "^tests/" "" label "${label}")
    set_property(DIRECTORY "${each}" PROPERTY LABELS "${label}")
    lockstep_label_folders("${each}")
  endforeach()
endfunction()

# lockstep_isa_tests([CAPPED] TEST...): the results of these tests depend on the CPU's instruction set, so
# `tools/test --levels` runs them at each level that the machine offers. CAPPED: plain `tools/test` also runs
# them a second time, capped at AVX2. Names of tests that this build does not have are passed over.
function(lockstep_isa_tests)
  cmake_parse_arguments(arg "CAPPED" "" "" ${ARGN})
  set(labels isa)
  if(arg_CAPPED)
    list(APPEND labels isa_capped)
  endif()
  foreach(name ${arg_UNPARSED_ARGUMENTS})
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS ${labels})
    endif()
  endforeach()
endfunction()
