# Options that make a fault in memory end the program instead of giving control of it to an attacker.
# They hold for every target, so that the measured programs are the shipped ones.
# tests/hardening_test.py looks for each of them in the binaries.
#   -fstack-protector-strong   a function with a buffer on its stack checks it before it returns
#   _FORTIFY_SOURCE            calls of the C library check the sizes of buffers that the compiler knows
#   _GLIBCXX_ASSERTIONS        the standard library checks indices and empty containers
#   relro, now                 tables of functions are read-only once the program is loaded
#   pie                        the program is at another address in each run
#   noexecstack                nothing on the stack can be executed
set(hardening -fstack-protector-strong)
if(NOT LOCKSTEP_SANITIZE)
  # The sanitizers check the same calls, and do not see through the replaced ones. It needs
  # optimisation: targets with -O0 undefine it (Targets.cmake). The C library warns of level 3 with
  # compilers that lack it.
  set(level 3)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
    set(level 2)
  endif()
  # Some distributions' compilers define a level of their own.
  list(APPEND hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
endif()
list(JOIN hardening "," hardening_of_host)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${hardening}>"
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${hardening_of_host}>)
# Not for CUDA: device code may call constexpr functions of the standard library, but not the check
# that this adds to them.
add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
add_link_options("LINKER:-z,relro,-z,now,-z,noexecstack" $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
