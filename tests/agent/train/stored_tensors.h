// The tensors of a stored checkpoint, whichever ranks wrote them, for tests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

// Returns the values of all tensors in the checkpoint's files whose names begin with `stem`
// ("model", "optimizer"), by name. Expects that the checkpoint verifies.
std::map<std::string, std::vector<float>> stored_tensors(const std::string& checkpoint,
                                                         std::string_view stem);

// The same as one text, to compare.
std::string stored_bytes(const std::string& checkpoint, std::string_view stem);

}  // namespace lockstep::train
