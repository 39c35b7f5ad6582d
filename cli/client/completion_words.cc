#include <algorithm>

#include "cli/client/completion.h"

namespace lockstep::cli {
namespace {

// Returns the option that the word names ("-n", "--namespace", "--namespace=x"), or nullptr.
const CLI::Option* option_named(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->check_name(name)) return option;
  }
  return nullptr;
}

bool takes_value(const CLI::Option& option) {
  return option.get_expected_max() > 0 && option.get_items_expected_max() > 0 &&
         option.get_type_size() > 0;
}

void note_flag(ConnectionFlags& flags, const CLI::Option& option, const std::string& value) {
  if (option.check_lname("namespace")) flags.namespace_ = value;
  if (option.check_lname("context")) flags.context = value;
  if (option.check_lname("cluster")) flags.cluster = value;
  if (option.check_lname("user")) flags.user = value;
  if (option.check_lname("kubeconfig")) flags.kubeconfig = value;
}

CompletionRequest choices(std::vector<std::string> words) {
  return {.kind = CompletionKind::kChoices, .choices = std::move(words)};
}

CompletionRequest value_of(const CLI::Option& option) {
  if (option.check_lname("namespace")) return {.kind = CompletionKind::kNamespace};
  if (option.check_lname("context")) return {.kind = CompletionKind::kContext};
  if (option.check_lname("cluster")) return {.kind = CompletionKind::kCluster};
  if (option.check_lname("user")) return {.kind = CompletionKind::kUser};
  if (option.check_lname("output") && option.check_sname("o")) {
    return choices({"json", "yaml", "wide", "name"});
  }
  if (option.check_lname("output")) return {.kind = CompletionKind::kFile};
  if (option.check_lname("for")) {
    return choices({"Complete", "Failed", "Running", "Ready", "Suspended", "delete"});
  }
  if (option.check_lname("dry-run")) return choices({"none", "client", "server"});
  if (option.check_lname("cascade")) return choices({"background", "foreground", "orphan"});
  if (option.check_lname("kubeconfig") || option.check_lname("filename") ||
      option.check_lname("folder") || option.check_lname("out") || option.check_lname("svg")) {
    return {.kind = CompletionKind::kFile};
  }
  return {};
}

CompletionRequest positional(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    if (name.find("NAME") != std::string::npos) return {.kind = CompletionKind::kJob};
    if (name.find("MACHINE") != std::string::npos) return {.kind = CompletionKind::kMachine};
    if (name.find("SHELL") != std::string::npos) return choices({"bash", "zsh", "fish"});
    return {.kind = CompletionKind::kFile};
  }
  return {};
}

CompletionRequest subcommands(const CLI::App& app) {
  CompletionRequest request{.kind = CompletionKind::kChoices};
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    request.choices.push_back(sub->get_name());
  }
  return request;
}

CompletionRequest flags_of(const CLI::App& app) {
  CompletionRequest request{.kind = CompletionKind::kChoices};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) request.choices.push_back("--" + name);
  }
  return request;
}

}  // namespace

CompletionRequest completion_request(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  ConnectionFlags flags;
  const CLI::Option* open = nullptr;  // an option whose value comes next
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (open != nullptr) {
      note_flag(flags, *std::exchange(open, nullptr), word);
      continue;
    }
    if (word.starts_with("-")) {
      const CLI::Option* option = option_named(*at, word);
      if (option == nullptr || !takes_value(*option)) continue;
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        open = option;
      } else {
        note_flag(flags, *option, word.substr(equals + 1));
      }
      continue;
    }
    const auto all = at->get_subcommands([](const CLI::App*) { return true; });
    const auto sub = std::find_if(all.begin(), all.end(),
                                  [&](const CLI::App* one) { return one->get_name() == word; });
    if (sub != all.end()) at = *sub;
  }
  const std::string current = words.empty() ? "" : words.back();
  CompletionRequest request;
  if (open != nullptr) {
    request = value_of(*open);
  } else if (current.starts_with("-") && current.find('=') != std::string::npos) {
    const CLI::Option* option = option_named(*at, current);
    if (option != nullptr) request = value_of(*option);
  } else if (current.starts_with("-")) {
    request = flags_of(*at);
  } else if (!at->get_subcommands([](const CLI::App*) { return true; }).empty()) {
    request = subcommands(*at);
  } else {
    request = positional(*at);
  }
  request.flags = flags;
  return request;
}

}  // namespace lockstep::cli
