// Named attributes of operations.
#pragma once

#include "pdc/IR/Tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace pdc {

/// Text forms: 3 · 0.5 · true · "text" · [1, 2] · [0.5, 1.0] · ["a", "b"] · dense<f32[2], [1.0, 2.0]>.
/// An empty list is a list of integers.
using Attribute = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>, Tensor>;

class Attributes {
public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> list) : map_(list) {}

  bool has(const std::string& name) const { return map_.contains(name); }
  const Attribute* find(const std::string& name) const {
    auto it = map_.find(name);
    return it == map_.end() ? nullptr : &it->second;
  }
  /// The attribute `name`, which must be there and hold a T (the verifier has seen to that).
  template <class T>
  const T& get(const std::string& name) const {
    return std::get<T>(map_.at(name));
  }
  template <class T>
  T getOr(const std::string& name, T fallback) const {
    const Attribute* found = find(name);
    return found && std::holds_alternative<T>(*found) ? std::get<T>(*found) : fallback;
  }
  std::int64_t getInt(const std::string& name) const { return get<std::int64_t>(name); }
  double getFloat(const std::string& name) const { return get<double>(name); }
  const std::vector<std::int64_t>& getInts(const std::string& name) const {
    return get<std::vector<std::int64_t>>(name);
  }
  void set(std::string name, Attribute value) { map_.insert_or_assign(std::move(name), std::move(value)); }
  void erase(const std::string& name) { map_.erase(name); }

  /// In alphabetical order, so that text is the same on every run.
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  bool empty() const { return map_.empty(); }
  friend bool operator==(const Attributes&, const Attributes&) = default;

private:
  std::map<std::string, Attribute> map_;
};

} // namespace pdc
