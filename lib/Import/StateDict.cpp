// Initializers by the names of the module; what was trained, and what the file has besides.
#include "pdc/Import/StateDict.h"

#include "EqualInitializers.h"
#include "Initializers.h"
#include "TensorReader.h"
#include "Weights/Int8Records.h"
#include "Weights/ModuleNames.h"
#include "Weights/OwnInitializers.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>

using namespace pdc;

namespace {

using Bytes = std::span<const std::byte>;

class StateDict {
public:
  StateDict(const OnnxFile& file, const std::map<std::string, pdcrt::TensorRecord>& trained, Diagnostics& diags)
      : file_(file), trained_(trained), diags_(diags), reader_(file, diags, /*elementsMayLack=*/true), names_(file) {
    Diagnostics silent(nullptr);
    if (Expected<std::vector<Initializer>> list = readInitializers(file, {}, reader_, silent))
      roles_ = *std::move(list);
  }

  Status run(const std::string& out) {
    if (!takeAll()) return failure;
    tell();
    if (out.empty()) return success;
    std::vector<pdcrt::TensorRecord> records;
    for (const auto& [name, record] : records_) records.push_back(record);
    if (pdcrt::Status status = pdcrt::writeSafetensors(out, records, {{"format", "pt"}}); !status)
      return diags_.error({}) << status.message();
    return success;
  }

  /// What `trained` is in the module, with values of its own.
  Status collect(std::deque<std::vector<std::byte>>& made, std::map<std::string, pdcrt::TensorRecord>& tensors) {
    if (!takeAll()) return failure;
    for (const auto& [name, record] : records_) {
      if (!trained_.contains(owners_.at(name))) continue;
      tensors[name] = record;
      tensors[name].values = made.emplace_back(record.values.begin(), record.values.end());
    }
    return success;
  }

private:
  Status takeAll() {
    for (int i = 0; i < file_.graph().initializer_size(); ++i)
      if (!take(i)) return failure;
    for (const auto& [name, record] : trained_)
      if (!taken_.contains(name))
        return diags_.error({.file = file_.path(), .node = name}) << "was trained, but is no initializer of the model";
    return problems_.empty() ? success : refuse();
  }

  Status take(int i) {
    const onnx::TensorProto& proto = file_.graph().initializer(i);
    const std::string& name = proto.name();
    const ModuleForm form = names_.formOf(i);
    pdcrt::TensorRecord record;
    bool transpose = false;
    std::string original = name;
    if (const auto trained = trained_.find(name); trained != trained_.end()) {
      record = trained->second;
      taken_.insert(name);
      if (!form.problem.empty() && isWeight(i)) problems_.push_back("'" + name + "' " + form.problem);
      if (const std::vector<std::int64_t> shape(proto.dims().begin(), proto.dims().end()); record.shape != shape)
        return diags_.error({.file = file_.path(), .node = name})
               << "is " << toString(Type{record.element, shape}) << " in the model, but was trained as "
               << toString(Type{record.element, record.shape});
    } else if (form.tensors.empty()) {
      return success;
    } else if (const auto copy = copiedMatrix(file_, reader_, i, [&](const auto& o) { return trained_.contains(o); })) {
      record = trained_.at(copy->original);
      transpose = copy->transposed;
      original = copy->original;
    } else if (names_.program().isInStateDict(name)) {
      Expected<StoredTensor> stored = reader_.initializer(i);
      if (!stored) return failure;
      if (stored->lacksElements()) return success;
      Expected<Tensor> tensor = reader_.load(*stored, {.file = file_.path(), .node = name});
      if (!tensor) return failure;
      record = {name, stored->type.element, stored->type.shape, keep(tensor->bytes())};
    } else {
      return success;
    }
    for (const ModuleTensor& tensor : form.tensors)
      if (!put(tensor, record, transpose, original)) return failure;
    return success;
  }

  /// Whether initializer i learns where no flag says otherwise: masks and large constants are parameters of the
  /// program, too, which do not, and the module has none.
  bool isWeight(int i) const {
    const auto at = static_cast<std::size_t>(i);
    return at >= roles_.size() || roles_[at].role == InitializerRole::trained ||
           roles_[at].role == InitializerRole::tied;
  }

