// Man pages in the macros of man(7); completion for bash.
#include "StandardFlags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iostream>
#include <memory>
#include <sstream>

namespace pdc {

extern const char* const commit; // cmake/WriteCommit.cmake writes it; empty outside a repository

const std::vector<std::string>& toolNames() {
  static const std::vector<std::string> names = {"pdc",     "pdc-run",  "pdc-ckpt",    "pdc-eval",
                                                 "pdc-opt", "pdc-plan", "pdc-profile", "pdc-sim"};
  return names;
}

namespace {

std::string versionOf(const CLI::App& app) {
  const std::string made = commit;
  return app.get_name() + " " PDC_VERSION " (" + (made.empty() ? "" : "commit " + made + ", ") +
         "targets cpu" PDC_TARGETS ")";
}

/// Text for troff: nothing in it is a request or an escape.
std::string troff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if (c == '\n')
      result += ' ';
    else
      result += c;
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

/// Flags and options that --help shows, with positionals or without.
std::vector<const CLI::Option*> shown(const CLI::App& app, bool positional) {
  std::vector<const CLI::Option*> result;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty() && option->nonpositional() != positional) result.push_back(option);
  return result;
}

/// What the flag takes, "FILE" or "cpu|cuda", without what CLI11 appends of its validators; empty where it takes
/// nothing.
std::string valueOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0 || option.get_type_size_max() == 0) return "";
  std::string type = option.get_type_name();
  for (const char* validator : {":{", ":POSITIVE", ":NONNEGATIVE", ":NUMBER", ":INT in ", ":UINT in ", ":FLOAT in "})
    type.resize(std::min(type.size(), type.find(validator)));
  return type;
}

/// The words that the flag takes, where they are listed: "{a,b}" of a validator, or "a|b" in the help.
std::vector<std::string> wordsOf(const CLI::Option& option) {
  std::string text = option.get_type_name();
  char separator = '|';
  if (const std::size_t open = text.find('{'); open != std::string::npos) {
    text = text.substr(open + 1, text.find('}', open) - open - 1);
    separator = ',';
  } else {
    text = valueOf(option);
  }
  std::vector<std::string> words;
  std::istringstream parts(text);
  for (std::string word; std::getline(parts, word, separator);)
    if (!word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
          return std::islower(c) || std::isdigit(c) || c == '-' || c == '_';
        }))
      words.push_back(word);
  return words;
}

/// Whether a file or a folder may stand for the words.
bool takesPath(const CLI::Option& option) {
  const std::string value = valueOf(option);
  return value.find("FILE") != std::string::npos || value.find("DIR") != std::string::npos;
}

/// Flags that are no options of CLI11 but listed below them, as pdc-opt's passes are.
std::vector<std::string> flagsOfFooter(const CLI::App& app) {
  std::vector<std::string> flags;
  std::istringstream lines(app.get_footer());
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  --")) flags.push_back(line.substr(2, line.find(' ', 2) - 2));
  return flags;
}

/// A description as a paragraph: its first line is a sentence without its full stop.
std::string paragraph(const std::string& description) {
  const std::size_t end = description.find('\n');
  return troff(end == std::string::npos ? description
                                        : description.substr(0, end) + ". " + description.substr(end + 1));
}

void writeOptions(std::ostream& out, const CLI::App& app) {
  for (const CLI::Option* option : shown(app, true))
    out << ".TP\n\\fI" << troff(option->get_name(true)) << "\\fR\n" << paragraph(option->get_description()) << "\n";
  for (const CLI::Option* option : shown(app, false)) {
    std::string names;
    for (const std::string& name : option->get_snames()) names += (names.empty() ? "\\-" : ", \\-") + troff(name);
    for (const std::string& name : option->get_lnames()) names += (names.empty() ? "\\-\\-" : ", \\-\\-") + troff(name);
    const std::string value = valueOf(*option), standard = option->get_default_str();
    out << ".TP\n\\fB" << names << "\\fR" << (value.empty() ? "" : " \\fI" + troff(value) + "\\fR") << "\n"
        << paragraph(option->get_description())
        << (standard.empty() || value.empty() ? "" : " (" + troff(standard) + ")") << "\n";
  }
}

/// --help: flags by group, a line each.
class ShortHelp : public CLI::Formatter {
public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return "";
    const std::string value = valueOf(*option), standard = option->get_default_str();
    return (value.empty() ? "" : " " + value) + (standard.empty() || value.empty() ? "" : " (" + standard + ")") +
           (option->get_required() && option->nonpositional() ? " (needed)" : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string& text = option->get_description();
    return text.substr(0, text.find('\n'));
  }
};

