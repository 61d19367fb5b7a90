// Reads the options of a loss: the text form of LossOptions.
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace pdc;

namespace {

/// Reads the options of a loss; the first that is wrong is reported.
class OptionReader {
public:
  OptionReader(const std::map<std::string, std::string>& options, Diagnostics& diags)
      : options_(options), diags_(diags) {}

  Status text(const char* key, std::string& value) {
    if (const std::string* found = find(key)) value = *found;
    return success;
  }
  Status number(const char* key, double least, double most, double& value) {
    const std::string* found = find(key);
    return !found || read(*found, value, least, most) ? Status(success) : wrong(key, *found, least, most);
  }
  Status integer(const char* key, std::optional<std::int64_t>& value) {
    const std::string* found = find(key);
    if (!found) return success;
    std::int64_t number = 0;
    const char* end = found->data() + found->size();
    if (auto [at, error] = std::from_chars(found->data(), end, number); error != std::errc() || at != end)
      return diags_.error({}).exit(ExitCode::usage)
             << "--loss: " << key << " is '" << *found << "', expected an integer";
    value = number;
    return success;
  }
  Status average(LossAverage& value) {
    const std::string* found = find("average");
    if (!found) return success;
    if (*found == "automatic") return value = LossAverage::automatic, success;
    if (*found == "update") return value = LossAverage::update, success;
    if (*found == "minibatch") return value = LossAverage::minibatch, success;
    return diags_.error({}).exit(ExitCode::usage).help("write average=update or average=minibatch")
           << "--loss: average is '" << *found << "', it is update or minibatch";
  }
  Status numbers(const char* key, std::vector<double>& values) {
    const std::string* found = find(key);
    if (!found) return success;
    for (std::size_t begin = 0; begin <= found->size();) {
      const std::size_t end = std::min(found->find('/', begin), found->size());
      double number = 0;
      if (const std::string word = found->substr(begin, end - begin); !read(word, number, 0, HUGE_VAL))
        return wrong(key, word, 0, HUGE_VAL);
      values.push_back(number);
      begin = end + 1;
    }
    return success;
  }

private:
  const std::string* find(const char* key) const {
    const auto found = options_.find(key);
    return found == options_.end() || found->second.empty() ? nullptr : &found->second;
  }
  static bool read(const std::string& text, double& value, double least, double most) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && at == end && std::isfinite(value) && value >= least && value <= most;
  }
  Status wrong(const char* key, const std::string& text, double least, double most) {
    return diags_.error({}).exit(ExitCode::usage)
           << "--loss: " << key << " is '" << text << "', expected a number of at least " << least
           << (most < HUGE_VAL ? " and at most 1" : "");
  }

  const std::map<std::string, std::string>& options_;
  Diagnostics& diags_;
};

} // namespace

Expected<LossOptions> pdc::lossOptions(const std::map<std::string, std::string>& options, Diagnostics& diags) {
  LossOptions loss;
  OptionReader reader(options, diags);
  if (!reader.text("kind", loss.kind) || !reader.text("output", loss.output) || !reader.text("label", loss.label) ||
      !reader.number("weight", 0, HUGE_VAL, loss.weight) || !reader.integer("ignore_index", loss.ignoreIndex) ||
      !reader.number("label_smoothing", 0, 1, loss.labelSmoothing) ||
      !reader.numbers("class_weights", loss.classWeights) || !reader.average(loss.average))
    return failure;
  const std::vector<std::string> kinds = {"",      "softmax-cross-entropy", "nll", "mse", "bce-with-logits", "bce",
                                          "output"};
  if (std::find(kinds.begin(), kinds.end(), loss.kind) == kinds.end())
    return diags.error({})
               .exit(ExitCode::usage)
               .help("it is one of softmax-cross-entropy, nll, mse, bce-with-logits, bce, output:NAME")
           << "there is no loss '" << loss.kind << "'";
  const bool ofClasses = loss.kind == "softmax-cross-entropy" || loss.kind == "nll";
  if ((loss.ignoreIndex || !loss.classWeights.empty() || loss.labelSmoothing != 0) && !ofClasses)
    return diags.error({}).exit(ExitCode::usage)
           << "ignore_index, label_smoothing and class_weights go with softmax-cross-entropy, not with '" << loss.kind
           << "'";
  if (loss.labelSmoothing != 0 && loss.kind == "nll")
    return diags.error({}).exit(ExitCode::usage).help("softmax-cross-entropy, of logits, has it")
           << "label_smoothing goes with softmax-cross-entropy, not with 'nll'";
  if (!loss.label.empty() && loss.kind == "output")
    return diags.error({}).exit(ExitCode::usage) << "--loss=output:" << loss.output << " takes no label";
  return loss;
}
