// Attention of heads in rows by copies: heads are put apart in the workspace, and results beside each other again.
#pragma once

#include "AttentionShapes.h"
#include "pdcrt/kernels/MultiHeadAttention.h"
#include "pdcrt/kernels/StridedCopy.h"

namespace pdcrt {

/// Throws std::runtime_error where sizes are not positive or do not fit.
inline void checkSizes(const MultiHeadAttention::Options& o) {
  checkSizes(MultiHeadAttention::attentionOf(o));
  if (o.packed && o.queries != o.keys)
    refuseAttention(MultiHeadAttention::attentionOf(o), "packed rows have as many queries as keys");
}

/// What a call has of T: in rows, or each head apart.
template <class T>
struct Heads {
  T *query = nullptr, *key = nullptr, *value = nullptr, *y = nullptr;
};
/// Of rows, where one view holds all or each has its own.
template <class T>
Heads<T> headsOf(const MultiHeadAttention::Options& o, T* query, T* key, T* value, T* y) {
  if (!o.packed) return {query, key, value, y};
  const MultiHeadAttention::Rows rows(o);
  return {query, query + rows.key.begin, query + rows.value.begin, y};
}

class HeadCopies {
public:
  HeadCopies() = default;
  explicit HeadCopies(const MultiHeadAttention::Options& o)
      : options_(o), query_(copyOf(Rows(o).query)), key_(copyOf(Rows(o).key)), value_(copyOf(Rows(o).value)),
        y_(copyOf(Rows(o).y)) {}

  /// The workspace of q begins with the copies, at a multiple of 256 bytes where that matters; behind them is that of
  /// `attention`.
  template <class T>
  void forward(Stream& q, const Attention& attention, const Heads<const T>& in, View<const float> bias, T* y,
               View<float> largest, View<float> inverse) const {
    const Room<T> room(*this, q);
    copyIn(q, in, room.in);
    Stream behind = room.behind(q);
    attention.forward(behind, View<const T>(room.in.query), View<const T>(room.in.key), View<const T>(room.in.value),
                      bias, View<T>(room.in.y), largest, inverse);
    y_.reversed().run(q, room.in.y, y, sizeof(T));
  }
  /// `in.y` is the gradient of y. The results that are not null.
  template <class T>
  void inputGradient(Stream& q, const Attention& attention, const Heads<const T>& in, View<const float> bias,
                     View<const float> largest, View<const float> inverse, const Heads<T>& results) const {
    const Room<T> room(*this, q);
    copyIn(q, in, room.in);
    y_.run(q, in.y, room.in.y, sizeof(T));
    Stream behind = room.behind(q);
    const auto wanted = [](T* result, T* place) { return View<T>(result ? place : nullptr); };
    attention.inputGradient(behind, View<const T>(room.in.y), View<const T>(room.in.query), View<const T>(room.in.key),
                            View<const T>(room.in.value), bias, largest, inverse, View<const std::uint8_t>(),
                            wanted(results.query, room.results.query), wanted(results.key, room.results.key),
                            wanted(results.value, room.results.value));
    if (results.query) query_.reversed().run(q, room.results.query, results.query, sizeof(T));
    if (results.key) key_.reversed().run(q, room.results.key, results.key, sizeof(T));
    if (results.value) value_.reversed().run(q, room.results.value, results.value, sizeof(T));
  }

private:
  using Rows = MultiHeadAttention::Rows;
  using Part = MultiHeadAttention::Part;

  template <class T>
  struct Room {
    Heads<T> in, results;
    std::byte* end;

    Room(const HeadCopies& copies, Stream& q) : end(q.workspace()) {
      const Rows rows(copies.options_);
      const auto take = [&](const Part& part) {
        auto* const place = reinterpret_cast<T*>(end);
        end += MultiHeadAttention::copyBytes(copies.options_, part);
        return place;
      };
      for (Heads<T>* heads : {&in, &results})
        heads->query = take(rows.query), heads->key = take(rows.key), heads->value = take(rows.value);
      in.y = take(rows.y);
    }
    Stream behind(const Stream& q) const {
      Stream stream = q;
      return stream.work(end, q.workspaceBytes() - static_cast<std::size_t>(end - q.workspace()));
    }
  };

  /// From rows to heads apart. Parts of packed rows begin where their view does.
  StridedCopy copyOf(const Part& part) const {
    const Shape box = {options_.batch, part.heads, part.positions, part.size};
    return {box, {0, {part.positions * part.row, part.size, part.row, 1}}, rowMajor(box)};
  }
  template <class T>
  void copyIn(Stream& q, const Heads<const T>& from, const Heads<T>& to) const {
    query_.run(q, from.query, to.query, sizeof(T));
    key_.run(q, from.key, to.key, sizeof(T));
    value_.run(q, from.value, to.value, sizeof(T));
  }

  MultiHeadAttention::Options options_;
  StridedCopy query_, key_, value_, y_;
};

} // namespace pdcrt
