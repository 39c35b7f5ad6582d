#pragma once

#include <string>

#include "common/base/result.h"
#include "local/node/environment.h"
#include "local/node/pod_plan.h"

namespace lockstep::local {

// A pod's files, in a private folder: its volumes, once each, and for each container a root below
// which its mount paths lead to them. The local node has no mount namespaces: programs learn their
// root from LOCKSTEP_POD_ROOT. A hostPath leads to that path itself.
class PodFolder {
 public:
  explicit PodFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string root_of(const ContainerPlan& container) const { return path_ + "/" + container.name; }

  // Makes all of it. kNotFound: a Secret or ConfigMap is missing (kubelet's words; try again
  // later); kInvalid: a local node can't do it; kUnavailable: the file system.
  Status make(const PodSources& sources) const;
  void remove() const;

 private:
  Status make_volume(const PodSources& sources, const Json& volume) const;
  Status make_root(const ContainerPlan& container) const;

  std::string path_;
};

}  // namespace lockstep::local
