// Folders by what lies in them, files by how they begin.
#include "WeightFiles.h"

#include "OutputFolder.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

constexpr const char *indexSuffix = ".safetensors.index.json", *suffix = ".safetensors";

/// What to type to make a safetensors file of what torch.save has written.
std::string conversionOf(const std::string& path) {
  const std::string out = fs::path(path).replace_extension(suffix).string();
  return "python3 -c \"import torch, safetensors.torch as s; d = torch.load('" + path +
         "', map_location='cpu'); d = d.get('state_dict', d); s.save_file({k: v.clone().contiguous() for k, v in "
         "d.items() if torch.is_tensor(v)}, '" +
         out + "')\"";
}

bool isOfPyTorch(const std::string& name) {
  for (const char* end : {".bin", ".pt", ".pth", ".ckpt"})
    if (name.ends_with(end)) return true;
  return false;
}

/// Names in `folder`, in order.
std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Expected<std::vector<std::string>> filesOfIndex(const std::string& path, Diagnostics& diags) {
  const Expected<std::string> text = readFile(path, diags);
  if (!text) return failure;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    return diags.error({.file = path}) << "is no index of safetensors files: it has no 'weight_map'";
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || file.get_ref<const std::string&>().find('/') != std::string::npos ||
        file.get_ref<const std::string&>().empty())
      return diags.error({.file = path, .node = tensor}) << "is in " << file.dump() << ", which is no file beside it";
    names.insert(file.get<std::string>());
  }
  std::vector<std::string> files;
  std::error_code ignored;
  for (const std::string& name : names) {
    files.push_back(folder + name);
    if (!fs::exists(folder + name, ignored))
      return diags.error({.file = path}).help("put it there: load the checkpoint again")
             << "names " << names.size() << " files, and '" << name << "' is not beside it";
  }
  return files;
}

/// models--OWNER--NAME of Hugging Face's cache: the snapshot that refs/main names, or the only one.
std::string snapshotOf(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder + "/snapshots", ignored)) return "";
  std::string main;
  if (pdcrt::readText(folder + "/refs/main", main)) {
    main.erase(main.find_last_not_of(" \n") + 1);
    if (main.find('/') == std::string::npos && fs::is_directory(folder + "/snapshots/" + main, ignored))
      return folder + "/snapshots/" + main;
  }
  const std::vector<std::string> names = namesIn(folder + "/snapshots");
  return names.size() == 1 ? folder + "/snapshots/" + names[0] : "";
}

Expected<std::vector<std::string>> filesOfFolder(const std::string& folder, Diagnostics& diags) {
  if (const std::string snapshot = snapshotOf(folder); !snapshot.empty()) return filesOfFolder(snapshot, diags);
  std::vector<std::string> indices, files, others;
  for (const std::string& name : namesIn(folder)) {
    if (name.ends_with(indexSuffix)) indices.push_back(name);
    if (name.ends_with(suffix)) files.push_back(folder + "/" + name);
    if (isOfPyTorch(name)) others.push_back(folder + "/" + name);
  }
  if (indices.size() == 1) return filesOfIndex(folder + "/" + indices[0], diags);
  const std::string usual = folder + "/model.safetensors";
  if (std::find(files.begin(), files.end(), usual) != files.end()) return std::vector<std::string>{usual};
  if (!files.empty()) return files;
  if (!others.empty())
    return diags.error({.file = folder}).help(conversionOf(others[0]))
           << "holds no safetensors file; " << others[0] << " is PyTorch's own";
  return diags.error({.file = folder}).help("name a safetensors file, or the folder in which it is")
         << "holds no safetensors file";
}

/// What a file is that is no safetensors file, and what to type then; empty: it is not known.
std::pair<std::string, std::string> kindOf(const std::string& path, std::string_view begin) {
  if (begin.starts_with("PK\x03\x04") || begin.starts_with("\x80\x02") || begin.starts_with("\x80\x04"))
    return {"is a checkpoint of PyTorch (or another archive of Python), not a safetensors file", conversionOf(path)};
  if (begin.starts_with("version https://git-lfs"))
    return {"is a pointer of Git LFS, not the file itself", "git lfs pull, in its repository"};
  if (begin.starts_with("GGUF")) return {"is a GGUF file, not a safetensors file", "give the original checkpoint"};
  if (begin.starts_with("\x89HDF"))
    return {"is an HDF5 file (Keras), not a safetensors file", "export the weights as safetensors"};
  return {};
}

} // namespace

Expected<std::vector<std::string>> pdc::weightFiles(const std::string& path, Diagnostics& diags) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return filesOfFolder(path, diags);
  if (path.ends_with(".json")) return filesOfIndex(path, diags);
  return std::vector<std::string>{path};
}

Status pdc::openWeights(const std::string& path, pdcrt::SafetensorsFile& file, Diagnostics& diags) {
  const pdcrt::Status status = file.open(path);
  if (status) return success;
  std::error_code ignored;
  if (fs::is_symlink(path, ignored) && !fs::exists(path, ignored))
    return diags.error({.file = path}).help("load the checkpoint again")
           << "is a link to " << fs::read_symlink(path, ignored).string() << ", which is not there";
  pdcrt::MappedFile raw;
  if (!raw.open(path)) return reportFile(status, path, diags);
  const std::string_view begin(reinterpret_cast<const char*>(raw.bytes().data()),
                               std::min<std::size_t>(raw.bytes().size(), 64));
  const auto [kind, help] = kindOf(path, begin);
  if (kind.empty()) return reportFile(status, path, diags);
  return diags.error({.file = path}).help(help) << kind;
}
