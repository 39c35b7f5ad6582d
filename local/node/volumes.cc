#include "local/node/volumes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "local/node/fields.h"
#include "local/node/files.h"

namespace lockstep::local {
namespace {

namespace fs = std::filesystem;

constexpr char kVolumes[] = "/.volumes/";  // container names don't begin with a dot
constexpr mode_t kSecretMode = 0600;       // everything here runs as one user
constexpr mode_t kPlainMode = 0644;

struct VolumeFile {
  std::string path;  // relative
  std::string content;
  mode_t mode = 0;
};

using VolumeFiles = std::vector<VolumeFile>;

mode_t mode_of(const Json& object, std::string_view key, mode_t fallback) {
  return static_cast<mode_t>(int_or(object, key, fallback) & 0777);
}

// Adds all keys, or only those in `items` under their paths.
Status add_data(const Json& object, const Json& source, const std::string& what, mode_t mode,
                bool optional, VolumeFiles& files) {
  const Json& items = array_of(source, "items");
  if (items.empty()) {
    std::map<std::string, std::string> values;
    TRY_ASSIGN(values, data_values(object));
    for (auto& [key, value] : values) files.push_back({key, std::move(value), mode});
    return {};
  }
  for (const Json& item : items) {
    std::string key = string_or(item, "key", "");
    TRY_ASSIGN(std::optional<std::string> value, data_value(object, key));
    if (!value && optional) continue;
    if (!value) return not_found(what + " references non-existent " + what + " key: " + key);
    files.push_back({string_or(item, "path", key), *std::move(value), mode_of(item, "mode", mode)});
  }
  return {};
}

Status add_object(const PodSources& sources, const char* plural, const char* what,
                  const std::string& name, const Json& source, mode_t mode, VolumeFiles& files) {
  bool optional = bool_or(source, "optional", false);
  std::optional<Json> object = sources.read(plural, name);
  if (!object && optional) return {};
  if (!object) return not_found(std::string(what) + " \"" + name + "\" not found");
  return add_data(*object, source, what, mode, optional, files);
}

Status add_downward(const PodSources& sources, const Json& source, mode_t mode,
                    VolumeFiles& files) {
  for (const Json& item : array_of(source, "items")) {
    VolumeFile file{string_or(item, "path", ""), "", mode_of(item, "mode", mode)};
    if (const Json* field = find_member(item, "fieldRef")) {
      TRY_ASSIGN(file.content,
                 field_value(sources.pod, sources.facts, string_or(*field, "fieldPath", "")));
    } else {
      TRY_ASSIGN(file.content, resource_value(sources.plan, sources.facts,
                                              object_of(item, "resourceFieldRef"), nullptr));
    }
    files.push_back(std::move(file));
  }
  return {};
}

Status add_projected(const PodSources& sources, const Json& projected, const std::string& volume,
                     VolumeFiles& files) {
  for (const Json& source : array_of(projected, "sources")) {
    if (const Json* secret = find_member(source, "secret")) {
      TRY(add_object(sources, "secrets", "secret", string_or(*secret, "name", ""), *secret,
                     mode_of(projected, "defaultMode", kSecretMode), files));
    } else if (const Json* map = find_member(source, "configMap")) {
      TRY(add_object(sources, "configmaps", "configmap", string_or(*map, "name", ""), *map,
                     mode_of(projected, "defaultMode", kPlainMode), files));
    } else if (const Json* downward = find_member(source, "downwardAPI")) {
      TRY(add_downward(sources, *downward, mode_of(projected, "defaultMode", kPlainMode), files));
    } else {
      return cannot("volumes " + volume + ".projected",
                    "supports only secret, configMap and downwardAPI sources");
    }
  }
  return {};
}

Result<VolumeFiles> files_of(const PodSources& sources, const Json& volume) {
  VolumeFiles files;
  if (const Json* secret = find_member(volume, "secret")) {
    TRY(add_object(sources, "secrets", "secret", string_or(*secret, "secretName", ""), *secret,
                   mode_of(*secret, "defaultMode", kSecretMode), files));
  } else if (const Json* map = find_member(volume, "configMap")) {
    TRY(add_object(sources, "configmaps", "configmap", string_or(*map, "name", ""), *map,
                   mode_of(*map, "defaultMode", kPlainMode), files));
  } else if (const Json* downward = find_member(volume, "downwardAPI")) {
    TRY(add_downward(sources, *downward, mode_of(*downward, "defaultMode", kPlainMode), files));
  } else if (const Json* projected = find_member(volume, "projected")) {
    TRY(add_projected(sources, *projected, string_or(volume, "name", ""), files));
  }
  return files;
}

Status write_volume_file(const std::string& folder, const VolumeFile& file) {
  if (!is_inside_path("/" + file.path))
    return invalid("volumes: \"" + file.path + "\" is not a valid path of a file in a volume");
  std::string path = folder + "/" + file.path;
  TRY(make_private_folder(path.substr(0, path.rfind('/'))));
  std::error_code ignored;
  fs::remove(path, ignored);  // left by an earlier attempt, perhaps read-only
  TRY(write_private_file(path, file.content));
  if (chmod(path.c_str(), file.mode) != 0) return errno_error("[file] mode of " + path, errno);
  return {};
}

Status use_host_path(const std::string& folder, const Json& host) {
  std::string path = string_or(host, "path", "");
  std::string type = string_or(host, "type", "");
  if (path.empty() || path[0] != '/') return cannot("hostPath", "needs an absolute path");
  if (type == "DirectoryOrCreate") TRY(make_private_folder(path));
  std::error_code error;
  if (!type.empty() && !fs::exists(path, error))
    return not_found("hostPath type check failed: " + path + " does not exist");
  fs::remove(folder, error);
  if (symlink(path.c_str(), folder.c_str()) != 0) return errno_error("[link] " + folder, errno);
  return {};
}

}  // namespace

Status PodFolder::make_volume(const PodSources& sources, const Json& volume) const {
  std::string folder = path_ + kVolumes + string_or(volume, "name", "");
  if (const Json* host = find_member(volume, "hostPath")) return use_host_path(folder, *host);
  TRY_ASSIGN(VolumeFiles files, files_of(sources, volume));
  TRY(make_private_folder(folder));
  for (const VolumeFile& file : files) TRY(write_volume_file(folder, file));
  return {};
}

Status PodFolder::make_root(const ContainerPlan& container) const {
  const std::string root = root_of(container);
  TRY(make_private_folder(root));
  for (const MountPlan& mount : container.mounts) {
    std::string link = root + mount.mount_path;
    TRY(make_private_folder(link.substr(0, link.rfind('/'))));
    std::string target = path_ + kVolumes + mount.volume;
    std::error_code error;
    if (!mount.sub_path.empty()) {
      target += "/" + mount.sub_path;
      if (!fs::exists(target, error)) TRY(make_private_folder(target));
    }
    if (symlink(target.c_str(), link.c_str()) != 0 && errno != EEXIST)
      return errno_error("[link] " + link, errno);
  }
  const std::string& message = container.termination_message_path;
  return make_private_folder(root + message.substr(0, message.rfind('/')));
}

Status PodFolder::make(const PodSources& sources) const {
  TRY(make_private_folder(path_ + kVolumes));
  for (const Json& volume : sources.plan.volumes) {
    Status made = make_volume(sources, volume);
    if (made.ok()) continue;
    Error error = made.error();
    if (error.code == Code::kNotFound)
      error.message = "MountVolume.SetUp failed for volume \"" + string_or(volume, "name", "") +
                      "\" : " + error.message;
    return error;
  }
  for (const auto* list : {&sources.plan.init_containers, &sources.plan.containers}) {
    for (const ContainerPlan& container : *list) TRY(make_root(container));
  }
  return {};
}

void PodFolder::remove() const {
  std::error_code ignored;
  fs::remove_all(path_, ignored);  // does not follow links
}

}  // namespace lockstep::local
