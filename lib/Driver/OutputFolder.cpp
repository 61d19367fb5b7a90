// Output files and initial weights.
#include "OutputFolder.h"

#include "pdc/Import/Adapters.h"
#include "pdc/Import/OnnxImport.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/StoredTensor.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// The elements of `stored`, row-major, with axis permutation[i] as axis i.
std::vector<std::byte> permuted(std::span<const std::byte> stored, const Shape& shape,
                                const std::vector<std::int64_t>& permutation, std::size_t elementBytes) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  std::vector<std::byte> result(stored.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t to = 0; to < result.size(); to += elementBytes) {
    std::int64_t from = 0;
    for (std::size_t d = 0; d < index.size(); ++d) from += index[d] * strides[static_cast<std::size_t>(permutation[d])];
    std::memcpy(&result[to], &stored[static_cast<std::size_t>(from) * elementBytes], elementBytes);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < shape[static_cast<std::size_t>(permutation[d])]) break;
      index[d] = 0;
    }
  }
  return result;
}

bool sameBytes(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  if (!fs::exists(b, ignored) || fs::file_size(a, ignored) != fs::file_size(b, ignored)) return false;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  return std::equal(std::istreambuf_iterator<char>(first), std::istreambuf_iterator<char>(),
                    std::istreambuf_iterator<char>(second));
}

/// The user may name any file. A model may come from anyone, and may not.
pdcrt::Status openStored(const Reference& reference, pdcrt::MappedFile& file) {
  if (reference.origin == ReferenceOrigin::namedByUser) return file.open(reference.file);
  return mapExternalData(reference.model, reference.file, file);
}

/// The values of a tensor of which the file of `reference` has the part of a member.
Expected<Tensor> composedFrom(const Reference& reference, const std::string& tensor, Diagnostics& diags) {
  pdcrt::StoredTensors files;
  const std::vector<std::string> paths = pdcrt::memberFiles(reference.file);
  if (pdcrt::Status status = files.open(paths); !status) return reportFile(status, paths, diags);
  const pdcrt::StoredTensor* const found = files.find(tensor);
  if (!found || found->shape() != reference.stored)
    return diags.error({.file = reference.file, .node = tensor}) << "has been changed while it was being read";
  std::vector<std::byte> made;
  const pdcrt::TensorRecord whole = found->whole(made);
  return Tensor({whole.element, whole.shape}, whole.values);
}

/// The values of `parameter`, which lie in the safetensors file of its reference as another type, or in parts.
Expected<Tensor> convertedFrom(const Parameter& parameter, pdcrt::SafetensorsFile& file, Diagnostics& diags) {
  const Reference& reference = parameter.reference;
  if (file.path().empty())
    if (pdcrt::Status status = file.open(reference.file); !status) return reportFile(status, reference.file, diags);
  for (const auto& [name, record] : file.tensors())
    if (static_cast<std::int64_t>(file.offsetOf(record)) == reference.offset &&
        static_cast<std::int64_t>(record.values.size()) == reference.length) {
      if (pdcrt::isPart(file, name)) return composedFrom(reference, name, diags);
      return Tensor({record.element, record.shape}, record.values).convertedTo(parameter.type.element);
    }
  return diags.error(parameter.location) << "the values of '" << parameter.name << "' have " << reference.length
                                         << " bytes, " << toString(parameter.type) << " needs "
                                         << parameter.type.bytes();
}

/// Whether `name` is "stage", a number and `suffix`: what an earlier compilation wrote for a stage.
bool isOfStage(const std::string& name, const std::string& suffix) {
  return name.size() > 5 + suffix.size() && name.starts_with("stage") && name.ends_with(suffix) &&
         name.find_first_not_of("0123456789", 5) == name.size() - suffix.size();
}

/// A folder inside the output folder that disappears again.
class Staging {
public:
  explicit Staging(const std::string& folder) : path_(folder + "/.pdc-XXXXXX") {
    made_ = mkdtemp(path_.data()) != nullptr;
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

private:
  std::string path_;
  bool made_ = false;
};

/// Reads stored values, one parameter after the other, so that no more than one is in memory as something else than a
/// mapped file.
class ValuesReader {
public:
  explicit ValuesReader(Diagnostics& diags) : diags_(diags) {}

  /// The values have the type `parameter.type`, and are valid until the next call.
  Expected<std::span<const std::byte>> valuesOf(const Parameter& parameter) {
    if (!parameter.derived) return storedOf(parameter);
    Parameter source = parameter;
    source.name = parameter.derived->of;
    source.type = parameter.derived->source;
    source.derived.reset();
    const Expected<std::span<const std::byte>> values = storedOf(source);
    if (!values) return failure;
    const std::vector<float> floats = pdcrt::elementsOf<float>(*values);
    std::int64_t badAt = 0;
    const Tensor tensor = derivedTensor(*parameter.derived, floats, badAt);
    if (tensor.type() != parameter.type)
      return diags_.error(parameter.location).help("keep it as it is: --quantize=int8,keep=REGEX")
             << "element " << badAt << " of '" << source.name
             << "' is not finite, so that it has no integers of 8 bits";
    return keep(tensor.bytes());
  }

private:
  std::span<const std::byte> keep(std::span<const std::byte> bytes) {
    owned_.assign(bytes.begin(), bytes.end());
    return owned_;
  }

