// --config=FILE: flags of a run in a TOML file, a section for each tool.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// Adds --config to the app of a tool.
void addConfigFlag(CLI::App& app);

/// The words of a command line, without the name of the tool, and with the flags of the tool's section of --config=FILE
/// in its place: "batch = 32" is --batch=32, "straight = true" is --straight, a list is a flag for each entry. Flags
/// that the command line has are left out. Throws CLI::ParseError where the file cannot be read, has keys outside of a
/// section, or sections and keys that are none of a tool's.
std::vector<std::string> wordsOf(const CLI::App& app, int argc, char** argv);

/// Parses wordsOf(), which it also writes to `words`. The result, if there is one, is what the tool exits with: after
/// --help, or after an error, which is printed.
std::optional<int> parsed(CLI::App& app, int argc, char** argv, std::vector<std::string>* words = nullptr);

} // namespace pdc
