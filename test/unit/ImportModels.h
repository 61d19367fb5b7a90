// Importing small models in a test: what comes of it, and what is said.
#pragma once

#include "ModelMaker.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace pdc::test {

/// A folder that is removed at the end of the test.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pdc-import-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
  std::string path_;
};

/// What an import returned and said.
struct Imported {
  std::unique_ptr<Module> module;
  std::string messages; ///< of all diagnostics, as text, with the model's folder left out
  ExitCode exitCode = ExitCode::done;

  Graph& graph() { return *module->findGraph("main"); }
};

inline Imported importFile(const std::string& path, const ImportOptions& options = {}) {
  Diagnostics diags(nullptr);
  Expected<std::unique_ptr<Module>> module = importOnnx(path, options, registry(), diags);
  Imported result;
  if (module) result.module = *std::move(module);
  EXPECT_EQ(result.module == nullptr, diags.hasErrors()) << "exactly the imports that fail report an error";
  result.exitCode = diags.exitCode();
  for (const Diagnostic& diagnostic : diags.all()) result.messages += toString(diagnostic);
  std::string folder = std::filesystem::path(path).parent_path().string() + "/";
  for (std::size_t at; (at = result.messages.find(folder)) != std::string::npos;)
    result.messages.erase(at, folder.size());
  return result;
}

inline Imported importModel(const ModelMaker& maker, const ImportOptions& options = {}) {
  TemporaryFolder folder;
  maker.write(folder / "m.onnx");
  return importFile(folder / "m.onnx", options);
}

} // namespace pdc::test
