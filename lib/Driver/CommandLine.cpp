// What the command lines of all tools share.
#include "pdc/Driver/CommandLine.h"

using namespace pdc;

int pdc::exitCodeOf(const Diagnostics& diags) {
  return static_cast<int>(diags.exitCode());
}

std::string pdc::shellWord(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                             "0123456789-_=+:,./@%") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}
