#include "common/api/storage_notes.h"

#include <algorithm>
#include <string>

#include "common/base/utf8.h"

namespace lockstep {

void FixedText::assign(std::string_view text) {
  bytes = {};
  const std::string fitting = utf8_elided(text, bytes.size());
  std::copy(fitting.begin(), fitting.end(), bytes.begin());
}

std::string_view FixedText::text() const {
  const auto* end = std::find(bytes.begin(), bytes.end(), '\0');
  return {bytes.data(), static_cast<size_t>(end - bytes.begin())};
}

}  // namespace lockstep
