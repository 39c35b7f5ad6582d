#pragma once

#include <string>

#include "common/base/result.h"
#include "local/node/environment.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// A pod's files in a private folder: its volumes, and for each container a root below which its
// mount paths link to them. The local node has no mount namespaces: programs learn their root from
// LOCKSTEP_POD_ROOT. A hostPath links to that path itself.
class PodFolder {
 public:
  explicit PodFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string root_of(const ContainerPlan& container) const { return path_ + "/" + container.name; }

  // Creates all of it. kNotFound, in kubelet's words: a Secret or ConfigMap is missing (try again
  // later). kInvalid: not supported by a local node. kUnavailable: a file system error.
  Status make(const PodSources& sources) const;
  void remove() const;

 private:
  Status make_volume(const PodSources& sources, const Json& volume) const;
  Status make_root(const ContainerPlan& container) const;

  std::string path_;
};

}  // namespace lockstep::local