  Status put(const ModuleTensor& tensor, const pdcrt::TensorRecord& record, bool transpose,
             const std::string& original) {
    const auto [owner, isNew] = owners_.emplace(tensor.name, original);
    if (!isNew) {
      if (owner->second == original || !trained_.contains(original)) return success;
      if (trained_.contains(owner->second))
        return diags_.error({.file = file_.path(), .node = tensor.name}).help("train them as one: leave out --tie=off")
               << "is one parameter of the module, and was trained apart as '" << owner->second << "' and '" << original
               << "'";
      owner->second = original;
    }
    if (!tensor.isAsStored() || tensor.name != original) changed_[tensor.name] = original;
    Bytes values = record.values;
    const std::size_t size = pdcrt::bytesOf(record.element);
    if (!tensor.pieces.empty()) {
      std::vector<std::byte> joined;
      const std::size_t length = static_cast<std::size_t>(tensor.pieceElements) * size;
      for (std::int64_t piece : tensor.pieces) {
        const Bytes part = values.subspan(static_cast<std::size_t>(piece) * length, length);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      values = keep(std::move(joined));
    } else if (tensor.transposed != transpose) {
      values = keep(transposed(values, record.shape[0], record.shape[1], size));
    }
    records_[tensor.name] = {tensor.name, record.element, tensor.shape, values};
    return success;
  }

  Bytes keep(std::vector<std::byte> values) { return kept_.emplace_back(std::move(values)); }
  Bytes keep(Bytes values) { return keep(std::vector<std::byte>(values.begin(), values.end())); }

  Status refuse() {
    Diagnostic diagnostic{.severity = Severity::error, .location = {.file = file_.path()}};
    diagnostic.message = counted(problems_.size(), "trained tensor") +
                         (problems_.size() == 1 ? " is none" : " are none") +
                         " of the module's state_dict: " + problems_.front();
    for (std::size_t i = 1; i < std::min<std::size_t>(problems_.size(), 5); ++i)
      diagnostic.notes.push_back(problems_[i]);
    if (problems_.size() > 5) diagnostic.notes.push_back("and " + std::to_string(problems_.size() - 5) + " more");
    diagnostic.helps = {names_.remedy()};
    diagnostic.exitCode = ExitCode::unsupported;
    diags_.report(std::move(diagnostic));
    return failure;
  }

  void tell() {
    if (!changed_.empty()) {
      const auto& [name, initializer] = *changed_.begin();
      diags_.remark({.file = file_.path()})
          << counted(changed_.size(), "tensor") << " of the state_dict " << (changed_.size() == 1 ? "has" : "have")
          << " another name or layout in the model: '" << name << "' comes from '" << initializer << "'"
          << (changed_.size() > 1 ? ", …" : "");
    }
    // load_state_dict fills in the number of batches of a BatchNorm.
    std::vector<std::string> lacking;
    for (const std::string& name : names_.program().names())
      if (names_.program().isInStateDict(name) && !records_.contains(name) && !name.ends_with("num_batches_tracked"))
        lacking.push_back(name);
    if (lacking.empty()) return;
    Diagnostic diagnostic{.severity = Severity::warning, .location = {.file = file_.path()}};
    diagnostic.message = "the model lacks " + counted(lacking.size(), "tensor") + " of the module's state_dict, '" +
                         lacking.front() + "'" + (lacking.size() > 1 ? " first" : "");
    diagnostic.helps = {std::string(names_.remedy()),
                        "load_state_dict(…, strict=False) keeps what the module has for " +
                            std::string(lacking.size() == 1 ? "it" : "them")};
    diags_.report(std::move(diagnostic));
  }

  const OnnxFile& file_;
  const std::map<std::string, pdcrt::TensorRecord>& trained_;
  Diagnostics& diags_;
  TensorReader reader_;
  const ModuleNames names_;
  std::deque<std::vector<std::byte>> kept_;
  std::map<std::string, pdcrt::TensorRecord> records_; ///< of the state_dict
  std::map<std::string, std::string> owners_;          ///< the initializers that they come from
  std::map<std::string, std::string> changed_;         ///< those with another name or layout, likewise
  std::vector<Initializer> roles_;                     ///< of the initializers, without flags
  std::set<std::string> taken_;
  std::vector<std::string> problems_;
};

} // namespace

Status pdc::writeStateDict(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& stored,
                           const std::string& out, Diagnostics& diags) {
  const Int8Records records(stored);
  const std::map<std::string, pdcrt::TensorRecord>& trained = records.whole();
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model, [&](const std::string& name) { return trained.contains(name); }, diags);
  if (!file) return failure;
  return StateDict(*file, trained, diags).run(out);
}

Status pdc::stateTensors(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& trained,
                         std::deque<std::vector<std::byte>>& made, std::map<std::string, pdcrt::TensorRecord>& tensors,
                         Diagnostics& diags) {
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model, [&](const std::string& name) { return trained.contains(name); }, diags);
  if (!file) return failure;
  return StateDict(*file, trained, diags).collect(made, tensors);
}

std::map<std::string, StateName> pdc::otherStateNames(const std::string& model,
                                                      const std::vector<std::string>& parameters) {
  Diagnostics silent(nullptr);
  const std::set<std::string> wanted(parameters.begin(), parameters.end());
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model, [&](const std::string& name) { return wanted.contains(name); }, silent);
  std::map<std::string, StateName> others;
  if (!file) return others;
  const ModuleNames names(*file);
  for (int i = 0; i < file->graph().initializer_size(); ++i) {
    const std::string& parameter = file->graph().initializer(i).name();
    if (!wanted.contains(parameter)) continue;
    for (const ModuleTensor& tensor : names.formOf(i).tensors)
      if (tensor.name != parameter || !tensor.isAsStored())
        others[tensor.name] = {parameter, tensor.transposed, !tensor.pieces.empty()};
  }
  return others;
}
