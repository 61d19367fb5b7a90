// Tensors as files hold them: whole, or in parts. A run whose stages have teams writes what a member alone has into a
// file of the member, `stage0.member1.safetensors` beside `stage0.safetensors`. Whoever reads puts a tensor, or the
// part of it that is wanted, together from all of them, so it does not matter over how many members it was divided.
//
// A file says how a record is a part in its __metadata__ under "part/NAME":
//
//     axis 1 blocks 3 of 2 member 1 shape 768 2304
//
// `shape` is that of the whole tensor; the record has the local shape (Part.h). Nothing of a file is trusted.
#pragma once

#include "pdcrt/Part.h"
#include "pdcrt/Safetensors.h"

#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pdcrt {

/// "part/NAME" and its text, for a file's metadata.
std::pair<std::string, std::string> partMetadata(const std::string& name, const MemberPart& part, const Shape& whole);
/// Reads such a text. False: it is not one that partMetadata writes, or the part is none of the shape.
bool parsePart(const std::string& text, MemberPart& part, Shape& whole);

/// Elements [begin, begin + count) of a tensor, row-major.
struct ElementRange {
  std::int64_t begin = 0, count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};
/// "ranges/NAME" and its text, for a file that has these elements of a tensor, one range after the other, in a record
/// with one dimension: what one replica has where replicas divide the tensor. Ranges ascend. Where the file says that
/// a member has a part of the tensor, too, they are of that part, and `whole` is its local shape.
std::pair<std::string, std::string> rangesMetadata(const std::string& name, std::span<const ElementRange> ranges,
                                                   const Shape& whole);
/// Reads such a text. False: it is not one that rangesMetadata writes, or the ranges are none of the shape.
bool parseRanges(const std::string& text, std::vector<ElementRange>& ranges, Shape& whole);

/// Whether the file has a part of the tensor only: a member's, or some ranges.
bool isPart(const SafetensorsFile& file, const std::string& name);
/// Whether it has some ranges.
bool hasRanges(const SafetensorsFile& file, const std::string& name);

/// The suffix of the names of a member's files: ".member1"; member 0, which also writes what is whole, has none.
std::string memberSuffix(int member);
/// The files of all members, from member 0 on as many as there are, of which one may be `path`.
std::vector<std::string> memberFiles(const std::string& path);

/// What is wanted of a tensor: what one member has of it, or all of it.
struct WantedTensor {
  Element element = Element::f32;
  Shape shape; ///< local
  MemberPart part = {};
};

/// One tensor. The files that are added must stay open.
class StoredTensor {
public:
  /// Adds a record of `file`. Of several whole records the first is taken. Fails with Exit::badData, naming file,
  /// tensor and both numbers: the metadata is none, or not that of the record; it is another division than before; the
  /// member's part is there already. Ranges are looked at by complete().
  Status add(const SafetensorsFile& file, const TensorRecord& record);
  /// Fails with Exit::badData where the part of a member is lacking, or where ranges leave something out or overlap.
  Status complete() const;

  const std::string& name() const { return firstRecord().name; }
  Element element() const { return firstRecord().element; }
  /// Of the whole tensor.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  bool isDivided() const { return !part_.isWhole() || isInRanges(); }
  /// Its first record, that of member 0 where it is complete, and the file that holds it.
  const TensorRecord& firstRecord() const { return *records_.front().record; }
  const SafetensorsFile& firstFile() const { return *records_.front().file; }

  /// Copies what is wanted to `to`, which has its bytes, straight from the mapped files; padding becomes zero. Fails
  /// with Exit::badData where the type or the whole shape is another, naming both.
  Status read(const WantedTensor& wanted, std::span<std::byte> to) const;
  /// As one record. Its values are those of the file; of a divided tensor, `made`, which it fills.
  TensorRecord whole(std::vector<std::byte>& made) const;

private:
  struct Held {
    const SafetensorsFile* file = nullptr;
    const TensorRecord* record = nullptr;
    int member = 0;
    std::vector<ElementRange> ranges = {}; ///< that the record has; none: all of the member's part
  };
  bool isInRanges() const { return !records_.empty() && !records_.front().ranges.empty(); }
  Status addRanges(const SafetensorsFile& file, const TensorRecord& record, const std::string& said);
  Status checkRanges(int member) const;
  void copyRanges(int member, std::span<std::byte> local) const;
  void copy(const MemberPart& target, std::span<std::byte> to) const;

  std::vector<std::int64_t> shape_;
  Part part_;
  std::vector<Held> records_; ///< in ascending order of members, and of ranges
};

/// All tensors of some files, each complete. The files of the members of one stage belong together, by their names; a
/// tensor that several stages have is there several times. Fails with Exit::badData.
Status readStored(std::span<const SafetensorsFile* const> files, std::vector<StoredTensor>& tensors);

/// The tensors of some files, for as long as this lives.
class StoredTensors {
public:
  /// Fails with Exit::badData.
  Status open(std::span<const std::string> paths);
  /// Null: there is none. Of several the first is taken.
  const StoredTensor* find(const std::string& name) const;
  /// All of them whole. The values of divided tensors are made when this is first called.
  const std::map<std::string, TensorRecord>& whole();

private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, TensorRecord> whole_;
  std::deque<std::vector<std::byte>> made_; ///< values of divided tensors
};

} // namespace pdcrt
