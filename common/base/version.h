#pragma once

namespace lockstep {

// Of all the programs; the same as project() in CMakeLists.txt.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace lockstep
