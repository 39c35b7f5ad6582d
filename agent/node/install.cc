#include "agent/node/install.h"

#include <filesystem>

namespace lockstep::node {

Status install_bundle(const std::string& binary, const std::string& target) {
  namespace fs = std::filesystem;
  const fs::path bundle = fs::path(binary).parent_path().parent_path();
  std::error_code error;
  if (!fs::is_directory(bundle / "lib", error)) {
    return invalid("[install] expected the libraries of " + binary + " in " +
                   (bundle / "lib").string() +
                   ", which is not a folder; build a bundle with tools/bundle");
  }
  for (const char* part : {"bin", "lib"}) {
    fs::copy(bundle / part, fs::path(target) / part,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    if (error) {
      return unavailable("[install] " + (bundle / part).string() + " to " + target + ": " +
                         error.message());
    }
  }
  return {};
}

}  // namespace lockstep::node
