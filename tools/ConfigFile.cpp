// CLI11 reads the file; what it says becomes words of the command line, so that one parser checks all of them.
#include "ConfigFile.h"

#include "StandardFlags.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <iostream>
#include <string_view>

using namespace pdc;

namespace {

constexpr const char* flag = "--config";

bool isNamed(const std::string& word, const std::string& name) {
  return word == name || word.starts_with(name + "=");
}

/// Whether one of `words` gives `option`, by any of its names.
bool isGiven(const CLI::Option& option, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    for (const std::string& name : option.get_lnames())
      if (isNamed(word, "--" + name)) return true;
    return std::any_of(option.get_snames().begin(), option.get_snames().end(), [&](const std::string& name) {
      return !word.starts_with("--") && word.starts_with("-" + name);
    });
  });
}

[[noreturn]] void refuse(const std::string& text) {
  throw CLI::ConfigError(text, CLI::ExitCodes::ConfigError);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The flag that `word` looks like a misspelling of; empty if it is one, or like none.
std::string meantBy(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (!name.starts_with("--") || app.get_option_no_throw(name)) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  return nearestName(name, {names.begin(), names.end()});
}

/// The words that an entry of the file stands for.
void append(const CLI::Option& option, const CLI::ConfigItem& item, std::vector<std::string>& words) {
  const std::string name = "--" + item.name;
  if (option.get_expected_max() == 0) { // a flag without a value
    if (item.inputs.size() != 1 || (item.inputs[0] != "true" && item.inputs[0] != "false"))
      refuse("'" + item.name + "' is a switch: write " + item.name + " = true");
    if (item.inputs[0] == "true") words.push_back(name);
    return;
  }
  for (const std::string& value : item.inputs) words.push_back(name + "=" + value);
}

std::vector<std::string> wordsOfFile(const CLI::App& app, const std::string& file,
                                     const std::vector<std::string>& given) {
  std::vector<std::string> words;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(file)) {
    if (item.name == "++" || item.name == "--") continue; // begin and end of a section
    if (item.parents.empty())
      refuse(file + ": '" + item.name + "' is in no section; write [" + app.get_name() + "] above it");
    const std::string& section = item.parents.front();
    if (std::find(toolNames().begin(), toolNames().end(), section) == toolNames().end())
      refuse(file + ": [" + section + "] is none of the sections " + joined(toolNames()));
    if (section != app.get_name()) continue;
    const CLI::Option* option = app.get_option_no_throw("--" + item.name);
    if (!option || isNamed("--" + item.name, flag))
      refuse(file + ": '" + item.name + "' in [" + section + "] is not a flag of " + section + ", see " + section +
             " --help");
    if (!isGiven(*option, given)) append(*option, item, words);
  }
  return words;
}

} // namespace

void pdc::addConfigFlag(CLI::App& app) {
  const auto isRead = [](const CLI::results_t&) { return true; }; // by wordsOf()
  app.add_option(flag, isRead,
                 "flags from section [" + app.get_name() +
                     "] of a TOML file\n"
                     "A key is the name of a flag without its dashes: batch = 32. A list gives the flag several "
                     "times. Flags of the command line win.")
      ->type_name("FILE")
      ->group("Options");
}

std::vector<std::string> pdc::wordsOf(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> given;
  std::string file;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!isNamed(word, flag))
      given.push_back(word);
    else if (word != flag)
      file = word.substr(std::string(flag).size() + 1);
    else if (i + 1 < argc)
      file = argv[++i];
    else
      throw CLI::ArgumentMismatch::TypedAtLeast(flag, 1, "FILE");
  }
  if (file.empty()) return given;
  std::vector<std::string> words = wordsOfFile(app, file, given);
  words.insert(words.begin(), given.begin(), given.end());
  return words;
}

std::optional<int> pdc::parsed(CLI::App& app, int argc, char** argv, std::vector<std::string>* result) {
  std::vector<std::string> words;
  try {
    words = wordsOf(app, argc, argv);
    if (result) *result = words;
    std::vector<std::string> reversed(words.rbegin(), words.rend()); // as CLI11 takes them
    app.parse(reversed);
    return std::nullopt;
  } catch (const CLI::ExtrasError& error) {
    app.exit(error);
    for (const std::string& word : words)
      if (const std::string meant = meantBy(app, word); !meant.empty())
        std::cerr << "help: did you mean " << meant << " instead of " << word.substr(0, word.find('=')) << "?\n";
    return static_cast<int>(ExitCode::usage);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
}
