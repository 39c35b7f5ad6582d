#pragma once

namespace lockstep {

// Version of all the programs. Keep equal to project() in CMakeLists.txt.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace lockstep