std::string manPage(const CLI::App& app) {
  std::ostringstream out;
  std::string upper = app.get_name();
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::string &name = app.get_name(), &description = app.get_description();
  std::string brief = description.substr(0, description.find(". "));
  brief[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(brief[0])));
  out << ".TH " << upper << " 1 \"\" \"pdc " PDC_VERSION "\" \"pdc\"\n.SH NAME\n"
      << troff(name) << " \\- " << troff(brief) << "\n.SH SYNOPSIS\n\\fB" << troff(name) << "\\fR";
  for (const CLI::App* command : app.get_subcommands({}))
    out << (command == app.get_subcommands({}).front() ? " \\fB" : "|\\fB") << troff(command->get_name()) << "\\fR";
  for (const CLI::Option* option : shown(app, true)) out << " \\fI" << troff(option->get_name(true)) << "\\fR";
  out << " [\\fIoptions\\fR]\n.SH DESCRIPTION\n" << troff(description) << ".\n.SH OPTIONS\n";
  writeOptions(out, app);
  for (const CLI::App* command : app.get_subcommands({})) {
    out << ".SS \"" << troff(name) << " " << troff(command->get_name()) << "\"\n"
        << troff(command->get_description()) << "\n";
    writeOptions(out, *command);
  }
  if (!app.get_footer().empty()) {
    out << ".SH NOTES\n.nf\n";
    std::istringstream lines(app.get_footer());
    for (std::string line; std::getline(lines, line);) out << troff(line) << "\n";
    out << ".fi\n";
  }
  out << ".SH SEE ALSO\n";
  std::string others;
  for (const std::string& tool : toolNames())
    if (tool != name) others += (others.empty() ? "\\fB" : ", \\fB") + troff(tool) + "\\fR(1)";
  out << others << "\n";
  return out.str();
}

std::string completion(const CLI::App& app) {
  std::string flags, cases, function = "_" + app.get_name();
  std::replace(function.begin(), function.end(), '-', '_');
  std::vector<const CLI::App*> apps = {&app};
  for (const CLI::App* command : app.get_subcommands({})) {
    flags += command->get_name() + " ";
    apps.push_back(command);
  }
  for (const std::string& flag : flagsOfFooter(app)) flags += flag + " ";
  for (const CLI::App* each : apps)
    for (const CLI::Option* option : shown(*each, false)) {
      std::string names;
      for (const std::string& name : option->get_lnames()) names += (names.empty() ? "--" : "|--") + name;
      for (const std::string& name : option->get_snames()) names += (names.empty() ? "-" : "|-") + name;
      std::string all = names;
      std::replace(all.begin(), all.end(), '|', ' ');
      if (flags.find(all + " ") == std::string::npos) flags += all + " ";
      std::string words;
      for (const std::string& word : wordsOf(*option)) words += (words.empty() ? "" : " ") + word;
      if (!words.empty())
        cases += "    " + names + ") COMPREPLY=($(compgen " + (takesPath(*option) ? "-f " : "") + "-W '" + words +
                 "' -- \"$word\")); return ;;\n";
      else if (valueOf(*option) == "DIR")
        cases += "    " + names + ") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n";
      else if (!valueOf(*option).empty())
        cases += "    " + names + ") return ;;\n"; // the names of files, by default
    }
  flags.erase(flags.find_last_not_of(' ') + 1);
  return "# Completion of " + app.get_name() + " for bash.\n" + function +
         "() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  # bash takes --flag=value apart\n"
         "  if [ \"$word\" = = ]; then word=; elif [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  COMPREPLY=()\n"
         "  case $before in\n" +
         cases + "  esac\n  if [[ $word == -* ]] || [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '" + flags +
         "' -- \"$word\")); fi\n}\ncomplete -o default -F " + function + " " + app.get_name() + "\n";
}

} // namespace

CLI::Validator wholeNumber(std::int64_t least) {
  const auto problem = [least](const std::string& text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = error == std::errc() && end == text.data() + text.size() && value >= least;
    return good ? std::string() : "'" + text + "' is not a whole number of at least " + std::to_string(least);
  };
  return CLI::Validator(problem, "");
}

void addStandardFlags(CLI::App& app) {
  app.formatter(std::make_shared<ShortHelp>());
  app.get_formatter()->column_width(44);
  app.set_version_flag("--version", versionOf(app));
  const auto prints = [&](const char* flag, std::string (*text)(const CLI::App&)) {
    app.add_flag_callback(flag,
                          [&app, text] {
                            std::cout << text(app);
                            throw CLI::Success();
                          })
        ->group(""); // not for people
  };
  prints("--print-man-page", manPage);
  prints("--print-completion", completion);
}

} // namespace pdc
