#include "cli/client/completion.h"

namespace lockstep::cli {
namespace {

// Each script asks the program, which prints one word per line, or ":file" if the shell must
// complete a file name.
constexpr char kBash[] = R"(_lockstep_complete() {
    local words word
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r word; do
        if [ "$word" = ":file" ]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done \
                < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
        else
            COMPREPLY+=("$word")
        fi
    done < <("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2>/dev/null)
}
complete -F _lockstep_complete lockstep
complete -F _lockstep_complete kubectl-lockstep
)";

constexpr char kZsh[] = R"(#compdef lockstep kubectl-lockstep
_lockstep() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${found[1]}" == ":file" ]]; then
        _files
    else
        found=(${found:#})
        compadd -a found
    fi
}
compdef _lockstep lockstep kubectl-lockstep
)";

constexpr char kFish[] = R"(function __lockstep_complete
    set -l words (commandline -opc) (commandline -ct)
    for word in ($words[1] __complete -- $words[2..-1] 2>/dev/null)
        if test "$word" = ":file"
            __fish_complete_path (commandline -ct)
        else
            echo $word
        end
    end
end
complete -c lockstep -f -a '(__lockstep_complete)'
complete -c kubectl-lockstep -f -a '(__lockstep_complete)'
)";

template <class T>
std::vector<std::string> keys(const std::map<std::string, T>& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& [name, entry] : entries) names.push_back(name);
  return names;
}

// Returns the names that a server has; empty if it does not answer quickly.
std::vector<std::string> names_on_server(const ClientContext& context,
                                         const CompletionRequest& request) {
  ConnectionFlags flags = request.flags;
  flags.request_timeout = "3s";
  const auto connection = Connection::open(context.environment, flags, context.clock);
  if (!connection.ok()) return {};
  const std::string path = request.kind == CompletionKind::kNamespace ? core_path("", "namespaces")
                           : request.kind == CompletionKind::kMachine
                               ? core_path("", "nodes")
                               : jobs_path((*connection)->namespace_());
  const Result<Json> list = (*connection)->call({.path = path, .query = {{"limit", "500"}}});
  const Json* items = list.ok() ? find_member(*list, "items") : nullptr;
  std::vector<std::string> names;
  if (items == nullptr || !items->is_array()) return names;
  for (const Json& item : *items) names.push_back(meta_text(item, "name"));
  return names;
}

std::vector<std::string> names_for(const ClientContext& context, const CompletionRequest& request) {
  switch (request.kind) {
    case CompletionKind::kNothing:
      return {};
    case CompletionKind::kFile:
      return {":file"};
    case CompletionKind::kChoices:
      return request.choices;
    case CompletionKind::kJob:
    case CompletionKind::kMachine:
    case CompletionKind::kNamespace:
      return names_on_server(context, request);
    case CompletionKind::kContext:
    case CompletionKind::kCluster:
    case CompletionKind::kUser:
      break;
  }
  const Result<kube::Kubeconfig> config = client_kubeconfig(context.environment, request.flags);
  if (!config.ok()) return {};
  if (request.kind == CompletionKind::kContext) return keys(config->contexts);
  return request.kind == CompletionKind::kCluster ? keys(config->clusters) : keys(config->users);
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return "";
}

void add_completion(CLI::App& app, ClientContext) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer("Example: source <(lockstep completion bash)");
  command->callback([shell] { print(completion_script(*shell)); });
}

void complete_words(const CLI::App& app, ClientContext context,
                    const std::vector<std::string>& words) {
  const CompletionRequest request = completion_request(app, words);
  std::string current = words.empty() ? "" : words.back();
  // "--context=a": the shell expects whole words.
  const size_t equals = current.starts_with("-") ? current.find('=') : std::string::npos;
  const std::string before = equals == std::string::npos ? "" : current.substr(0, equals + 1);
  if (equals != std::string::npos) current.erase(0, equals + 1);
  std::string out;
  for (const std::string& name : names_for(context, request)) {
    if (request.kind == CompletionKind::kFile) {
      out += name + "\n";
    } else if (name.starts_with(current)) {
      out += before + name + "\n";
    }
  }
  print(out);
}

}  // namespace lockstep::cli
