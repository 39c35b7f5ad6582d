#pragma once

namespace lockstep {

// Exit code of a program that an uncaught exception ended: EX_SOFTWARE of sysexits.h.
inline constexpr int kExitUncaught = 70;

// Calls `body(argc, argv)` and returns its exit code. An exception that leaves the body, for
// instance one of a library, becomes an error message with its text and kExitUncaught; nothing
// aborts.
int run_main(const char* program, int (*body)(int, char**), int argc, char** argv) noexcept;

}  // namespace lockstep
