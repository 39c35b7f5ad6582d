#include <algorithm>

#include "cli/client/completion.h"

namespace lockstep {
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

WordQuestion choices(std::vector<std::string> words) {
  return {.kind = WordKind::kChoices, .choices = std::move(words)};
}

WordQuestion value_of(const CLI::Option& option) {
  if (option.check_lname("namespace")) return {.kind = WordKind::kNamespace};
  if (option.check_lname("context")) return {.kind = WordKind::kContext};
  if (option.check_lname("cluster")) return {.kind = WordKind::kCluster};
  if (option.check_lname("user")) return {.kind = WordKind::kUser};
  if (option.check_lname("output") && option.check_sname("o")) {
    return choices({"json", "yaml", "wide", "name"});
  }
  if (option.check_lname("output")) return {.kind = WordKind::kFile};
  if (option.check_lname("for")) {
    return choices({"Complete", "Failed", "Running", "Ready", "Suspended", "delete"});
  }
  if (option.check_lname("dry-run")) return choices({"none", "client", "server"});
  if (option.check_lname("cascade")) return choices({"background", "foreground", "orphan"});
  if (option.check_lname("kubeconfig") || option.check_lname("filename") ||
      option.check_lname("folder")) {
    return {.kind = WordKind::kFile};
  }
  return {};
}

WordQuestion positional(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    if (name.find("NAME") != std::string::npos) return {.kind = WordKind::kJob};
    if (name.find("MACHINE") != std::string::npos) return {.kind = WordKind::kMachine};
    if (name.find("SHELL") != std::string::npos) return choices({"bash", "zsh", "fish"});
    return {.kind = WordKind::kFile};
  }
  return {};
}

WordQuestion subcommands(const CLI::App& app) {
  WordQuestion question{.kind = WordKind::kChoices};
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    question.choices.push_back(sub->get_name());
  }
  return question;
}

WordQuestion flags_of(const CLI::App& app) {
  WordQuestion question{.kind = WordKind::kChoices};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) question.choices.push_back("--" + name);
  }
  return question;
}

}  // namespace

WordQuestion question_at(const CLI::App& app, const std::vector<std::string>& words) {
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
  WordQuestion question;
  if (open != nullptr) {
    question = value_of(*open);
  } else if (current.starts_with("-") && current.find('=') != std::string::npos) {
    const CLI::Option* option = option_named(*at, current);
    if (option != nullptr) question = value_of(*option);
  } else if (current.starts_with("-")) {
    question = flags_of(*at);
  } else if (!at->get_subcommands([](const CLI::App*) { return true; }).empty()) {
    question = subcommands(*at);
  } else {
    question = positional(*at);
  }
  question.flags = flags;
  return question;
}

}  // namespace lockstep