  Expected<std::span<const std::byte>> storedOf(const Parameter& parameter) {
    if (parameter.given) return keep(parameter.given->bytes());
    if (parameter.drawn) return keep(drawnTensor(*parameter.drawn, parameter.name, parameter.type).bytes());
    const Reference& reference = parameter.reference;
    auto [file, isNew] = files_.try_emplace({reference.file, reference.origin});
    if (isNew)
      if (pdcrt::Status status = openStored(reference, file->second); !status)
        return reportFile(status, reference.file, diags_);
    const std::span<const std::byte> all = file->second.bytes();
    const auto offset = static_cast<std::size_t>(reference.offset), length = static_cast<std::size_t>(reference.length);
    if (offset > all.size() || length > all.size() - offset)
      return diags_.error(parameter.location)
             << "the values of '" << parameter.name << "' end at byte " << reference.offset + reference.length << " of "
             << reference.file << ", which has " << all.size();
    std::span<const std::byte> values = all.subspan(offset, length);
    if (reference.length != parameter.type.bytes()) {
      const Expected<Tensor> converted = convertedFrom(parameter, described_[reference.file], diags_);
      if (!converted) return failure;
      values = keep(converted->bytes());
    }
    if (!reference.permutation.empty())
      owned_ = permuted(values, reference.stored, reference.permutation, pdcrt::bytesOf(parameter.type.element)),
      values = owned_;
    return values;
  }

  Diagnostics& diags_;
  std::map<std::pair<std::string, ReferenceOrigin>, pdcrt::MappedFile> files_;
  std::map<std::string, pdcrt::SafetensorsFile> described_; ///< whose headers say of which type values are
  std::vector<std::byte> owned_;                            ///< drawn, computed, or views that are not a range of bytes
};

} // namespace

Status pdc::writeWeights(const std::string& path, const std::vector<const Parameter*>& parameters, Diagnostics& diags) {
  ValuesReader reader(diags);
  std::vector<pdcrt::TensorRecord> records;
  for (const Parameter* parameter : parameters)
    records.push_back({parameter->name, parameter->type.element, parameter->type.shape, {}});
  bool isReported = false;
  const auto valuesOf = [&](std::size_t i, std::span<const std::byte>& values) -> pdcrt::Status {
    const Expected<std::span<const std::byte>> read = reader.valuesOf(*parameters[i]);
    isReported = !read;
    if (isReported) return {pdcrt::Exit::badData, path};
    values = *read;
    return {};
  };
  const pdcrt::Status status = pdcrt::writeSafetensors(path, records, valuesOf);
  if (isReported) return failure;
  if (!status) return reportFile(status, path, diags);
  return success;
}

Failure pdc::reportFile(const pdcrt::Status& status, const std::vector<std::string>& paths, Diagnostics& diags) {
  const auto named = std::find_if(paths.begin(), paths.end(),
                                  [&](const std::string& path) { return status.message().starts_with(path + ": "); });
  return reportFile(status, named == paths.end() ? paths.front() : *named, diags);
}

Status pdc::checkOutputFolder(const std::string& folder, Diagnostics& diags) {
  std::error_code error;
  fs::path parent = fs::absolute(folder, error);
  while (!fs::exists(parent, error) && parent != parent.parent_path()) parent = parent.parent_path();
  if (!fs::is_directory(parent, error)) errno = ENOTDIR;
  if (fs::is_directory(parent, error) && ::access(parent.c_str(), W_OK | X_OK) == 0) return success;
  return diags.error({.file = folder}).help("choose another folder with -o")
         << "the output cannot be written: " << parent.string() << ": " << std::strerror(errno);
}

Status pdc::writeOutput(const std::string& folder, const std::vector<OutputFile>& files,
                        const std::vector<WeightsFile>& weights, Diagnostics& diags) {
  auto cannot = [&](const std::string& what) {
    return diags.error({folder, "", 0, 0}).help("choose another folder with -o")
           << "the output cannot be written: " << what;
  };
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return cannot(error.message());
  const Staging staging(folder);
  if (!staging.made()) return cannot(std::strerror(errno));
  std::set<std::string> names;
  for (const auto& [name, text] : files) {
    if (pdcrt::Status status = pdcrt::writeAtomically(staging.path() + "/" + name, text); !status)
      return cannot(status.message());
    names.insert(name);
  }
  fs::create_directory(staging.path() + "/weights", error);
  for (const auto& [name, parameters] : weights) {
    if (!writeWeights(staging.path() + "/" + name, parameters, diags)) return failure;
    names.insert(name);
  }

  fs::create_directory(folder + "/weights", error);
  for (const auto& [place, suffix] :
       {std::pair<std::string, std::string>{"", ".cpp"}, {"", ".cu"}, {"weights/", ".safetensors"}})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/" + place, error)) {
      const std::string name = entry.path().filename().string();
      if (isOfStage(name, suffix) && !names.contains(place + name)) fs::remove(entry.path(), error);
    }
  if (!names.contains(adaptersFile)) fs::remove(folder + "/" + adaptersFile, error);
  for (const std::string& name : names) {
    if (sameBytes(staging.path() + "/" + name, folder + "/" + name)) continue;
    fs::rename(staging.path() + "/" + name, folder + "/" + name, error);
    if (error) return cannot(name + ": " + error.message());
  }
  return success;
}

Failure pdc::reportFile(const pdcrt::Status& status, const std::string& path, Diagnostics& diags) {
  std::string message = status.message();
  if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
  Diagnostic diagnostic{.location = {path, "", 0, 0}, .message = message};
  if (!status.help().empty()) diagnostic.helps.push_back(status.help());
  diags.report(diagnostic);
  return failure;
}

Expected<std::string> pdc::readFile(const std::string& path, Diagnostics& diags) {
  std::string text;
  if (pdcrt::Status status = pdcrt::readText(path, text); !status) return reportFile(status, path, diags);
  return text;
}
