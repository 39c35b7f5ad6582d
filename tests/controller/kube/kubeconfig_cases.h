#pragma once

#include <string>
#include <vector>

namespace lockstep::kube {

// A folder of kubeconfig files and the options that select from them. `{dir}` is replaced by the
// folder's path.
struct KubeconfigCase {
  struct File {
    std::string name;
    std::string text;
  };
  std::string name;  // a sentence
  std::vector<File> files;
  std::string environment = "{dir}/a";  // KUBECONFIG
  std::string explicit_file{};          // --kubeconfig
  std::string context{};                // --context
};

const std::vector<KubeconfigCase>& kubeconfig_cases();

}  // namespace lockstep::kube
