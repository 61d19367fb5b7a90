// Creates operations with inferred types at a place in a graph.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

class Builder {
public:
  /// Appends to `graph`. With `fold`, an operation all of whose operands are constants becomes a constant at once when
  /// its result has at most 64 KiB (shape arithmetic of importers).
  Builder(Module& module, Graph& graph, const OpRegistry& registry, Diagnostics& diags, bool fold = false);

  void setLocation(Location location) { location_ = std::move(location); }
  const Location& location() const { return location_; }
  /// New operations go before `before`; null: at the end.
  void setInsertionPoint(const Operation* before) { before_ = before; }
  /// Annotations of new operations.
  void setPhase(Phase phase, Operation* origin) { phase_ = phase, origin_ = origin; }
  void setGroup(int group) { group_ = group; }

  /// Operation `name` with its defaults filled in and its result types inferred; null, with an error reported, when the
  /// op refuses them. `wantedResults` (default: all) leaves optional results absent.
  Operation* create(const std::string& name, std::vector<Value*> operands, Attributes attributes = {},
                    const std::vector<bool>& wantedResults = {}, const std::vector<std::string>& names = {});
  /// Result 0 of `create`; null when it failed.
  Value* value(const std::string& name, std::vector<Value*> operands, Attributes attributes = {});

  Value* constant(const Tensor& tensor);
  Value* constant(double scalar, ElementType element = ElementType::f32);
  /// The tensor that `value` always is, or nothing. (A frozen parameter is not a constant.)
  static std::optional<Tensor> constantValue(const Value* value);
  /// The same, computed where `value` follows from constants and was too large to fold.
  std::optional<Tensor> evaluated(const Value* value);

  Module& module() { return module_; }
  Graph& graph() { return graph_; }
  const OpRegistry& registry() const { return registry_; }
  Diagnostics& diags() { return diags_; }

private:
  Module& module_;
  Graph& graph_;
  const OpRegistry& registry_;
  Diagnostics& diags_;
  bool fold_;
  const Operation* before_ = nullptr;
  Location location_;
  Phase phase_ = Phase::forward;
  Operation* origin_ = nullptr;
  int group_ = -1;
};

} // namespace pdc
