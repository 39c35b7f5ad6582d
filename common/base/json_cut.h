#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Which part of objects is cut out of their text.
struct JsonCut {
  int objects_at = 0;     // nesting levels above each object; 0 if the text is one object
  std::string_view part;  // a member of each object, itself an object
  std::string_view kept;  // the only member of the part that stays
};

// Returns the text without the rest of that part. A scan that finds only the ends of values is
// several times as fast as parsing them. The parts that it cuts out are not checked further: they
// may be no JSON. Returns the text unchanged if it cannot follow it.
std::string cut_json(std::string_view text, const JsonCut& cut);

}  // namespace lockstep
